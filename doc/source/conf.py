"""How Sphinx builds the documentation; it needs no network."""

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import entry_points

entry_points.provide()

project = "VirtMan"
author = "The VirtMan developers"
copyright = author
extensions = ["openstackdocstheme", "oslo_config.sphinxext", "oslo_policy.sphinxext"]
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
openstackdocs_auto_version = (entry_points.TOP / ".git").exists()
# The theme looks for the commit, which no page shows, and warns where there is no git.
logging.getLogger("sphinx.openstackdocstheme.ext").addFilter(
    lambda record: "gitsha" not in record.msg
)
