"""Which parts of a file have data: the others are holes, whose zeros need not be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator

_PIECE = 1024 * 1024


Runs = Iterable[tuple[int, int]]
"""Where there are data: begin and end of each run, in order."""


def runs(descriptor: int, start: int, end: int) -> Runs:
    """Return where a file has data between two places.

    Block devices, and file systems that do not know their holes, have data everywhere.

    :raises EOFError: if the file ends before ``end``
    """
    at = start
    while at < end:
        data = min(_seek(descriptor, at, os.SEEK_DATA, end), end)
        at = min(_seek(descriptor, data, os.SEEK_HOLE, end), end)
        if data < at:
            yield data, at


def pieces(descriptor: int, found: Runs, start: int, end: int) -> Iterator[bytes | int]:
    """Return what is between two places, in order: data, a MiB at most, and lengths of holes.

    :raises EOFError: if the file ends in a run
    """
    at = start
    for data, after in found:
        if data > at:
            yield data - at
        at = data
        while at < after:
            piece = os.pread(descriptor, min(_PIECE, after - at), at)
            if not piece:
                raise _ended(at, end)
            yield piece
            at += len(piece)
    if at < end:
        yield end - at


def _seek(descriptor: int, at: int, whence: int, end: int) -> int:
    """Return where the next data begin, or the next hole."""
    try:
        return os.lseek(descriptor, at, whence)
    except OSError as err:
        if err.errno == errno.EINVAL:  # nobody knows
            return at if whence == os.SEEK_DATA else end
        if err.errno != errno.ENXIO:
            raise
    size = os.fstat(descriptor).st_size
    if size < end:
        raise _ended(size, end)
    return end


def _ended(size: int, end: int) -> EOFError:
    return EOFError(f"the file ends after {size} of {end} bytes")
