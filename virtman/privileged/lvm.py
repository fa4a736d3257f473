"""LVM verbs: logical volumes made and removed."""

from __future__ import annotations

from virtman.privileged import context
from virtman.privileged.command import run


@context.entrypoint
def create(group: str, name: str, size: int) -> None:
    """Make an active volume that begins with zeros.

    :param size: bytes, rounded up to the group's extents
    """
    words = ("--yes", "--quiet", "--wipesignatures", "y", "--zero", "y")
    sectors = -(-size // 512)
    run("lvcreate", *words, "--size", f"{sectors}s", "--name", name, group)


@context.entrypoint
def lengthen(group: str, name: str, size: int) -> None:
    """Make a volume longer; one that is as long is left alone."""
    run("lvextend", "--quiet", "--size", f"{size}b", f"{group}/{name}")


@context.entrypoint
def remove(group: str, name: str) -> None:
    """Remove a volume; that there is none is fine."""
    try:
        run("lvremove", "--yes", "--quiet", f"{group}/{name}")
    except OSError as err:
        if "Failed to find logical volume" not in str(err):
            raise


@context.entrypoint
def free(group: str) -> int:
    """Return the bytes of a group that no volume has."""
    words = ("--noheadings", "--nosuffix", "--units", "b", "--options", "vg_free")
    return int(run("vgs", *words, group).strip())
