"""Loop-device verbs: files as block devices, by ioctl."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import time

from virtman.privileged import context

# linux/loop.h
_CTL_GET_FREE, _CLR_FD, _SET_CAPACITY, _CONFIGURE = 0x4C82, 0x4C01, 0x4C07, 0x4C0A
_READ_ONLY, _DIRECT = 1, 16
_BLOCK = 4096
_TRIES, _PAUSE = 100, 0.05


class _Info(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_uint64), ("inode", ctypes.c_uint64), ("rdevice", ctypes.c_uint64),
        ("offset", ctypes.c_uint64), ("sizelimit", ctypes.c_uint64), ("number", ctypes.c_uint32),
        ("encrypt_type", ctypes.c_uint32), ("encrypt_key_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32), ("file_name", ctypes.c_char * 64),
        ("crypt_name", ctypes.c_char * 64), ("encrypt_key", ctypes.c_uint8 * 32),
        ("init", ctypes.c_uint64 * 2),
    )  # fmt: skip


class _Config(ctypes.Structure):
    _fields_ = (
        ("fd", ctypes.c_uint32), ("block_size", ctypes.c_uint32), ("info", _Info),
        ("reserved", ctypes.c_uint64 * 8),
    )  # fmt: skip


@context.entrypoint
def attach(
    path: str, offset: int, read_only: bool, durable: bool = False, direct: bool = False
) -> str:
    """Show a file or device, from ``offset`` bytes on, as a new block device.

    :param durable: have each write to the file wait until it is on the disk
    :param direct: go past the page cache where the file system can, in blocks of 4 KiB
    :returns: path of the loop device
    :raises OSError: ENOENT, EBUSY if others were first again and again, or what the kernel said
    """
    flags = os.O_RDONLY if read_only else os.O_RDWR
    synced = os.O_DSYNC if durable else 0
    with (
        _opened(path, flags | synced) as backing,
        _opened("/dev/loop-control", os.O_RDWR) as control,
    ):
        for last in range(_TRIES, -1, -1):
            device = f"/dev/loop{fcntl.ioctl(control, _CTL_GET_FREE)}"
            config = _Config(fd=backing)
            config.info.offset = offset
            config.info.flags = (_READ_ONLY if read_only else 0) | (_DIRECT if direct else 0)
            config.block_size = _BLOCK if direct else 0
            config.info.file_name = path.encode()[:63]
            with _opened(device, flags) as loop:
                try:
                    fcntl.ioctl(loop, _CONFIGURE, config)
                except OSError as err:
                    # Another took the free number first. Or it only holds the device, and the
                    # kernel calls that free until it lets go.
                    if err.errno != errno.EBUSY or not last:
                        raise
                    time.sleep(_PAUSE)
                    continue
            break
        return device


@context.entrypoint
def lengthen(device: str) -> None:
    """Show all of a file that has become longer."""
    with _opened(device, os.O_RDWR) as loop:
        fcntl.ioctl(loop, _SET_CAPACITY)


@context.entrypoint
def detach(device: str) -> None:
    """Let go of the file; the kernel waits for the last user of the device.

    :raises OSError: ENXIO if nothing is attached
    """
    with _opened(device, os.O_RDONLY) as loop:
        fcntl.ioctl(loop, _CLR_FD)


@contextlib.contextmanager
def _opened(path: str, flags: int):  # type: ignore[no-untyped-def]
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
