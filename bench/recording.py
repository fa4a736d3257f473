"""Which pieces of an image programs read, and when: recorded once, for policies to be tried on.

A workload is a real program in an image of its own. Nothing of it is in memory when it begins. The
page cache of the image's file tells what is read::

    program, in a name space of its own
      | reads files; its kernel reads ahead, as a guest's does
    ext4, read-only
      |
    loop device, by a descriptor with FADV_RANDOM: it reads what it is asked for, no more
      | page cache: looked at with mincore, every quarter of a second
    disk.img
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab import rootfs
from lab.errors import BuildFailed, LabError
from planning.replay import traces
from planning.replay.traces import Trace

FOLDER = Path(__file__).with_name("workloads")
WORKLOADS = ("web", "build", "make", "database")
PIECE = 64 * 1024  # bytes
LOOK = 0.25
"""Seconds between two looks at the page cache."""

LONGEST = 300.0
"""Seconds that a run may take."""

_SIZE = "2G"
_libc = ctypes.CDLL(None, use_errno=True)
_GET_FREE, _CONFIGURE = 0x4C82, 0x4C0A  # linux/loop.h
_READ_ONLY, _AUTOCLEAR = 1, 4


class RunFailed(LabError):
    """A program that was recorded failed, or took too long."""


def record(folder: Path, workloads: Sequence[str], runs: int) -> list[Trace]:
    """Record runs of workloads, all at the same time, and write a file for each.

    :raises BuildFailed: if the image cannot be built
    :raises RunFailed: if a program fails
    """
    image = _image()

    def work(workload: str) -> Trace:
        found = _record(image, workload, runs)
        traces.write(folder / f"{workload}.json", found)
        return found

    with ThreadPoolExecutor(len(workloads)) as pool:
        return list(pool.map(work, workloads))


def watch(disk: Path, enter: Sequence[str | Path]) -> dict[int, float]:
    """Run a program that reads what is on a disk, of which nothing is in memory at its begin.

    :param disk: an image
    :param enter: the program; the loop device of the image is added to its words
    :returns: pieces, and seconds since the begin to their first read
    :raises RunFailed: if the program fails
    """
    with _loop(disk) as (device, descriptor), tempfile.TemporaryFile() as said:
        os.fsync(descriptor)  # what is still to be written stays in memory
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        program = subprocess.Popen(
            [*enter, device], stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        try:
            found = _looked(program, descriptor)
        finally:
            program.kill()
            program.wait()
        if program.returncode:
            said.seek(0)
            raise RunFailed(f"{enter[0]} ended so:\n{said.read().decode()[-2000:]}")
    return found


def _record(image: Path, workload: str, runs: int) -> Trace:
    unshare = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")
    with tempfile.TemporaryDirectory(prefix="traces-") as folder:
        disk, tree = Path(folder, "disk.img"), Path(folder, "tree")
        shutil.copyfile(image, disk)  # others look at their own
        tree.mkdir()
        found = [
            watch(disk, [*unshare, FOLDER / "enter", tree, workload, str(seed)])
            for seed in range(runs)
        ]
    return Trace(workload, PIECE, tuple(found))


def _looked(program: subprocess.Popen[bytes], descriptor: int) -> dict[int, float]:
    """Return what is in memory of a file once a program has ended, and since when."""
    found: dict[int, float] = {}
    width, begin = PIECE // mmap.PAGESIZE, time.monotonic()
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY) as memory:
        held = ctypes.create_string_buffer(-(-len(memory) // mmap.PAGESIZE))
        while True:
            now = time.monotonic() - begin
            is_over = program.poll() is not None or now > LONGEST
            _mincore(memory, held)
            pages = held.raw
            page = pages.find(1)
            while page >= 0:
                found.setdefault(page // width, now)
                page = pages.find(1, (page // width + 1) * width)
            if is_over:
                return found
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(LOOK)


def _mincore(memory: mmap.mmap, held: ctypes.Array[ctypes.c_char]) -> None:
    """Note for each page of a file whether it is in memory; none is read, nor touched."""
    begin = ctypes.c_char.from_buffer(memory)
    if _libc.mincore(ctypes.byref(begin), ctypes.c_size_t(len(memory)), held):
        raise OSError(ctypes.get_errno(), "mincore")


@contextlib.contextmanager
def _loop(disk: Path) -> Iterator[tuple[str, int]]:
    """Yield a loop device that reads a file, not ahead, and its descriptor of the file.

    The device goes with its last user, whatever becomes of this process.
    """
    with open(disk, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        # struct loop_config: descriptor, block size, loop_info64 with its flags, nothing more
        info = struct.pack("52xI176x", _READ_ONLY | _AUTOCLEAR)
        config = struct.pack("II", file.fileno(), 0) + info + bytes(64)
        while True:
            with open("/dev/loop-control", "rb") as control:
                number = fcntl.ioctl(control, _GET_FREE)
            with open(f"/dev/loop{number}", "rb") as device:
                try:
                    fcntl.ioctl(device, _CONFIGURE, config)
                except OSError as err:
                    if err.errno == errno.EBUSY:
                        continue  # somebody else was faster
                    raise
                yield device.name, file.fileno()
                return


def _image() -> Path:
    """Return the image that all workloads run in: built once for each recipe."""
    recipe = {name: (FOLDER / name).read_bytes() for name in ("packages.txt", "shop.py")}
    folder = rootfs.cache_folder() / f"workloads-{rootfs.recipe_key(recipe)}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="workloads-", dir=folder.parent) as temp:
            _build(Path(temp), rootfs.packages(recipe["packages.txt"].decode()), recipe["shop.py"])
            Path(temp, "result").rename(folder)
    return folder / "disk.img"


def _build(temp: Path, packages: list[str], shop: bytes) -> None:
    root, result = temp / "root", temp / "result"
    result.mkdir()
    _do(
        *("unshare", "--mount"),  # what it mounts goes with it, however it ends
        *("mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(packages)}"),
        *("--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"),
        *("bookworm", root),
    )
    _do("chroot", root, "python3", "-", "/srv/shop.db", told=shop)
    _do(
        *("mke2fs", "-q", "-t", "ext4", "-m", "0", "-O", "^has_journal"),
        *("-E", "lazy_itable_init=0", "-d", root, result / "disk.img", _SIZE),
    )


def _do(*words: str | Path, told: bytes = b"") -> None:
    done = subprocess.run(words, input=told, capture_output=True, check=False)
    if done.returncode:
        raise BuildFailed(f"{words[0]} ended so:\n{done.stderr.decode()[-2000:]}")
