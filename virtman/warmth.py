"""Whether VMs read an image through memory, or past it from the cache.

While an image is cold all reads of a node meet in the page cache, so that a block that several
want at once is fetched once. Once nearly all comes from the local cache, that costs more than it
saves: one thread a stripe does all the reads. VMs then read the image itself, by a new table of
the device that they start from::

    cold    vm - store - origin - readers - exports - image
    warm    vm - store - origin - image

What is read past memory and is not cached is fetched in small pieces, so an image that becomes
cold again, as other parts of it are wanted, is read through memory again.
"""

from __future__ import annotations

_ENOUGH = 4 * 1024 * 1024
_WARM, _COLD = 0.02, 0.1


class Warmth:
    """What two counters say of one image."""

    def __init__(self) -> None:
        self.is_warm = False
        self._read = self._fetched = 0

    def look(self, read: int, fetched: int) -> bool:
        """Tell whether the image is warm; where little was read since it was last, as it was.

        :param read: bytes that were ever read of the image's device
        :param fetched: those of them that parents sent
        """
        reads, misses = read - self._read, fetched - self._fetched
        if reads < 0 or misses < 0:  # made anew
            self._read, self._fetched = read, fetched
        elif reads >= _ENOUGH:
            self._read, self._fetched = read, fetched
            self.is_warm = misses < reads * (_COLD if self.is_warm else _WARM)
        return self.is_warm
