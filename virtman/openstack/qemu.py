"""qemu-img, held short: what it reads is not trusted.

It is told the format, and never guesses it. What it takes of the processor and of memory is
bounded, as by nova, and it ends with the process that started it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from virtman.errors import VirtmanError
from virtman.openstack.glance import Image
from virtman.openstack.inspection import CONVERTED, ImageUnusable
from virtman.openstack.room import NoRoom

_GIB = 1024**3
_ADDRESS_SPACE = _GIB
# Seconds of the processor; the second is for each GiB of a disk, should all of it be compressed.
_SECONDS, _PER_GIB = 30, 60
_PERCENT = re.compile(rb" *\(([0-9.]+)/100%\)\r?")
_SAID = 4096
# What "qemu-img check" ends with.
_CORRUPT, _LEAKS, _NO_CHECK = 2, 3, 63
# Formats of which it does not see that a part is missing.
_CHECKED_IN_PART = ("vdi",)
_NO_PROGRAM = (126, 127)
_KILLED = (-signal.SIGKILL, -signal.SIGTERM)
_FULL = ("No space left on device", "Disk quota exceeded")


def disk_size(image: Image, file: Path) -> int:
    """Return how long the disk in a file is to qemu, which does not look at other files for it.

    :raises ImageUnusable: if the disk is not all in the file, or qemu does not understand it
    """
    told: dict[str, Any] = json.loads(_answer(image, "info", *_source(image, file)))
    # oslo.utils does not know each way in which a format names its parent, such as that of VMDK.
    specific = told.get("format-specific", {}).get("data", {})
    for name in (told.get("backing-filename"), specific.get("data-file")):
        if name:
            raise ImageUnusable(
                f"image {image.id} is not safe to use: it needs the file {name!r}; convert it to "
                "a file that is complete by itself, and upload that"
            )
    return int(told["virtual-size"])


def check(image: Image, file: Path) -> None:
    """See that all of the disk is in a file, as its tables say: what is beyond its end is zeros.

    To be called after ``disk_size``, as qemu may open the files that the disk needs besides.

    :raises ImageUnusable: if it is not, or the tables contradict each other
    """
    done = _run("check", *_source(image, file))
    if done.returncode == _CORRUPT:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise _damaged(image, said)
    if done.returncode not in (0, _LEAKS, _NO_CHECK):
        raise _failure(image, done.returncode, done.stderr)
    if image.disk_format in _CHECKED_IN_PART:
        extents: list[dict[str, Any]] = json.loads(_answer(image, "map", *_source(image, file)))
        end = max((one["offset"] + one["length"] for one in extents if "offset" in one), default=0)
        if end > file.stat().st_size:
            raise _damaged(image, f"its tables name {end} bytes, and it has fewer")


def data_size(image: Image, file: Path) -> int:
    """Return how much of the disk in a file has data, which may be zeros; a little more at most.

    Formats that cannot tell have data everywhere.
    """
    # Of a raw file qemu says that it takes all of its length. A qcow2 file of the same data has a
    # few tables besides.
    told = json.loads(_answer(image, "measure", "-O", "qcow2", *_source(image, file)))
    return int(told["required"])


def convert(
    image: Image, file: Path, into: Path, start: int, end: int, progress: Callable[[int], None]
) -> None:
    """Write a part of the disk in a file to the same place of another one, as raw bytes.

    Zeros are left out.

    :param into: a file that has holes there
    :param start: a multiple of 512, as ``end`` is
    :param end: at most what ``disk_size`` said, and how long ``into`` is
    :param progress: hears up to where it is done
    :raises NoRoom: if the file system is full
    """
    size = end - start
    seconds = _SECONDS + _PER_GIB * size // _GIB
    window = f"driver=raw,offset={start},size={size}"
    disk = f"{window},file.driver={CONVERTED[image.disk_format]},{_file('file.file', file)}"
    command = _limited(
        *(seconds, "convert", "-p", "-n", "--target-is-zero", "--image-opts", disk),
        *("--target-image-opts", f"{window},{_file('file', into)}"),
    )
    said = b""
    with subprocess.Popen(
        command, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment()
    ) as process:
        assert process.stdout
        try:
            while part := process.stdout.read(_SAID):
                said = (said + part)[-_SAID:]
                if percents := _PERCENT.findall(said):
                    progress(start + int(size * float(percents[-1]) / 100))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise _failure(image, process.returncode, _PERCENT.sub(b"", said))


def _answer(image: Image, word: str, *arguments: str) -> bytes:
    done = _run(word, *arguments)
    if done.returncode:
        raise _failure(image, done.returncode, done.stderr)
    return done.stdout


def _run(word: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = _limited(_SECONDS, word, "--output=json", *arguments)
    return subprocess.run(command, capture_output=True, env=_environment(), check=False)


def _source(image: Image, file: Path) -> tuple[str, ...]:
    # A name that begins with a slash is never taken for that of a protocol.
    return ("-f", CONVERTED[image.disk_format], str(file.absolute()))


def _file(node: str, file: Path) -> str:
    """Return the words that say that a node of qemu's is a file."""
    name = str(file.absolute()).replace(",", ",,")
    return f"{node}.driver=file,{node}.filename={name}"


def _limited(seconds: int, *arguments: str) -> list[str]:
    # A hard limit kills without a word, and so comes a moment later.
    limits = (f"--as={_ADDRESS_SPACE}", f"--cpu={seconds}:{seconds + 5}")
    return ["setpriv", "--pdeathsig", "KILL", "prlimit", *limits, "qemu-img", *arguments]


def _environment() -> dict[str, str]:
    # Messages are told apart by their text. Threads that each had a heap of their own would take
    # all of the address space, and the next one could not start.
    return {**os.environ, "LC_ALL": "C", "MALLOC_ARENA_MAX": "1"}


def _damaged(image: Image, said: str) -> ImageUnusable:
    return ImageUnusable(
        f"image {image.id} is damaged, or not all there: {said}; check the file that was uploaded "
        "with qemu-img check"
    )


def _failure(image: Image, status: int, output: bytes) -> VirtmanError:
    said = output.decode(errors="replace").strip()
    if any(reason in said for reason in _FULL):
        return NoRoom(f"image {image.id}: {said}; make room")
    if status in _NO_PROGRAM:
        return VirtmanError(f"qemu-img does not start: {said}; install Debian's qemu-utils")
    if status in _KILLED:
        return VirtmanError(f"image {image.id}: qemu-img was killed; try again")
    if "error while writing" in said:
        return VirtmanError(f"image {image.id}: {said}; look at the kernel's log for the disk")
    if status == -signal.SIGXCPU:
        said = "it takes too much of the processor"
    return ImageUnusable(
        f"image {image.id} cannot be converted: {said or f'qemu-img ended with {status}'}; "
        "check the file that was uploaded with qemu-img check"
    )
