"""The flavor of a server by volume type: what its root disk is made of, and how large that is.

It is the one that the user chose, with three values of the server's own. With them nova treats the
server like any whose root disk is on its node: Placement counts the disk, only nodes with the
driver are asked, and a move asks for the same again.
"""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils

TRAIT = "CUSTOM_VIRTMAN"
"""What a node with the driver has."""

_IMAGE = "virtman:image"
_NEEDED = f"trait:{TRAIT}"


def image_of(flavor: Any) -> str:
    """Return the image of the disk; empty if the server's image says it, as without VirtMan."""
    found: str = flavor.get("extra_specs", {}).get(_IMAGE, "")
    return found


def allows(flavor: Any) -> bool:
    """Tell whether a flavor lets root disks be VirtMan's, as all do that do not say otherwise."""
    said = flavor.get("extra_specs", {}).get("virtman:root_disk")
    return bool(strutils.bool_from_string(said, default=True))


def of_server(flavor: Any, image: str, size: int) -> Any:
    """Return a flavor for servers whose root disk is of an image of VirtMan's.

    :param flavor: stays as it is
    :param size: GiB of the disk
    """
    made = flavor.obj_clone()
    made.root_gb = size
    made.extra_specs = {**flavor.extra_specs, _IMAGE: image, _NEEDED: "required"}
    return made
