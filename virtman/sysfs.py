"""What the kernel shows of block devices in /dev and /sys: all look-ups that need no root."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path

_BLOCK = Path("/sys/class/block")
_MAPPER = Path("/dev/mapper")
_HASHES = Path("/sys/module/dm_verity/parameters/prefetch_cluster")
_CACHE_SETS = Path("/sys/fs/bcache")
_PAGE = 4096
"""Bytes, and more is no attribute in ``/sys``."""


def number(device: str) -> str:
    """Return a block device's ``major:minor``, as tables name it."""
    rdev = os.stat(device).st_rdev
    return f"{os.major(rdev)}:{os.minor(rdev)}"


def reads(device: str) -> int:
    """Return how many reads a block device was asked for since it was made."""
    return _statistics(device)[0]


def read_times(device: str) -> tuple[int, float]:
    """Return how many reads a block device has answered since it was made, and in which time.

    That is the sum of what each of them took, in seconds.
    """
    found = _statistics(device)
    return found[0], found[3] / 1000


def sectors_read(device: str) -> int:
    """Return how many sectors were read of a block device since it was made."""
    return _statistics(device)[2]


def is_read(device: str) -> bool:
    """Tell whether a block device owes answers to reads."""
    return int(Path(f"/sys/dev/block/{number(device)}/inflight").read_text().split()[0]) > 0


def kernel_name(device: str) -> str:
    """Return a block device's name in ``/sys/block``, such as ``dm-3``."""
    return Path(f"/sys/dev/block/{number(device)}").resolve().name


def sectors(name: str) -> int:
    """Return the size of a block device, named as in ``/sys/block``."""
    return int((_BLOCK / name / "size").read_text())


def block_size(device: str) -> int:
    """Return the bytes of the smallest block that a device reads and writes."""
    return int((_BLOCK / kernel_name(device) / "queue/logical_block_size").read_text())


def mapper_names() -> list[str]:
    """Names of all device-mapper devices that have a node, be it of one that has gone."""
    return [one.name for one in _MAPPER.iterdir()] if _MAPPER.is_dir() else []


def is_suspended(device: str) -> bool:
    """Tell whether a device-mapper device holds its I/O back.

    :raises FileNotFoundError: if it is none, or just goes
    """
    return _of_mapped(device, "suspended") == "1"


def mapper_name(device: str) -> str:
    """Return a block device's device-mapper name; empty if it has none, or just goes.

    :raises FileNotFoundError: if there is no such device
    """
    number(device)
    with contextlib.suppress(FileNotFoundError):
        return _of_mapped(device, "name")
    return ""


def _of_mapped(device: str, what: str) -> str:
    try:
        return Path(f"/sys/dev/block/{number(device)}/dm/{what}").read_text().strip()
    except OSError as err:
        if err.errno == errno.EINVAL:  # the kernel is removing it
            raise FileNotFoundError(errno.ENOENT, "the device goes", device) from err
        raise


def loop_of(path: str, offset: int = 0) -> str | None:
    """Return the loop device that shows this file or device from a byte on; None if none does."""
    wanted = os.path.realpath(path)
    for loop in _loops():
        with contextlib.suppress(OSError):
            if _file_of(loop) == wanted and _offset_of(loop) == offset:
                return f"/dev/{loop}"
    return None


def idle_loops() -> list[tuple[str, int]]:
    """Return the files and devices, and from where on, of loop devices on which nothing lies."""
    idle = []
    for loop in _loops():
        with contextlib.suppress(OSError):
            if not os.listdir(f"/sys/block/{loop}/holders"):
                idle.append((_file_of(loop), _offset_of(loop)))
    return idle


def disk_number(name: str) -> str:
    """Return a disk's ``major:minor``, with or without a device node."""
    return (_BLOCK / name / "dev").read_text().strip()


def is_held(name: str) -> bool:
    """Tell whether another device lies on a block device, named as in ``/sys/block``."""
    return any((_BLOCK / name / "holders").glob("*"))


def disks_run(device_number: str) -> bool:
    """Tell whether all disks below a device-mapper device, however deep, take I/O."""
    below = [Path("/sys/dev/block") / device_number]
    while below:
        device = below.pop()
        below += device.glob("slaves/*")
        with contextlib.suppress(FileNotFoundError):
            if (device / "device/state").read_text().strip() != "running":
                return False
    return True


def mapped_name(device_number: str) -> str:
    """Return the name of a device-mapper device."""
    return (Path("/sys/dev/block") / device_number / "dm/name").read_text().strip()


def bcache_over(device: str) -> str | None:
    """Return the bcache device over a backing device, such as ``bcache0``; None if none is."""
    return _target(Path(f"/sys/block/{kernel_name(device)}/bcache/dev"))


def awaits_cache(device: str) -> bool:
    """Tell whether bcache holds a backing device back, for want of the set that it had."""
    running = Path(f"/sys/block/{kernel_name(device)}/bcache/running")
    return running.exists() and running.read_text().strip() == "0"


def is_clean(device: str) -> bool:
    """Tell whether bcache has a backing device of which nothing is in a cache alone."""
    state = Path(f"/sys/block/{kernel_name(device)}/bcache/state")
    return state.exists() and state.read_text().strip() in ("no cache", "clean")


def cache_set_on(device: str) -> str | None:
    """Return the UUID of the cache set on a cache device; None if there is none."""
    return _target(Path(f"/sys/block/{kernel_name(device)}/bcache/set"))


def members(cache_set: str) -> list[str]:
    """Return the bcache devices that belong to a cache set."""
    links = _CACHE_SETS.glob(f"{cache_set}/bdev*/dev")
    return sorted(filter(None, map(_target, links)))


def has_cache(bcache: str) -> bool:
    """Tell whether a bcache device belongs to a cache set."""
    return Path(f"/sys/block/{bcache}/bcache/cache").exists()


def cache_reads(bcache: str) -> tuple[int, int, int]:
    """Return a bcache device's hits, misses and requests that went round its cache.

    The kernel adds up what happened only every 38 seconds.
    """
    totals = Path(f"/sys/block/{bcache}/bcache/stats_total")
    kinds = ("hits", "misses", "bypass_hits", "bypass_misses")
    hits, misses, *bypassed = (int((totals / f"cache_{kind}").read_text()) for kind in kinds)
    return hits, misses, sum(bypassed)


def dirty(bcache: str) -> int:
    """Return about how many bytes a bcache device has in its cache alone."""
    text = Path(f"/sys/block/{bcache}/bcache/dirty_data").read_text().strip()
    number, unit = re.fullmatch(r"([0-9.]+)([kMGTPEZY]?)", text).groups()  # type: ignore[union-attr]
    return int(float(number) * 1024 ** " kMGTPEZY".index(unit or " "))


def hashes_fetched() -> int:
    """Return how many bytes of hashes dm-verity fetches at a time, on this host."""
    return int(_HASHES.read_text())


def identity(device: str) -> str:
    """Return what tells a block device from others that may have its path; perhaps nothing."""
    folder = Path(f"/sys/dev/block/{number(device)}")
    for file in ("wwid", "device/wwid", "dm/uuid", "device/serial", "loop/backing_file"):
        with contextlib.suppress(OSError):
            found = (folder / file).read_text().strip()
            if found:
                return found
    return ""


def _statistics(device: str) -> list[int]:
    return [int(one) for one in Path(f"/sys/dev/block/{number(device)}/stat").read_text().split()]


def _loops() -> list[str]:
    """Return the names of all loop devices, also of those that show nothing."""
    return [name for name in os.listdir("/sys/block") if name.startswith("loop")]


def _file_of(loop: str) -> str:
    return _shown(loop, "backing_file").decode().rstrip("\n")


def _offset_of(loop: str) -> int:
    return int(_shown(loop, "offset"))


def _shown(loop: str, attribute: str) -> bytes:
    """Return what the kernel shows of a loop device. Each image has many, so with few calls."""
    descriptor = os.open(f"/sys/block/{loop}/loop/{attribute}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _PAGE)
    finally:
        os.close(descriptor)


def _target(link: Path) -> str | None:
    with contextlib.suppress(FileNotFoundError):
        return link.readlink().name
    return None
