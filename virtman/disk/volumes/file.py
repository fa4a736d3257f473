"""Sparse files: they take as much of a file system as was written."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from collections.abc import Iterator
from pathlib import Path

from virtman.errors import NoSpace
from virtman.privileged import device

_libc = ctypes.CDLL(None, use_errno=True)


class Folder:
    """The folder of the files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> str:
        """Return the path of a store's file."""
        return str(self.folder / f"{name}.cow")

    def free(self) -> int:
        """Return the bytes that nobody has."""
        stat = os.statvfs(self.folder)
        return stat.f_bavail * stat.f_frsize

    def shares(self, folder: Path) -> bool:
        """Tell whether both are on one file system."""
        return os.stat(folder).st_dev == os.stat(self.folder).st_dev

    def left(self) -> float:
        """Return the same: files that are there take what they need from it."""
        return self.free()


class StoreFile:
    """The file of one store."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def make(self, size: int) -> None:
        """Make a file without anything in it."""
        with self._explained(), open(self.path, "wb") as file:
            file.truncate(size)

    def lengthen(self, size: int) -> None:
        """Make the file longer."""
        with self._explained(), open(self.path, "r+b") as file:
            if os.fstat(file.fileno()).st_size < size:
                file.truncate(size)

    def check(self) -> None:
        """Nothing: nobody else has its name."""

    def reserve(self, end: int) -> None:
        """Have the file system set space aside."""
        with self._explained(), open(self.path, "r+b") as file:
            _fallocate(file.fileno(), min(end, os.fstat(file.fileno()).st_size))

    def copy(self, source: str, length: int) -> None:
        """Copy the beginning, or share it where the file system can."""
        if source.startswith("/dev/"):
            with self._explained():
                device.copy(source, str(self.path), length)
            return
        with self._explained(), open(source, "rb") as old, open(self.path, "r+b") as file:
            done = 0
            while done < length:
                step = os.copy_file_range(old.fileno(), file.fileno(), length - done, done, done)
                if not step:
                    break
                done += step
            os.fsync(file.fileno())

    def allocated(self) -> int:
        """Return what the file system says."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self.path).st_blocks * 512
        return 0

    def ahead(self, taken: int) -> float:
        """Return what was set aside and is not in use."""
        allocated = self.allocated()
        return allocated - taken if allocated < os.stat(self.path).st_size else math.inf

    def remove(self) -> None:
        """Unlink the file."""
        self.path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as err:
            raise NoSpace(f"exception store {self.path}: {err.strerror}") from err


def _fallocate(descriptor: int, length: int) -> None:
    """Call fallocate(2). Where a file system lacks it, posix_fallocate would write instead.

    What it wrote would get in the way of what the VM writes at the same time.
    """
    if _libc.fallocate(descriptor, 0, ctypes.c_int64(0), ctypes.c_int64(length)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
