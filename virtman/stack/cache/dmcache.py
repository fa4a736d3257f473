"""The dmcache driver: dm-cache in writethrough mode.

It copies whole blocks, and only of regions that were read several times. An image of 64 MiB,
read from its start to its end, was fetched 1.2 times at the first pass and 1.5 times at the
second, and not at all from the fourth on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from virtman import sysfs
from virtman.model import plan, sizes
from virtman.privileged import ssd
from virtman.stack.cache import CachedVolume, Figures, Member, VolumeStep, unsupported
from virtman.stack.cache.slices import UNIT, Sliced, Slices
from virtman.stack.mapped import explained

# Sectors of 64 KiB: larger blocks fetch more than was asked for.
_BLOCK = 128
_MAPPING = 64
"""Bytes of metadata a block, generously; its B-trees are copied when they change."""


class DmCacheGroup:
    """The node's cache group, in which each image has a slice."""

    modules: tuple[str, ...] = ("dm-cache", "dm-cache-smq")

    def __init__(self, devices: Sequence[str], folder: Path) -> None:
        self.slices = Slices(devices)
        self.folder = folder

    def member(self, step: plan.Cache) -> Member:
        """Return an image's part."""
        return DmCache(step, self.slices, self.folder)

    def volume(self, step: VolumeStep) -> CachedVolume:
        """Refuse: this driver caches images only."""
        raise unsupported("dmcache")

    def protect(self, volumes: Callable[[], Sequence[VolumeStep]]) -> None:
        """There are none."""


class DmCache(Sliced):
    """One image's dm-cache."""

    def _read(self, status: str) -> Figures:
        words = status.split()  # four of sizes and use, then read hits and read misses
        return Figures(*map(int, words[4:6])) if len(words) > 5 else Figures()

    def _make(self, below: str) -> None:
        length = self.step.sectors
        meta = 4 * UNIT + -(-length // _BLOCK * _MAPPING // (UNIT * sizes.SECTOR)) * UNIT
        self.slices.take(self.step.device.image, meta, length)
        self.shim.up(below)
        with explained(f"device {self.cached.name}"):
            ssd.wipe(self.meta.node)
        nodes = (self.meta.node, self.data.node, self.shim.node)
        devices = " ".join(map(sysfs.number, nodes))
        parameters = f"{devices} {_BLOCK} 1 writethrough smq 0"
        self.cached.set_up([(0, length, "cache", parameters)])
