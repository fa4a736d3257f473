"""Where the pieces of an image are, and which of them were read, as the page caches show it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from virtman.model.sizes import HEADER, REGION

PAGE = 4096

_RUN = re.compile(rb"\x01+")


def stripe(offset: int, stripes: int) -> int:
    """Return the stripe that a byte of the image is in."""
    return offset // REGION % stripes


def in_export(offset: int) -> int:
    """Return where a byte of the image is in the export of its stripe."""
    return HEADER + offset


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
