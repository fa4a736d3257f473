"""Through which devices an image reads from a copy of it on this node; no parent is needed.

::

    copy        leafcopy         the file, and from where on it has the leaves
    whole       leafwhole        verified, as what parents send is: by hashes, and by upper
      │           leaves         multipath, as over parents
    image

A local disk may give wrong bytes too. So these are errors here as well, and no VM ever sees them.
"""

from __future__ import annotations

from dataclasses import replace

from virtman.model import feeding, plan
from virtman.model.copying import Layout
from virtman.model.naming import Device
from virtman.model.sizes import SECTOR
from virtman.model.wanted import Wanted


def leaves(wanted: Wanted) -> plan.Plan:
    """Return the copy of the leaves, verified, and the multipath of the leaves on it."""
    layout = Layout.of(wanted.size)
    steps = _verified(wanted, ("leafcopy", "leafwhole"), layout.leaves_at, layout.leaves, "upper")
    return (*steps, replace(feeding.leaves(wanted), below=(steps[-1].device,)))


def image(wanted: Wanted) -> plan.Plan:
    """Return the copy of the image, verified, and the image on it."""
    layout = Layout.of(wanted.size)
    steps = _verified(wanted, ("copy", "whole"), 0, layout.image, "hashes")
    below = (steps[-1].device,)
    return (*steps, plan.Image(Device(wanted.image, "image"), layout.image // SECTOR, below))


def devices(wanted: Wanted) -> tuple[plan.Plan, plan.Plan]:
    """Return what only a copy needs, below the leaves and above them; nothing without a copy."""
    if not wanted.copy:
        return (), ()
    return leaves(wanted)[:-1], image(wanted)[:-1]


def _verified(
    wanted: Wanted, roles: tuple[str, str], begin: int, length: int, by: str
) -> tuple[plan.Reader, plan.Verity]:
    assert wanted.tree is not None
    copy, whole = (Device(wanted.image, role) for role in roles)
    sectors = length // SECTOR
    below = (copy, Device(wanted.image, by))
    return (
        plan.Direct(copy, sectors, (), wanted.copy, begin),
        plan.Verity(whole, sectors, below, wanted.tree),
    )
