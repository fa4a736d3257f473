"""The panel of administrators."""
