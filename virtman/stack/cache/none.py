"""No cache: each read of an image goes to its parents."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from virtman.model import plan
from virtman.stack.cache import CachedVolume, Figures, Member, VolumeStep, unsupported
from virtman.stack.mapped import Table


class NoGroup:
    """A group without devices."""

    modules: tuple[str, ...] = ()

    def __init__(self, devices: Sequence[str], folder: Path) -> None:
        pass

    def member(self, step: plan.Cache) -> Member:
        """Return what stands where other drivers have a device."""
        return Uncached()

    def volume(self, step: VolumeStep) -> CachedVolume:
        """Refuse: this driver caches images only."""
        raise unsupported("none")

    def protect(self, volumes: Callable[[], Sequence[VolumeStep]]) -> None:
        """There are none."""


class Uncached:
    """No device: the image lies on what would be cached."""

    device = ""

    def up(self, below: Sequence[str]) -> str:
        """Return the device below."""
        return below[0]

    def release(self) -> None:
        """Nothing waits here."""

    def down(self) -> None:
        """There is nothing to take away."""

    def is_up(self) -> bool:
        """Tell that nothing is missing."""
        return True

    def is_caching(self, status: Table) -> bool:
        """Tell that nothing is missing."""
        return True

    def room(self) -> float:
        """Tell that there is nothing to fill."""
        return math.inf

    def can_drop(self) -> bool:
        """Nothing is held."""
        return False

    def drop(self, offset: int) -> None:
        """Nothing is held."""

    def figures(self, status: Table) -> Figures:
        """Nothing is cached."""
        return Figures()
