"""What a guest read while it booted: its reads, with the pauses before them."""

import itertools
import re
from collections.abc import Collection, Iterator, Sequence

BLOCK = 4096
PIECE = 64 * 1024  # bytes
BEGIN = 5.0  # seconds until a recording that was asked for has begun
EVENTS = ("blk_co_preadv", "blk_co_pwritev")
"""Of QEMU, that tell what is read and written."""

_REQUEST = re.compile(r"@(\d+\.\d+):blk_co_p(read|write)v .* offset (\d+) bytes (\d+)")
Read = tuple[float, int, int]
"""Seconds after the one before, offset and length in bytes."""


def parse(lines: Sequence[str]) -> Iterator[Read]:
    """Yield what a guest read of its image, from what QEMU traced.

    What the guest wrote itself before is read from elsewhere, so that is left out.
    """
    written = set[int]()
    last: float | None = None
    pause = 0.0
    for line in lines:
        if match := _REQUEST.search(line):
            now, offset, length = float(match[1]), int(match[3]), int(match[4])
            pause += now - (now if last is None else last)
            last = now
            blocks = _touched([(0.0, offset, length)], BLOCK)
            if match[2] == "write":
                written |= blocks
                continue
            for first, end in _runs(blocks - written):
                begin = max(offset, first * BLOCK)
                yield pause, begin, min(offset + length, end * BLOCK) - begin
                pause = 0.0


def working_set(reads: Sequence[Read]) -> int:
    """Return the bytes that are read at least once, in whole blocks."""
    return len(_touched(reads, BLOCK)) * BLOCK


def covered(reads: Sequence[Read], pieces: Collection[int], size: int) -> float:
    """Return the share of the blocks which are in these pieces of so many bytes."""
    touched, those = _touched(reads, BLOCK), set(pieces)
    return sum(number * BLOCK // size in those for number in touched) / len(touched)


def floor(reads: Sequence[Read], bytes_per_s: int) -> float:
    """Return the seconds of a boot that has a link of its own, on which its reads come in order.

    Each read waits until all up to it has come. What comes last is often followed by a pause.
    """
    now, there = 0.0, set[int]()
    for read in reads:
        there |= _touched([read], BLOCK)
        come = len(there) * BLOCK / bytes_per_s if bytes_per_s else 0.0
        now = max(now + read[0], come)
    return now


def untouched(reads: Sequence[Read], size: int) -> list[Read]:
    """Return reads of as many bytes, but of none of the same pieces; in order, without pauses.

    :param size: bytes of the image; there may be fewer pieces left
    """
    touched = _touched(reads, PIECE)
    free = (number for number in range(size // PIECE) if number not in touched)
    taken = itertools.islice(free, working_set(reads) // PIECE)
    pauses = itertools.chain([BEGIN], itertools.repeat(0.0))
    return [(pause, number * PIECE, PIECE) for pause, number in zip(pauses, taken, strict=False)]


def _touched(reads: Sequence[Read], size: int) -> set[int]:
    """Return the numbers of all blocks of a size of which something is read."""
    found: set[int] = set()
    for _, offset, length in reads:
        found.update(range(offset // size, -(-(offset + length) // size)))
    return found


def _runs(numbers: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the first number of each run, and the one behind its last."""
    for number in sorted(numbers):
        if number - 1 not in numbers:
            first = number
        if number + 1 not in numbers:
            yield first, number + 1
