"""Verbs on what block devices hold."""

from __future__ import annotations

import errno
import mmap
import os
import stat
import struct

from virtman.privileged import context

_STEP = 1024 * 1024
_HEAD = 64 * 1024
_MAGIC = b"SnAp"
"""What dm-snapshot writes first."""

_SECTOR = 512
_VALID = _VERSION = 1


@context.entrypoint
def claim(path: str, size: int) -> None:
    """Check that a device may be written over.

    :param size: bytes that it must have
    :raises OSError: EBUSY if it is in use, EEXIST if it does not begin with zeros, ENOSPC if it
        is too short, ENOTBLK if it is no block device
    """
    # the kernel refuses O_EXCL for a device that is mounted or below another
    descriptor = os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    try:
        if not stat.S_ISBLK(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOTBLK, "not a block device")
        if os.lseek(descriptor, 0, os.SEEK_END) < size:
            raise OSError(errno.ENOSPC, f"shorter than {size} bytes")
        if any(os.pread(descriptor, _HEAD, 0)):
            raise OSError(errno.EEXIST, "it holds something; erase its start if that may go")
    finally:
        os.close(descriptor)


@context.entrypoint
def begin(path: str, chunk: int) -> None:
    """Make an empty exception store of a device that begins with zeros.

    As the kernel does: no entry in the first table of chunks, and before that a header.

    :param chunk: bytes of one
    :raises OSError: EBUSY if it is in use
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, bytes(chunk), chunk)
        os.fsync(descriptor)  # a header says that the table is one
        header = struct.pack("<4sIII", _MAGIC, _VALID, _VERSION, chunk // _SECTOR)
        os.pwrite(descriptor, header, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@context.entrypoint
def is_store(path: str) -> bool:
    """Tell whether a device begins as an exception store does, whatever the page cache says."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        with mmap.mmap(-1, mmap.PAGESIZE) as memory:
            os.preadv(descriptor, [memory], 0)
            return memory[: len(_MAGIC)] == _MAGIC
    finally:
        os.close(descriptor)


@context.entrypoint
def clear(path: str) -> None:
    """Make a device begin with zeros again if it begins as an exception store does.

    One that is not there any more is fine.

    :raises OSError: EBUSY if it is in use
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if os.pread(descriptor, len(_MAGIC), 0) == _MAGIC:
            os.pwrite(descriptor, bytes(_HEAD), 0)
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@context.entrypoint
def copy(source: str, target: str, length: int) -> None:
    """Copy the first bytes of one file or device to another, and have them on the disk."""
    # a device's page cache knows nothing of what a dm-snapshot writes to the device
    direct = os.O_DIRECT if stat.S_ISBLK(os.stat(source).st_mode) else 0
    old, done = os.open(source, os.O_RDONLY | os.O_CLOEXEC | direct), 0
    try:
        with mmap.mmap(-1, _STEP) as memory, open(target, "r+b") as new:
            while done < length:
                count = min(os.preadv(old, [memory], done), length - done)
                if not count:
                    break
                new.write(memory[:count])
                done += count
            new.flush()
            os.fsync(new.fileno())
    finally:
        os.close(old)
