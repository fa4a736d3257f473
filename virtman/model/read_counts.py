"""How much VMs read of an area of an image, and how long that took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BOUNDS = (0.001, 0.01, 0.1, 1.0)
"""Seconds, between which reads are counted by how long they took."""


@dataclass(frozen=True)
class Count:
    """What was read of an area.

    :ivar sectors: that were read, be it again
    :ivar seconds: that all reads took
    :ivar classes: how many took up to each of the bounds, and how many longer
    """

    sectors: int = 0
    seconds: float = 0.0
    classes: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)

    @property
    def waited(self) -> int:
        """Reads that memory did not answer."""
        return sum(self.classes[1:])


def total(counts: Sequence[Count]) -> Count:
    """Return what was read of several areas, or none."""
    classes = zip(*(one.classes for one in [Count(), *counts]), strict=True)
    return Count(
        sum(one.sectors for one in counts),
        sum(one.seconds for one in counts),
        tuple(map(sum, classes)),
    )
