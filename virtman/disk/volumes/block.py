"""What volumes that are block devices have in common: all of their space, from the start."""

from __future__ import annotations

import contextlib
import math

from virtman import sysfs

_SECTOR = 512


class Block:
    """The device of one store."""

    def __init__(self, path: str) -> None:
        self.path = path

    def check(self) -> None:
        """Nothing: nobody else has its name."""

    def reserve(self, end: int) -> None:
        """Nothing: the space is there."""

    def allocated(self) -> int:
        """Return the size of the device."""
        with contextlib.suppress(FileNotFoundError):
            return sysfs.sectors(sysfs.kernel_name(self.path)) * _SECTOR
        return 0

    def ahead(self, taken: int) -> float:
        """Return that there is no end of it."""
        return math.inf
