"""Logical volumes: each has all of its space from the start."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

from virtman.disk.volumes.block import Block
from virtman.errors import NoSpace
from virtman.privileged import device, lvm
from virtman.stack.mapped import explained

_PREFIX = "virtman_"


def is_logical(path: str) -> bool:
    """Tell whether a device is a volume of ours."""
    return path.rsplit("/", 1)[1].startswith(_PREFIX)


class VolumeGroup:
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

    def shares(self, folder: Path) -> bool:
        """Tell that volumes have their space for themselves."""
        return False

    def left(self) -> float:
        """Return that there is no end of it: volumes that are there have theirs."""
        return math.inf


class Logical(Block):
    """The volume of one store."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.group, self.name = path.split("/")[-2:]

    def make(self, size: int) -> None:
        """Make a volume that begins with zeros."""
        with self._explained():
            lvm.create(self.group, self.name, size)

    def lengthen(self, size: int) -> None:
        """Make the volume longer."""
        if self.allocated() < size:
            with self._explained():
                lvm.lengthen(self.group, self.name, size)

    def copy(self, source: str, length: int) -> None:
        """Copy the beginning."""
        with explained(f"exception store {self.path}"):
            device.copy(source, self.path, length)

    def remove(self) -> None:
        """Remove the volume."""
        with explained(f"exception store {self.path}"):
            lvm.remove(self.group, self.name)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as err:
            raise NoSpace(f"exception store {self.path}: {err.strerror or err}") from err
