"""Cache drivers, one a file: each makes what was read once stay on a local device.

The node's *group* is made of local devices; each image that is attached here is a
*member* of it. What belongs to a member is known by the image's name and mark, so that what
outlived a reboot is used again for that very image, and for no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from virtman.errors import CacheUnsupported
from virtman.model import plan
from virtman.stack.layer import Layer
from virtman.stack.mapped import Table


@dataclass(frozen=True)
class Figures:
    """What became of the reads of an image since it came up.

    :ivar hits: reads that the cache could serve
    :ivar misses: reads that it could not
    :ivar bypassed: reads that went round it: nothing is kept of them
    """

    hits: int = 0
    misses: int = 0
    bypassed: int = 0


class Member(Layer, Protocol):
    """One image's part of the group.

    :ivar device: by whose status, which is empty if it is not there, one can tell how the member
        is; empty if there is no such device
    """

    device: str

    def is_caching(self, status: Table) -> bool:
        """Tell whether what is read is kept."""

    def figures(self, status: Table) -> Figures:
        """Return what it has done."""

    def room(self) -> float:
        """Return for which part of the image there is room, if all members get their share."""

    def can_drop(self) -> bool:
        """Tell whether there is anything that single blocks could be dropped from."""

    def drop(self, offset: int) -> None:
        """No longer give what is held of a block; what lies below has the right one."""


@dataclass(frozen=True)
class VolumeStep:
    """A volume that is somebody else's, and how it shall be cached.

    :ivar name: of the device that its user gets
    :ivar path: of the volume
    :ivar mode: "writethrough" or "writeback"
    :ivar superblock: a small file of its own, which survives a reboot
    :ivar leaving: it is being given back
    """

    name: str
    path: str
    sectors: int
    mode: str
    superblock: Path
    leaving: bool = False


class CachedVolume(Protocol):
    """A volume's part of the group."""

    def up(self) -> None:
        """Put the cache before the volume, and show it to its user unless it is leaving."""

    def close(self) -> None:
        """Take the user's device away; DeviceBusy while it is open."""

    def empty(self) -> bool:
        """Have what was written brought to the volume; tell whether all of it is there."""

    def down(self) -> None:
        """Give the volume back; it must be empty."""

    def is_up(self) -> bool:
        """Tell whether the volume can be used."""

    def is_caching(self) -> bool:
        """Tell whether what is read is kept."""

    def dirty(self) -> int:
        """Return the bytes that are in the cache alone."""

    def figures(self) -> Figures:
        """Return what the cache has done."""


class CacheGroup(Protocol):
    """The node's cache.

    :ivar modules: kernel modules that it needs
    """

    modules: tuple[str, ...]

    def member(self, step: plan.Cache) -> Member:
        """Return an image's part, whether or not the kernel has it yet."""

    def volume(self, step: VolumeStep) -> CachedVolume:
        """Return a volume's part.

        :raises CacheUnsupported: if the driver cannot do that
        """

    def protect(self, volumes: Callable[[], Sequence[VolumeStep]]) -> None:
        """Give up nothing that the cache alone may have of volumes.

        :param volumes: returns those that are written back, whether or not they are there
        """


def unsupported(driver: str) -> CacheUnsupported:
    """Return the error of a driver that caches images only."""
    return CacheUnsupported(
        f"cache driver {driver} cannot be put before volumes: [cache] driver = bcache can"
    )
