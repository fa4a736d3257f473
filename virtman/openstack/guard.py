"""Whether nova is one that the driver was written for.

The driver overrides and calls methods of nova's that are no interface: another release may do
other things in them, and a disk that is taken away one time too many is gone. So they are
compared with what they were: by the digests of their sources, in ``releases``.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import textwrap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from virtman.errors import VirtmanError

if TYPE_CHECKING:
    from virtman.openstack.releases import Release  # which needs nova

LOG = logging.getLogger(__name__)

Methods = Mapping[str, Callable[..., Any] | None]
"""Methods by their names; None for those that this nova does not have."""


class NovaUnknown(VirtmanError):
    """Nova differs from all releases that the driver was written for."""

    code = "virtman.openstack.nova_unknown"


def overridden(ours: type, stock: type) -> Methods:
    """Return the methods of nova's that a class of ours replaces, by their names."""
    names = [name for name in vars(ours) if name == "__init__" or not hasattr(object, name)]
    return {
        f"{stock.__name__}.{name}": method
        for name in names
        if inspect.isroutine(method := getattr(stock, name, None))
    }


def named(stock: type, *names: str) -> Methods:
    """Return methods of nova's that are called, or that call what is overridden."""
    return {f"{stock.__name__}.{name}": getattr(stock, name, None) for name in names}


def source(method: Callable[..., Any] | None) -> str:
    """Return a method's source; empty if there is none."""
    try:
        return textwrap.dedent(inspect.getsource(method))  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""


def digests(methods: Methods) -> dict[str, str]:
    """Return the digests of those methods that have a source."""
    texts = {name: source(methods[name]) for name in sorted(methods)}
    return {
        name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in texts.items() if text
    }


def differences(methods: Methods, release: Mapping[str, str]) -> list[str]:
    """Return the names of methods that are not as in a release, or are in one of both only.

    :param release: digests by the names of methods
    """
    found = digests(methods)
    return sorted(
        name
        for name in {*methods, *release}
        if name not in found or found[name] != release.get(name)
    )


def check(methods: Methods, releases: Mapping[str, Release]) -> str:
    """Return the release that nova is.

    :raises NovaUnknown: if it is none of them
    """
    found = {name: differences(methods, release.METHODS) for name, release in releases.items()}
    nearest = min(found, key=lambda name: len(found[name]))
    if found[nearest]:
        raise NovaUnknown(
            f"this nova is not one that VirtMan knows ({', '.join(releases)}). Nearest is "
            f"{nearest}, but these differ: {', '.join(found[nearest])}. Servers could lose their "
            "disks. Install one of these novas as it was released, or a VirtMan that knows this "
            "one; until then compute_driver = libvirt.LibvirtDriver runs servers that are not "
            "VirtMan's"
        )
    LOG.info("nova is as in release %s", nearest)
    return nearest
