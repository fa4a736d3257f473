"""Which parts of a file have data: the others are holes, whose zeros need not be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

_PIECE = 1024 * 1024


def pieces(descriptor: int, start: int, end: int) -> Iterator[bytes | int]:
    """Return what is between two places, in order: data, a MiB at most, and lengths of holes.

    Block devices, and file systems that do not know their holes, have none.

    :raises EOFError: if the file ends before ``end``
    """
    at = start
    while at < end:
        data = min(_seek(descriptor, at, os.SEEK_DATA, end), end)
        if data > at:
            yield data - at
        at = min(_seek(descriptor, data, os.SEEK_HOLE, end), end)
        while data < at:
            piece = os.pread(descriptor, min(_PIECE, at - data), data)
            if not piece:
                raise _ended(data, end)
            yield piece
            data += len(piece)


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
