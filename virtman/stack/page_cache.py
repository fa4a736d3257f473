"""What the page cache holds of a block device, and having it hold more: no root is needed.

The device's node must belong to this account: to others the kernel shows all pages as held.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from collections.abc import Iterator, Sequence

from virtman.model.pieces import Part

PAGE = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
_FAILED = ctypes.c_void_p(-1).value


def held(device: str, parts: Sequence[Part]) -> list[bytes]:
    """Return a byte for each page of each part: 1 if it is held.

    Nothing is read, and no page is touched.
    """
    begin = min(offset for offset, _ in parts)
    length = max(offset + length for offset, length in parts) - begin
    with _opened(device) as descriptor:
        flags = mmap.MAP_SHARED
        mapped = _libc.mmap(None, length, mmap.PROT_READ, flags, descriptor, begin)
        if mapped == _FAILED:
            raise _failure(device)
        try:
            return [_resident(device, mapped + at - begin, size) for at, size in parts]
        finally:
            _libc.munmap(mapped, length)


def fetch(device: str, parts: Sequence[Part]) -> None:
    """Have parts held, and return once they are: no more, as nothing is read ahead of them.

    All are asked for before any is waited for. The kernel waits for as long as what lies below
    does not answer.
    """
    with _opened(device) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for offset, length in parts[:-1]:
            os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)
        for offset, length in reversed(parts):
            os.pread(descriptor, length, offset)


def read(device: str, offset: int, length: int) -> bytes:
    """Return bytes, which are held then too; as for ``fetch``."""
    with _opened(device) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        found = os.pread(descriptor, length, offset)
    if len(found) != length:
        raise OSError(errno.EIO, f"{device}: {len(found)} of {length} bytes at {offset}")
    return found


def forget(device: str, offset: int, length: int) -> None:
    """Have no bytes held that nobody uses just now; whole pages."""
    with _opened(device) as descriptor:
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def _opened(device: str) -> Iterator[int]:
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _resident(device: str, address: int, length: int) -> bytes:
    found = ctypes.create_string_buffer(length // PAGE)
    if _libc.mincore(address, length, found):
        raise _failure(device)
    return bytes(one & 1 for one in found.raw)


def _failure(device: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"page cache of {device}: {os.strerror(number)}")
