"""How Sphinx builds the documentation; it needs no network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import entry_points

entry_points.provide()

project = "VirtMan"
author = "The VirtMan developers"
copyright = author
extensions = ["oslo_config.sphinxext", "oslo_policy.sphinxext"]
html_theme = "alabaster"
html_theme_options = {
    "description": "Many identical virtual machines from one image",
    "fixed_sidebar": True,
    "page_width": "72em",
}
html_show_sourcelink = False
nitpicky = True
