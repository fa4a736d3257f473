"""Which pieces of an image its VMs read while they boot, and when (VMTorrent, 2.2.3).

The kernel counts the reads of VMs, by areas; which pieces of an area they were, the page caches
of the exports tell, through which VMs read. So one look costs as much as was read since the last
one, not as much as the image is long. An area is one piece up to 256 MiB, and 16 MiB at 40 GiB.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from virtman import sysfs
from virtman.image.attachment import Attachment
from virtman.model import pieces, sizes
from virtman.model.naming import Device
from virtman.stack.reads import Reads

LOOK = 0.5
"""Seconds between two looks: half of a profile's band."""

_LONGEST = 300.0
"""Seconds that are recorded at most: a server that works is no boot."""

_SETTLED, _NEW = 40.0, 0.01
"""A boot is over when less than this share of its pieces is new in so many seconds.

Guests pause: between the boot loader's reads and the kernel's first ones there were 20 s on a
processor that was emulated.
"""

_FETCHED = 0.5
"""Share of what VMs read that has to come from below the cache: else the cache boots them."""


class Recording:
    """One boot from an image that was just attached, of one VM or some at once.

    :ivar piece: bytes of one
    :ivar run: the pieces that were read, and seconds from the first read to theirs
    """

    def __init__(
        self,
        attachment: Attachment,
        reads: Reads,
        piece: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        name = attachment.info.name
        self.run: dict[int, float] = {}
        self._reads = reads
        self.piece = piece
        self._clock = clock
        self._caches = attachment.page_caches
        self._below = Device(name, "stripe").node
        self._begin = clock()
        self._first: float | None = None
        self._sectors: dict[int, int] = {}
        self._pages: dict[int, int] = {}
        self._lengths: deque[tuple[float, int]] = deque()

    def look(self) -> None:
        """Take notice of what was read since the last look."""
        now = self._clock()
        seen = self._reads.look()
        if seen and self._first is None:
            self._first = now
        for area, count in seen.items():
            if self._sectors.get(area) != count.sectors:
                self._sectors[area] = count.sectors
                self._look_at(area, now - (self._first or now))
        self._lengths.append((now, len(self.run)))
        while now - self._lengths[0][0] > _SETTLED:
            self._lengths.popleft()

    def is_over(self) -> bool:
        """Tell whether hardly anything new is read, or it takes too long for a boot."""
        now = self._clock()
        if now - self._begin >= _LONGEST:
            return True
        if self._first is None or now - self._first < _SETTLED:
            return False
        return len(self.run) - self._lengths[0][1] < _NEW * len(self.run)

    def counts(self) -> bool:
        """Tell whether VMs booted, and what they read had to be fetched."""
        fetched = sysfs.sectors_read(self._below) * sizes.SECTOR  # since the image came
        held = sum(self._pages.values()) * pieces.PAGE
        return bool(self.run) and fetched >= _FETCHED * held

    def _look_at(self, area: int, since: float) -> None:
        """Add the pieces of an area that were read."""
        length = self._reads.area
        wanted, self._pages[area] = self._caches.wanted(area * length, length, self.piece)
        for number in wanted:
            self.run.setdefault(number, since)
