"""Which parts of a VM's data have to be sent, and in what portions.

Pure. A map has a bit for each chunk of a device, the lowest bit of the first byte for chunk 0:
4 MiB for 2 TiB, whatever was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

CHUNK = 128 * 512
"""Bytes; what an exception store keeps at a time."""

PORTION = 1024 * 1024
"""Bytes that are sent at once, at most."""

_SOME = re.compile(rb"[^\0]+")


@dataclass(frozen=True)
class Portion:
    """Part of a device's changes.

    :ivar runs: offset and length of each, in bytes; ascending
    :ivar end: chunk before which all changes are in this portion or earlier ones
    """

    runs: tuple[tuple[int, int], ...]
    end: int

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(length for _, length in self.runs)


def chunks(size: int) -> int:
    """Return how many chunks a device of so many bytes has; the last may be a short one."""
    return -(-size // CHUNK)


def union(maps: Iterable[bytes]) -> bytes:
    """Return a map of what is in any of some maps of the same device; empty if there is none.

    Those from before it became longer are shorter.
    """
    whole, length = 0, 0
    for one in maps:
        whole |= int.from_bytes(one, "little")
        length = max(length, len(one))
    return whole.to_bytes(length, "little")


def mark(numbers: Iterable[int], count: int) -> bytes:
    """Return a map of some chunks of a device that has ``count``."""
    found = bytearray(-(-count // 8))
    for number in numbers:
        found[number // 8] |= 1 << number % 8
    return bytes(found)


def amount(changed: bytes, begin: int = 0) -> int:
    """Return how many bytes a map stands for, from chunk ``begin`` on; a short one counts whole."""
    return (int.from_bytes(changed, "little") >> begin).bit_count() * CHUNK


def portions(changed: bytes, size: int, begin: int = 0) -> Iterator[Portion]:
    """Divide what a map says of a device of ``size`` bytes, from chunk ``begin`` on."""
    runs: list[tuple[int, int]] = []
    taken = end = 0
    for number in numbers(changed, begin):
        if taken == PORTION:
            yield Portion(tuple(runs), end)
            runs, taken = [], 0
        offset = number * CHUNK
        length = min(CHUNK, size - offset)
        if runs and sum(runs[-1]) == offset:
            runs[-1] = (runs[-1][0], runs[-1][1] + length)
        else:
            runs.append((offset, length))
        taken += CHUNK
        end = number + 1
    if runs:
        yield Portion(tuple(runs), end)


def numbers(changed: bytes, begin: int = 0) -> Iterator[int]:
    """Return which chunks a map stands for, from chunk ``begin`` on, in order."""
    for found in _SOME.finditer(changed, begin // 8):
        for at in range(*found.span()):
            for bit in range(8):
                number = at * 8 + bit
                if changed[at] >> bit & 1 and number >= begin:
                    yield number
