"""Which version of VirtMan this is, for ``--version`` of each program."""

from __future__ import annotations

from importlib import metadata

_CHECKOUT = "(not installed: run from a source tree)"


def version() -> str:
    """Return what the installed package says of itself."""
    try:
        return metadata.version("virtman")
    except metadata.PackageNotFoundError:
        return _CHECKOUT
