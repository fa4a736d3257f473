"""What ``bench resume`` runs inside a node: ``-m bench.inside_resume VERB ...`` prints JSON.

say CONSOLE ORDER WORD  give a guest an order, and print its first line that begins with a word
resume IMAGE VM COUNT MOMENT
                        resume VMs from a moment on, and have each sum up what it remembers; print
                        for each when it ran, and when it answered, in seconds after the moment,
                        and the seconds from QEMU's start until it ran
touch IMAGE VM          the same with one VM on a device of which nothing is in memory, and then
                        ``touched``
touched IMAGE VM COUNT  print the numbers of the pages that resumed VMs touched and that are not all
                        zeros, the first of their memory being 0 and the device state behind it, and
                        the bytes that each VM read of its disk

Moments are seconds of the wall clock, which all nodes have from the host.
"""

import ctypes
import json
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from bench.inside import ask

_LONGEST = 600  # seconds for an answer


def say(console: str, order: str, word: str) -> str:
    """Talk to a guest."""
    with socket.socket(socket.AF_UNIX) as talk:
        talk.connect(console)
        talk.settimeout(_LONGEST)
        talk.sendall(order.encode() + b"\n")
        for line in talk.makefile("r", errors="replace"):
            if line.startswith(word):
                return line.strip()
    raise SystemExit(f"{console} closed before it answered {order!r}")


def resume(image: str, vm: str, count: str, moment: str) -> list[dict[str, float]]:
    """Resume VMs at once; each is asked as soon as it runs."""
    begin = float(moment)
    time.sleep(max(0.0, begin - time.time()))
    words = ["virtman", "resume", image, vm, "--count", count, "--json"]
    ran: list[tuple[float, float]] = []
    answers: list[Future[float]] = []
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process,
        ThreadPoolExecutor(int(count)) as pool,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            told = json.loads(line)
            ran.append((time.time() - begin, told["seconds"]))
            answers.append(pool.submit(_answered, told["vm"], begin))
    if process.returncode:
        raise SystemExit(process.returncode)
    return [
        {"ran": at, "qemu": qemu, "answered": one.result()}
        for (at, qemu), one in zip(ran, answers, strict=True)
    ]


def touch(image: str, vm: str) -> dict[str, Any]:
    """Have the page cache tell what one VM touches."""
    with open("/proc/sys/vm/drop_caches", "w") as drop:
        drop.write("3")
    resume(image, vm, "1", str(time.time()))
    return touched(image, vm, "1")


def touched(image: str, vm: str, count: str) -> dict[str, Any]:
    """Tell what VMs touched of an image, from when it came to this node."""
    record = ask("GET", f"/v1/suspended/{image}")
    device, at, size = record["device"], record["at"], record["hardware"]["memory"]
    size += -(-record["state"] // mmap.PAGESIZE) * mmap.PAGESIZE
    opened = os.open(device, os.O_RDONLY)
    try:
        pages = [
            page
            for page, held in enumerate(_held(opened, at, size))
            if held & 1 and any(os.pread(opened, mmap.PAGESIZE, at + page * mmap.PAGESIZE))
        ]
    finally:
        os.close(opened)
    names = [f"{vm}-{number}" for number in range(1, int(count) + 1)]
    return {"pages": pages, "disk_bytes": [_read_bytes(name) for name in names]}


def _read_bytes(vm: str) -> int:
    number = os.stat(ask("GET", f"/v1/instances/{vm}")["device"]).st_rdev
    with open(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat") as stat:
        return int(stat.read().split()[2]) * 512


def _answered(vm: str, begin: float) -> float:
    said = say(f"/run/virtman-guests/{vm}/serial0", f"recall {vm}", "VIRTMAN-MEMORY")
    if not said.startswith("VIRTMAN-MEMORY ok"):
        raise SystemExit(f"VM {vm} went on wrong: {said}")
    return time.time() - begin


def _held(opened: int, at: int, size: int) -> bytes:
    """Return a byte for each page of a device; its lowest bit tells whether it is in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    kinds = (ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
    libc.mmap.argtypes = (ctypes.c_void_p, *kinds)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    found = ctypes.create_string_buffer(size // mmap.PAGESIZE)
    begin = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, opened, at)
    if begin == ctypes.c_void_p(-1).value or libc.mincore(begin, size, found):
        raise SystemExit(f"the page cache cannot be seen: {os.strerror(ctypes.get_errno())}")
    return found.raw


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    verbs: dict[str, Callable[..., object]] = {
        "say": say,
        "resume": resume,
        "touch": touch,
        "touched": touched,
    }
    print(json.dumps(verbs[verb](*arguments)))
