"""How long the devices of an image are, and into which pieces it is cut."""

from __future__ import annotations

from virtman.errors import InvalidSize

SECTOR = 512
BLOCK = 4096
"""Bytes; the cache's block. An image's devices are whole blocks long, padded with zeros."""

HEADER = 1024 * 1024
"""Bytes of zeros before the regions of a stripe."""

REGION = 1024 * 1024
"""Bytes dealt to one stripe at a time; the same on every node, for parents serve no more."""

READERS = 4
"""Readers of a stripe. Each reads one block after another: what one of them asks for at a time
does not keep the line to a parent busy."""

FEW = 8
"""Stripes of which each has so many readers. Where there are more, one of each is enough."""

PIECE = 128 * 1024
"""Bytes of a region that one reader reads before the next one takes its turn."""

READ_AHEAD = 32 * 1024
"""Bytes that a reader, and who serves children, asks for before they are wanted."""


SPAN = 1 << 50
"""Bytes that all devices below a VM's own show, of which a VM sees as many as its disk has."""


def padded(size: int) -> int:
    """Return the length of an image's devices, in sectors."""
    sectors(size)
    return -(-size // BLOCK) * BLOCK // SECTOR


def sectors(size: int) -> int:
    """Return a size in bytes as sectors.

    :raises InvalidSize: if no block device can have that size
    """
    if size <= 0 or size % SECTOR:
        raise InvalidSize(f"size {size}: must be a positive multiple of {SECTOR} bytes")
    return size // SECTOR
