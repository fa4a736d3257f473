"""How Sphinx builds the documentation; it needs no network."""

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import entry_points
from docutils import nodes
from docutils.parsers.rst import Directive

entry_points.provide()

HAS_GIT = (entry_points.TOP / ".git").exists()

project = "VirtMan"
author = "The VirtMan developers"
copyright = author
extensions = [
    "openstackdocstheme",
    "oslo_config.sphinxext",
    "oslo_policy.sphinxext",
    "sphinx.ext.graphviz",
]
if HAS_GIT:
    extensions.append("reno.sphinxext")
templates_path = ["_templates"]
html_static_path = ["_static"]
html_theme = "openstackdocs"
# The theme is that of docs.openstack.org: without these, pages ask other sites for more.
html_theme_options = {
    "analytics_tracking_code": "",
    "display_badge": False,
    "sidebar_search": True,
}
html_show_sourcelink = False
nitpicky = True
openstackdocs_auto_name = False
# pbr derives the version from git.
openstackdocs_auto_version = HAS_GIT
# The theme looks for the commit, which no page shows, and warns where there is no git.
logging.getLogger("sphinx.openstackdocstheme.ext").addFilter(
    lambda record: "gitsha" not in record.msg
)
graphviz_output_format = "svg"
# One look for all figures, in the colours of the theme. 9.75 points are 13 whole pixels: browsers
# round the widths of others, and text would leave its box.
graphviz_dot_args = [
    "-Gfontname=sans-serif",
    "-Gfontsize=9.75",
    "-Gfontcolor=#2a4e68",
    "-Gcolor=#c8d8e5",
    "-Gbgcolor=transparent",
    "-Granksep=0.35",
    "-Nfontname=sans-serif",
    "-Nfontsize=9.75",
    "-Nshape=box",
    "-Nstyle=rounded,filled",
    "-Nheight=0.3",
    "-Nmargin=0.15,0.07",
    "-Ncolor=#2a4e68",
    "-Nfillcolor=#edf2f7",
    "-Efontname=sans-serif",
    "-Efontsize=9.75",
    "-Ecolor=#2a4e68",
    "-Earrowsize=0.7",
]


class NoReleaseNotes(Directive):
    """Stands in for reno, which reads from git which note belongs to which release."""

    def run(self):
        text = "Release notes are left out here: the documentation was built without a git clone."
        return [nodes.paragraph(text=text)]


def setup(app):
    if not HAS_GIT:
        app.add_directive("release-notes", NoReleaseNotes)
