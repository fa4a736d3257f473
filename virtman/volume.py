"""The file that holds an exception store."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from virtman.errors import NoSpace

_SLACK = 1024 * 1024


def full_size(size: int) -> int:
    """Bytes within which the store of an image cannot fill, whatever the VM writes.

    dm-snapshot keeps 16 bytes for each chunk of 8 KiB: 0.2 %.
    """
    return size + size // 100 + _SLACK


class Volume:
    """A sparse file, as long as its store can ever become; it is filled from its start on.

    So the store itself never is full, which the kernel would answer by giving it up. Only
    the file system can be: space is reserved ahead of use.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def make(self, size: int) -> None:
        """Make the file of an empty store.

        :raises NoSpace: if the file system is full
        """
        with self._explained(), open(self.path, "wb") as file:
            file.truncate(size)

    def reserve(self, end: int) -> None:
        """Have disk space for all bytes up to ``end``, as far as the file goes.

        :raises NoSpace: if there is too little; what is written is safe
        """
        with self._explained(), open(self.path, "r+b") as file:
            _fallocate(file.fileno(), min(end, os.fstat(file.fileno()).st_size))

    def copy(self, source: Volume, length: int) -> None:
        """Begin with the first bytes of another volume, shared where the file system can."""
        with self._explained(), open(source.path, "rb") as old, open(self.path, "r+b") as file:
            done = 0
            while done < length:
                step = os.copy_file_range(old.fileno(), file.fileno(), length - done, done, done)
                if not step:
                    break
                done += step
            os.fsync(file.fileno())

    def allocated(self) -> int:
        """Return the bytes that the file system has given to the file, reserved ones too."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self.path).st_blocks * 512
        return 0

    def remove(self) -> None:
        """Give the space back."""
        self.path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _explained(self):  # type: ignore[no-untyped-def]
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


_libc = ctypes.CDLL(None, use_errno=True)
