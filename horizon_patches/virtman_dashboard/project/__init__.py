"""The panel of a project."""
