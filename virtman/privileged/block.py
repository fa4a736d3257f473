"""Block-device verbs: what is on one, and letting go of what caches have of it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from virtman.privileged import context

_DISCARD = 0x1277  # BLKDISCARD, linux/fs.h
_BLOCK = 4096


@context.entrypoint
def read(device: str, offset: int, length: int) -> bytes:
    """Return bytes of a device, past the page cache; both numbers in whole blocks of 4 KiB."""
    return _read(device, offset, length)


@context.entrypoint
def digests(device: str, offset: int, length: int, salt: bytes) -> bytes:
    """Return the SHA-256 of salt and block for each block of 4 KiB, one after the other."""
    content = memoryview(_read(device, offset, length))
    found = b""
    for start in range(0, length, _BLOCK):
        found += hashlib.sha256(salt + content[start : start + _BLOCK]).digest()
    return found


@context.entrypoint
def discard(device: str, offset: int, length: int) -> None:
    """Discard bytes of a device, which may be in use."""
    with _opened(device, os.O_RDWR) as descriptor:
        fcntl.ioctl(descriptor, _DISCARD, struct.pack("QQ", offset, length))


@context.entrypoint
def forget(device: str, offset: int, length: int) -> None:
    """Drop what the page cache holds of a device there."""
    with _opened(device, os.O_RDONLY) as descriptor:
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


@context.entrypoint
def read_ahead(kernel_name: str, size: int) -> None:
    """Let those who open a device from now on read ahead by so many bytes, in whole KiB."""
    Path(f"/sys/block/{kernel_name}/queue/read_ahead_kb").write_text(str(size // 1024))


@context.entrypoint
def merge_nothing(kernel_name: str) -> None:
    """Have requests sent as they come, none made one with its neighbour."""
    Path(f"/sys/block/{kernel_name}/queue/nomerges").write_text("2")


def _read(device: str, offset: int, length: int) -> bytes:
    with _opened(device, os.O_RDONLY | os.O_DIRECT) as descriptor, mmap.mmap(-1, length) as memory:
        done = os.preadv(descriptor, [memory], offset)
        if done != length:
            raise OSError(errno.EIO, f"{device}: {done} of {length} bytes at {offset}")
        return memory[:]


@contextlib.contextmanager
def _opened(device: str, flags: int) -> Iterator[int]:
    descriptor = os.open(device, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
