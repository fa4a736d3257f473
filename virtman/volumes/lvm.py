"""Logical volumes: each has all of its space from the start."""

from __future__ import annotations

import contextlib
import math

from virtman import sysfs
from virtman.errors import NoSpace
from virtman.layers import explained
from virtman.privileged import device, lvm

_PREFIX = "virtman_"
_SECTOR = 512


def is_logical(path: str) -> bool:
    """Tell whether a device is a volume of ours."""
    return path.rsplit("/", 1)[1].startswith(_PREFIX)


class Group:
    """The volume group."""

    def __init__(self, name: str) -> None:
        self.name = name

    def path(self, name: str) -> str:
        """Return the path of a store's volume."""
        return f"/dev/{self.name}/{_PREFIX}{name}"

    def free(self) -> int:
        """Return the bytes that no volume has."""
        with explained(f"volume group {self.name}"):
            return int(lvm.free(self.name))

    def left(self) -> float:
        """Return that there is no end of it: volumes that are there have theirs."""
        return math.inf


class Logical:
    """The volume of one store."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.group, self.name = path.split("/")[-2:]

    def make(self, size: int) -> None:
        """Make a volume that begins with zeros."""
        try:
            lvm.create(self.group, self.name, size)
        except OSError as err:
            raise NoSpace(f"exception store {self.path}: {err.strerror or err}") from err

    def reserve(self, end: int) -> None:
        """Nothing: the space is there."""

    def copy(self, source: str, length: int) -> None:
        """Copy the beginning."""
        with explained(f"exception store {self.path}"):
            device.copy(source, self.path, length)

    def allocated(self) -> int:
        """Return the size of the volume."""
        with contextlib.suppress(FileNotFoundError):
            return sysfs.sectors(sysfs.kernel_name(self.path)) * _SECTOR
        return 0

    def ahead(self, taken: int) -> float:
        """Return that there is no end of it."""
        return math.inf

    def remove(self) -> None:
        """Remove the volume."""
        with explained(f"exception store {self.path}"):
            lvm.remove(self.group, self.name)
