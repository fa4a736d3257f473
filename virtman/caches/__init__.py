"""Cache drivers, one a file: each makes what was read once stay on a local device.

The node's *group* is made of local devices; each image that is attached here is a
*member* of it. What belongs to a member is known by the image's name and mark, so that what
outlived a reboot is used again for that very image, and for no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from virtman import plan
from virtman.layer import Layer


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
    """One image's part of the group."""

    def is_caching(self) -> bool:
        """Tell whether what is read is kept."""

    def figures(self) -> Figures:
        """Return what it has done."""


class Group(Protocol):
    """The node's cache.

    :ivar modules: kernel modules that it needs
    """

    modules: tuple[str, ...]

    def member(self, step: plan.Cache) -> Member:
        """Return an image's part, whether or not the kernel has it yet."""
