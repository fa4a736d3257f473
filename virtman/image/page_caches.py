"""The page caches of an image's exports: VMs and children read through these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from virtman.model import pieces, sizes
from virtman.stack import page_cache


@dataclass(frozen=True)
class PageCaches:
    """One image's; places are in bytes of the image.

    :ivar exports: paths of the stripes' devices
    :ivar size: bytes of the image, padded
    """

    exports: Sequence[str]
    size: int

    def lacks(self, start: int, length: int) -> bool:
        """Tell whether a part of one stripe is not held, or not all of it."""
        return not all(page_cache.held(self._export(start), pieces.in_export(start), length))

    def fetch(self, start: int, length: int) -> None:
        """Have a part of one stripe held; see ``page_cache.fetch``."""
        page_cache.fetch(self._export(start), pieces.in_export(start), length)

    def held(self, start: int, length: int) -> Iterator[bytes]:
        """Yield for each stripe a byte a page: 1 if it is held.

        Where a stripe has no region, its page cache has no pages.
        """
        length = min(length, self.size - start)
        regions = range(start, start + length, sizes.REGION)
        for stripe in {pieces.stripe(at, len(self.exports)) for at in regions}:
            yield page_cache.held(self.exports[stripe], pieces.in_export(start), length)

    def _export(self, offset: int) -> str:
        """Return the device of the stripe that a byte is in."""
        return self.exports[pieces.stripe(offset, len(self.exports))]
