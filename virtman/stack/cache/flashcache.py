"""The flashcache driver: for kernels that have the module; in writearound mode.

What is written takes what the cache holds of it away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from virtman.model import plan
from virtman.privileged import flashcache, ssd
from virtman.stack.cache import CachedVolume, Figures, Member, VolumeStep, unsupported
from virtman.stack.cache.slices import Sliced, Slices
from virtman.stack.mapped import explained


class FlashCacheGroup:
    """The node's cache group, in which each image has a slice."""

    modules: tuple[str, ...] = ("flashcache",)

    def __init__(self, devices: Sequence[str], folder: Path) -> None:
        self.slices = Slices(devices)
        self.folder = folder

    def member(self, step: plan.Cache) -> Member:
        """Return an image's part."""
        return FlashCache(step, self.slices, self.folder)

    def volume(self, step: VolumeStep) -> CachedVolume:
        """Refuse: this driver caches images only."""
        raise unsupported("flashcache")

    def protect(self, volumes: Callable[[], Sequence[VolumeStep]]) -> None:
        """There are none."""


class FlashCache(Sliced):
    """One image's flashcache."""

    def _read(self, status: str) -> Figures:
        reads, hits, bypassed = (
            int(found[1]) if (found := re.search(rf"(?<!\w ){what}\((\d+)\)", status)) else 0
            for what in ("reads", "read hits", "uncached reads")
        )
        return Figures(hits, max(0, reads - hits - bypassed), bypassed)

    def _make(self, below: str) -> None:
        self.slices.take(self.step.device.image, 0, self.step.sectors)
        self.shim.up(below)
        with explained(f"device {self.cached.name}"):
            # it would take what is there for a cache of its own, and refuse to overwrite it
            ssd.wipe(self.data.node)
            if self.cached.exists():  # an error target: somebody had it open as it went
                self.cached.down()
            flashcache.create(self.cached.name, self.data.node, self.shim.node)
            flashcache.keep_latest(self.data.node, self.shim.node)
