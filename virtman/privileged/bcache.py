"""bcache verbs: format, register, attach, settle, stop."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from virtman.privileged import context
from virtman.privileged.command import run

# 64 KiB buckets write an eighth of the metadata of 512 KiB ones, so that a small fast
# cache does not starve its list of free buckets and drop misses.
_BUCKET = "64k"

# struct cache_sb, in the second block of 4 KiB
_MAGIC = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
_MAGIC_AT = 4096 + 24


@context.entrypoint
def format_cache(device: str, block: int) -> None:
    """Write an empty cache's superblock, over another one if there is one.

    :param block: bytes; no member can have smaller ones
    """
    run("make-bcache", "--wipe-bcache", "-C", device, "--block", str(block), "--bucket", _BUCKET)


@context.entrypoint
def format_backing(device: str, data_offset: int, block: int) -> None:
    """Write a backing device's superblock; its data begin at ``data_offset`` sectors.

    :param block: bytes, of the bcache device
    """
    run(
        "make-bcache", "--wipe-bcache", "-B", device, "--block", str(block),
        "--data-offset", str(data_offset),
    )  # fmt: skip


@context.entrypoint
def is_formatted(device: str) -> bool:
    """Tell whether a device has a bcache superblock, be it a broken one."""
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, len(_MAGIC), _MAGIC_AT) == _MAGIC
    finally:
        os.close(descriptor)


@context.entrypoint
def register(device: str) -> None:
    """Show a formatted device to bcache; a device that it has already is fine.

    :raises OSError: EINVAL if the device has no bcache superblock

    Registration goes on in the background: wait for the device's ``bcache`` folder.
    """
    _write("/sys/fs/bcache/register_quiet", device)


@context.entrypoint
def configure(kernel_name: str, setting: str, value: str) -> None:
    """Write one setting of a bcache device (``bcache0``), such as ``cache_mode``."""
    _write(f"/sys/block/{kernel_name}/bcache/{setting}", value)


@context.entrypoint
def configure_set(cache_set: str, setting: str, value: str) -> None:
    """Write one setting of a cache set, named by its UUID."""
    _write(f"/sys/fs/bcache/{cache_set}/{setting}", value)


@context.entrypoint
def attach(kernel_name: str, cache_set: str) -> None:
    """Put a cache set before a bcache device, or a backing device that waits for one.

    :raises OSError: EINVAL if there is one already, or if the set's table of members is full
    """
    _write(f"/sys/block/{kernel_name}/bcache/attach", cache_set)


@context.entrypoint
def detach(kernel_name: str) -> None:
    """Drop what the cache holds of a bcache device."""
    _write(f"/sys/block/{kernel_name}/bcache/detach", "1")


@context.entrypoint
def stop(kernel_name: str) -> None:
    """Give the backing device back; goes on in the background until the last user left."""
    _write(f"/sys/block/{kernel_name}/bcache/stop", "1")


@context.entrypoint
def stop_set(cache_set: str) -> None:
    """Give the cache device back."""
    _write(f"/sys/fs/bcache/{cache_set}/stop", "1")


def _write(path: str, value: str) -> None:
    try:
        Path(path).write_text(value)
    except OSError as err:
        raise OSError(err.errno or errno.EIO, f"{path} < {value}: {err.strerror}") from err
