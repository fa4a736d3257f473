"""What a copy of a whole image consists of, and what of it is still to come.

::

    0                        image      leaves_at             length
    |  blocks of the image   |..........|  leaves of its tree  |
    |piece|piece|piece ...              |piece|piece ...

A copy is one sparse file. The leaves come first: they tell which blocks are zeros, and these are
neither fetched nor stored. Then come the image's pieces in order, as on all nodes that copy: so
each is fetched once, on all levels of the trees at about the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from virtman.model import hashtree, pieces, sizes
from virtman.model.hashtree import BLOCK, DIGEST

PIECE = 64 * 1024
"""Bytes of which it is known whether they are there."""

_TOGETHER = 1024 * 1024
"""Bytes of digests that are read at once, of 128 MiB of the image: a large image has many."""


@dataclass(frozen=True)
class Layout:
    """Where what is in a copy; all in bytes.

    :ivar image: length of the image's devices
    :ivar leaves: length of the leaves
    """

    image: int
    leaves: int

    @classmethod
    def of(cls, size: int) -> Layout:
        """Return that of an image of so many bytes, which has a hash tree."""
        return cls(sizes.padded(size) * sizes.SECTOR, hashtree.leaves(size))

    @property
    def leaves_at(self) -> int:
        """Where the leaves begin."""
        return -(-self.image // PIECE) * PIECE

    @property
    def length(self) -> int:
        """Of all."""
        return self.leaves_at + self.leaves

    @property
    def count(self) -> int:
        """How many pieces there are."""
        return -(-self.length // PIECE)

    @property
    def first_of_leaves(self) -> int:
        """Number of the first piece of the leaves."""
        return self.leaves_at // PIECE

    def of_stripe(self, stripe: int, stripes: int) -> Iterator[int]:
        """Yield the image's pieces that are in a stripe, in order."""
        for number in range(self.first_of_leaves):
            if pieces.stripe(number * PIECE, stripes) == stripe:
                yield number

    def part(self, number: int) -> tuple[int, int]:
        """Return offset and length of a piece; the last one of the image may be short."""
        start = number * PIECE
        end = self.image if start < self.image else self.length
        return start, min(PIECE, end - start)

    def digests(self, number: int) -> tuple[int, int]:
        """Return where the digests of a piece of the image are: offset and length."""
        start, length = self.part(number)
        return self.leaves_at + start // BLOCK * DIGEST, length // BLOCK * DIGEST

    def all_digests(self) -> Iterator[tuple[int, int]]:
        """Yield where the digests of all blocks are, in parts: offset and length."""
        end = self.leaves_at + self.image // BLOCK * DIGEST
        for start in range(self.leaves_at, end, _TOGETHER):
            yield start, min(_TOGETHER, end - start)


@dataclass(frozen=True)
class Copy:
    """A copy of an image, as it is written down.

    :ivar mark: tells the image from others that had its name
    :ivar size: bytes of the image
    :ivar path: of the file
    :ivar rate: bytes/s at which it may be fetched; 0 for no limit of its own
    :ivar needs: bytes that it takes on the disk; 0 until the leaves have told
    :ivar whole: whether all of it is there, and was found right
    """

    image: str
    mark: str
    size: int
    path: str
    rate: int = 0
    needs: int = 0
    whole: bool = False

    @property
    def layout(self) -> Layout:
        """Where what is in it."""
        return Layout.of(self.size)


class Held:
    """Which pieces are there: a bit for each, the lowest of the first byte is piece 0."""

    def __init__(self, count: int, bits: bytes = b"") -> None:
        length = -(-count // 8)
        self._bits = bytearray(bits[:length].ljust(length, b"\0"))

    def __contains__(self, number: int) -> bool:
        """Tell whether a piece is there."""
        return bool(self._bits[number // 8] >> number % 8 & 1)

    def add(self, numbers: Iterable[int]) -> None:
        """Take notice that these are there."""
        for number in numbers:
            self._bits[number // 8] |= 1 << number % 8

    def drop(self, numbers: Iterable[int]) -> None:
        """Take notice that these are wrong, or not there."""
        for number in numbers:
            self._bits[number // 8] &= ~(1 << number % 8)

    def count(self) -> int:
        """Return how many are there."""
        return int.from_bytes(self._bits).bit_count()

    def encoded(self) -> bytes:
        """Return what makes the same again."""
        return bytes(self._bits)


def complete(layout: Layout, held: Held, stripes: int) -> tuple[int, ...]:
    """Return the stripes of which all pieces are there.

    Pieces come in order, so one that lacks is found near the end.
    """
    last = layout.first_of_leaves - 1
    return tuple(
        stripe
        for stripe in range(stripes)
        if all(
            number in held
            for number in range(last, -1, -1)
            if pieces.stripe(number * PIECE, stripes) == stripe
        )
    )


def stored(digests: Iterable[bytes], zeros: bytes) -> int:
    """Return how many bytes those blocks have that are not zeros.

    :param digests: of all blocks, in parts
    :param zeros: digest of a block of zeros
    """
    return sum((len(part) // DIGEST - part.count(zeros)) * BLOCK for part in digests)


def runs(digests: bytes, zeros: bytes) -> list[tuple[int, int]]:
    """Return offset and length of each run of blocks that are not zeros.

    :param digests: of the blocks
    :param zeros: digest of a block of zeros
    """
    found: list[tuple[int, int]] = []
    for at in range(0, len(digests) // DIGEST):
        if digests[at * DIGEST :][:DIGEST] == zeros:
            continue
        start = at * BLOCK
        if found and sum(found[-1]) == start:
            found[-1] = (found[-1][0], found[-1][1] + BLOCK)
        else:
            found.append((start, BLOCK))
    return found
