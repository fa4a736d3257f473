"""The page caches of an image's exports: VMs and children read through these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virtman.model import pieces, sizes
from virtman.model.pieces import Part
from virtman.stack import page_cache


@dataclass(frozen=True)
class PageCaches:
    """One image's; places are in bytes of the image.

    :ivar exports: paths of the stripes' devices
    :ivar size: bytes of the image, padded
    :ivar ahead: bytes that they read ahead
    """

    exports: Sequence[str]
    size: int
    ahead: int

    def lacking(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Return those parts of one stripe that are not held, or not all of them."""
        if not parts:
            return ()
        held = page_cache.held(*self._of_export(parts))
        return [part for part, pages in zip(parts, held, strict=True) if not all(pages)]

    def fetch(self, parts: Sequence[Part]) -> None:
        """Have parts of one stripe held; see ``page_cache.fetch``."""
        page_cache.fetch(*self._of_export(parts))

    def read(self, start: int, length: int) -> bytes:
        """Return a part of one stripe, which is held then."""
        return page_cache.read(self._export(start), pieces.in_export(start), length)

    def read_leaves(self, start: int, length: int) -> bytes:
        """Return a part of the leaves of the hash tree, which lie behind the image."""
        return page_cache.read(self.exports[0], pieces.in_export(self.size + start), length)

    def forget(self, start: int, length: int) -> None:
        """Have a part of one stripe held no more."""
        page_cache.forget(self._export(start), pieces.in_export(start), length)

    def wanted(self, start: int, length: int, piece: int) -> tuple[set[int], int]:
        """Return the pieces of a part that are held for their own sake, and how many pages are.

        These are the pieces of which somebody wanted something, and those that were fetched.
        Where a stripe has no region, its page cache has no pages.
        """
        length = min(length, self.size - start)
        regions = range(start, start + length, sizes.REGION)
        found, pages = set[int](), 0
        for stripe in {pieces.stripe(at, len(self.exports)) for at in regions}:
            (held,) = page_cache.held(self.exports[stripe], [(pieces.in_export(start), length)])
            numbers = pieces.wanted(held, piece, self.ahead)
            found.update(start // piece + number for number in numbers)
            pages += held.count(1)
        return found, pages

    def _of_export(self, parts: Sequence[Part]) -> tuple[str, Sequence[Part]]:
        """Return the device of the stripe that has parts, and where they are there."""
        there = [(pieces.in_export(start), length) for start, length in parts]
        return self._export(parts[0][0]), there

    def _export(self, offset: int) -> str:
        """Return the device of the stripe that a byte is in."""
        return self.exports[pieces.stripe(offset, len(self.exports))]
