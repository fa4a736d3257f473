"""Where the bytes of exception stores are: one kind of volume a file.

A volume is as long as its store can ever become, so the store itself never is full, which
the kernel would answer by giving it up. It is filled from its start on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

_SLACK = 1024 * 1024


def full_size(size: int) -> int:
    """Bytes within which the store of an image cannot fill, whatever the VM writes.

    dm-snapshot keeps 16 bytes for each chunk: of the 8 KiB that they once had, 0.2 %.
    """
    return size + size // 100 + _SLACK


class StoreVolume(Protocol):
    """The place of one store. It need not be there yet, or any more."""

    def make(self, size: int) -> None:
        """Make the volume of an empty store.

        :raises NoSpace: if it does not fit
        """

    def lengthen(self, size: int) -> None:
        """Make the volume so long; one that is longer stays as it is.

        :raises NoSpace: if it does not fit
        :raises StoreUnusable: if that is not for us to do
        """

    def check(self) -> None:
        """Check that what is at its path is the volume still.

        :raises StoreUnusable: if not
        """

    def reserve(self, end: int) -> None:
        """Have disk space for all bytes up to ``end``, as far as the volume goes.

        :raises NoSpace: if there is too little; what is written is safe
        """

    def copy(self, source: str, length: int) -> None:
        """Begin with the first bytes of another volume, which is at this path."""

    def allocated(self) -> int:
        """Return the bytes of disk space that the volume has, reserved ones too."""

    def ahead(self, taken: int) -> float:
        """Return the bytes of disk space beyond those taken; infinite if it has all of it."""

    def remove(self) -> None:
        """Give the space back; that there is no such volume is fine."""


class Backing(Protocol):
    """What volumes are made of."""

    def path(self, name: str) -> str:
        """Return the path of a store's volume."""

    def free(self) -> int:
        """Return the bytes that there are for more volumes."""

    def shares(self, folder: Path) -> bool:
        """Tell whether what is in a folder takes from the same space."""

    def left(self) -> float:
        """Return the bytes that there are for what is written to volumes; perhaps no end."""
