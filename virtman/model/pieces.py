"""Where the pieces of an image are, and which of them were read, as the page caches show it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from virtman.model.sizes import HEADER, REGION

PAGE = 4096

Part = tuple[int, int]
"""First byte, and bytes."""

_RUN = re.compile(rb"\x01+")


def stripe(offset: int, stripes: int) -> int:
    """Return the stripe that a byte of the image is in."""
    return offset // REGION % stripes


def in_export(offset: int) -> int:
    """Return where a byte of the image is in the export of its stripe."""
    return HEADER + offset


def parts(numbers: Iterable[int], piece: int, size: int, longest: int) -> list[Part]:
    """Return where pieces are: what lies behind each other as one part, up to some length.

    :param numbers: of pieces, in the order in which they are to be read
    :param piece: bytes of one; the last of the image may be shorter
    :param size: bytes of the image
    :param longest: bytes of a part at most
    """
    found: list[Part] = []
    for number in numbers:
        end = min((number + 1) * piece, size)
        for at in range(number * piece, end, longest):
            start, length = found[-1] if found else (0, 0)
            more = min(end - at, longest)
            if start + length == at and 0 < length <= longest - more:
                found[-1] = start, length + more
            else:
                found.append((at, more))
    return found


def numbers(of: Iterable[Part], piece: int) -> list[int]:
    """Return the pieces that are in parts, ascending."""
    found = {
        number
        for start, length in of
        for number in range(start // piece, -(-(start + length) // piece))
    }
    return sorted(found)


def wanted(held: bytes, piece: int, ahead: int) -> Iterator[int]:
    """Yield the pieces of which somebody wanted something, counted from the first page.

    Pages at the end of a run may have come by read-ahead alone, but its first page came because
    somebody wanted it. So a piece that only guessed pages reach is left out.

    :param held: for each page, 1 if the page cache holds it
    :param piece: bytes of one, in whole pages
    :param ahead: bytes that the page cache reads ahead
    """
    length = piece // PAGE
    # the kernel is at most twice the read-ahead before whoever reads in order, less a page
    guessed = max(2 * ahead // PAGE - 1, 0)
    for run in _RUN.finditer(held):
        last = max(run.start(), run.end() - guessed - 1)
        yield from range(run.start() // length, last // length + 1)
