"""Which version of VirtMan this is, for ``--version`` of each program."""

from __future__ import annotations

_CHECKOUT = "(not installed: run from a source tree)"


def version() -> str:
    """Return what the installed package says of itself."""
    # takes long to load, and is seldom asked for
    from importlib import metadata  # noqa: PLC0415

    try:
        return metadata.version("virtman")
    except metadata.PackageNotFoundError:
        return _CHECKOUT
