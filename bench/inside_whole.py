"""What ``bench whole`` runs inside a node: ``python3 -m bench.inside_whole VERB ...`` prints JSON.

copy IMAGE START RATE   have a whole image copied from a moment on, at so many bytes a second or 0;
                        print when that began, when all was there, and when parents were let go of
read DEVICE FILE SEED   read blocks of 4 KiB at random until a file is there; print when each read
                        began, and how long it took
boot IMAGE VM PIECES SECONDS
                        create a VM and read that many pieces of 64 KiB in order, with pauses of so
                        many seconds in all; print its device, and the seconds until that was
                        there, and until the end
write DEVICE PIECES STEP
                        write random bytes over every STEP-th piece of a device, so many times

Moments are seconds of the wall clock, which all nodes have from the host.
"""

import json
import mmap
import os
import random
import sys
import time
from collections.abc import Callable

from bench.inside import ask

_LOOK = 0.1  # seconds
_PAUSE = 0.02  # seconds between two reads
_BLOCK = 4096
_PIECE = 65536


def copy(image: str, start: str, rate: str) -> object:
    """Have all of an image here."""
    time.sleep(max(0.0, float(start) - time.time()))
    begun = time.time()
    ask("POST", f"/v1/images/{image}/hydrate", {"rate": int(rate)})
    copied = None
    while True:
        state, verdict = _state(image)
        if state == "stopped":
            raise SystemExit(f"the copy of {image} stopped: {verdict}")
        if copied is None and state != "copying":
            copied = time.time()
        if state == "whole":
            return {"begun": begun, "copied": copied, "whole": time.time()}
        time.sleep(_LOOK)


def _state(image: str) -> tuple[str, str]:
    """Return how far the copy is; it is whole once the image is read from it."""
    shown = ask("GET", f"/v1/images/{image}")
    found = shown["copy"]
    if found["state"] == "whole" and not shown["local"]:
        return "checking", ""
    return found["state"], found["verdict"]


def read(device: str, file: str, seed: str) -> object:
    """Read as a VM does that needs a block now and then."""
    opened = os.open(device, os.O_RDONLY | os.O_DIRECT)
    blocks = os.lseek(opened, 0, os.SEEK_END) // _BLOCK
    memory, chosen = mmap.mmap(-1, _BLOCK), random.Random(int(seed))  # noqa: S311  # no secret
    taken = []
    while not os.path.exists(file):
        when, asked = time.time(), time.monotonic()
        os.preadv(opened, [memory], chosen.randrange(blocks) * _BLOCK)
        taken.append((when, time.monotonic() - asked))
        time.sleep(_PAUSE)
    return taken


def boot(image: str, vm: str, pieces: str, seconds: str) -> object:
    """Boot a VM as a guest does that reads in order, and thinks after each piece."""
    begun, pause = time.monotonic(), float(seconds) / int(pieces)
    device = ask("PUT", f"/v1/instances/{vm}", {"image": image})["device"]
    created = time.monotonic() - begun
    with open(device, "rb", buffering=0) as opened:
        for number in range(int(pieces)):
            os.pread(opened.fileno(), _PIECE, number * _PIECE)
            time.sleep(pause)
    return {"device": device, "created": created, "seconds": time.monotonic() - begun}


def write(device: str, pieces: str, step: str) -> object:
    """Write as a VM does whose data nothing can make fewer."""
    opened = os.open(device, os.O_WRONLY | os.O_DIRECT)
    memory = mmap.mmap(-1, _PIECE)
    for number in range(int(pieces)):
        memory[:] = os.urandom(_PIECE)
        os.pwritev(opened, [memory], number * int(step) * _PIECE)
    os.fsync(opened)
    return int(pieces)


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    verbs: dict[str, Callable[..., object]] = {
        "copy": copy,
        "read": read,
        "boot": boot,
        "write": write,
    }
    print(json.dumps(verbs[verb](*arguments)))
