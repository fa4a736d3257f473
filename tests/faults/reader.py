"""Reads a VM's device in a node, at a steady pace, and holds it against the image.

python3 reader.py DEVICE IMAGE FIRST LAST RATE STOP

Reads single blocks between two MiB in an order of its own, each once and then all over again,
past the page cache, until there is a file STOP. Prints a line for each read that says more than
that all is well: what it was, when it began, and how many seconds it took; else one a second.
"""

import mmap
import os
import random
import sys
import time

BLOCK = 4096
SLOW = 0.5  # seconds; a test node that waits for its processor is not slow yet


def main(device, image, first, last, rate, stop):
    """Read until told to stop; the last line has the number of reads and the longest."""
    blocks = list(range(int(first) * 256, int(last) * 256))
    random.Random(1).shuffle(blocks)
    pause, count, longest, said = 1 / float(rate), 0, 0.0, 0.0
    disk = os.open(device, os.O_RDONLY | os.O_DIRECT)
    expected, memory = os.open(image, os.O_RDONLY), mmap.mmap(-1, BLOCK)
    while not os.path.exists(stop):
        at = blocks[count % len(blocks)] * BLOCK
        count += 1
        began, now = time.time(), time.monotonic()
        try:
            os.preadv(disk, [memory], at)
            took = time.monotonic() - now
            right = memory[:] == os.pread(expected, BLOCK, at)
            what = ("slow" if took > SLOW else "well") if right else "wrong"
        except OSError:
            took, what = time.monotonic() - now, "error"
        longest = max(longest, took)
        if what != "well" or now - said > 1:
            print(what, began, took, flush=True)
            said = now
        time.sleep(pause)
    print("reads", count, longest, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
