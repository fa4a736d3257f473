"""Which hashes tell that the blocks of an image are right: the tree of dm-verity.

::

    root hash                    at Volt; all else follows from it
    upper    ┌ level 2 ┐         at Volt; a small file on each node
             ├ level 1 ┴──┐
    leaves   ├ level 0 ───┴───────────────┐    served behind the image, read when needed
    image    └ blocks ────────────────────┘

A block is 4 KiB. A block of a level holds the hashes of 128 blocks of the level below, so
the leaves are 1/128 of the image and all above them 1/128 of that. The leaves may be long;
they are blocks whose hashes are in the upper levels, so that a node can verify them like an
image, with the same root, and hand on only leaves that are right.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO

BLOCK = 4096
DIGEST = 32
_FANNED = 128

SALT = hashlib.sha256(b"virtman").hexdigest()
"""Of all images: so what is the same in two of them has the same leaves."""


@dataclass(frozen=True)
class HashTree:
    """What stands for an image's content: root hash and salt, in hexadecimal digits."""

    root: str
    salt: str


def levels(size: int) -> list[int]:
    """Return how many blocks each level has for an image of so many bytes, leaves first."""
    counts, blocks = [], -(-size // BLOCK)
    while blocks > 1:
        blocks = -(-blocks // _FANNED)
        counts.append(blocks)
    return counts


def leaves(size: int) -> int:
    """Return how many bytes the leaves have."""
    return levels(size)[0] * BLOCK


def has_tree(size: int) -> bool:
    """Tell whether an image is long enough that its tree has leaves and upper levels."""
    return len(levels(size)) > 1


class Builder:
    """Hashes an image that comes in order, in pieces of any length.

    :param into: where the leaves go, a block as soon as it is known
    """

    def __init__(self, salt: str, into: BinaryIO) -> None:
        self.salt = salt
        self.into = into
        self._begun = b""  # the begin of a block
        self._leaf = bytearray()  # less than a block of leaves
        self._above = bytearray()

    def add(self, data: bytes) -> None:
        """Go on with these bytes."""
        data = self._begun + data
        whole = len(data) - len(data) % BLOCK
        self._begun = data[whole:]
        self._put(_digests(data[:whole], self.salt))

    def add_zeros(self, size: int) -> None:
        """Go on with so many zeros, which need not be there to be hashed."""
        head = min(size, -len(self._begun) % BLOCK)
        self.add(bytes(head))
        blocks, rest = divmod(size - head, BLOCK)
        zeros = digest_of_zeros(self.salt)
        for done in range(0, blocks, _FANNED):
            self._put(zeros * min(_FANNED, blocks - done))
        self.add(bytes(rest))

    def end(self) -> tuple[HashTree, bytes]:
        """Return the root and the upper levels; all leaves are written then."""
        self._put(_digests(_padded(self._begun), self.salt))
        self._put(bytes(-len(self._leaf) % BLOCK))
        digests, upper = self._above, list[bytes]()
        while len(digests) > DIGEST:
            upper.append(bytes(_padded(digests)))
            digests = _digests(upper[-1], self.salt)
        return HashTree(digests.hex(), self.salt), b"".join(reversed(upper))

    def _put(self, digests: bytes | bytearray) -> None:
        self._leaf += digests
        whole = len(self._leaf) - len(self._leaf) % BLOCK
        leaves = self._leaf[:whole]
        del self._leaf[:whole]
        self.into.write(leaves)
        self._above += _digests(leaves, self.salt)


def fits(upper: bytes, size: int, tree: HashTree) -> bool:
    """Tell whether these are the upper levels of the tree with this root."""
    counts = levels(size)[:0:-1]
    if len(upper) != sum(counts) * BLOCK:
        return False
    expected, start = bytes.fromhex(tree.root), 0
    for count in counts:
        level = upper[start : start + count * BLOCK]
        digests = _digests(level, tree.salt)
        if digests != expected[: len(digests)] or any(expected[len(digests) :]):
            return False
        expected, start = level, start + count * BLOCK
    return True


@lru_cache(1)
def digest_of_zeros(salt: str) -> bytes:
    """Return the digest of a block of zeros."""
    return _digest(hashlib.sha256(bytes.fromhex(salt)), bytes(BLOCK))


def lowest(upper: bytes, size: int) -> bytes:
    """Return of the upper levels of an image's tree the one by which its leaves are verified."""
    return upper[-levels(size)[1] * BLOCK :]


def wrong(blocks: bytes, digests: bytes, salt: str) -> list[int]:
    """Return which of a run of blocks are not what their digests say, counted from 0."""
    return wrong_blocks(_digests(blocks, salt), digests)


def wrong_blocks(digests: bytes | bytearray, leaf: bytes) -> list[int]:
    """Return which of a run of blocks differ from what the leaves say, counted from 0."""
    return [
        index
        for index in range(len(digests) // DIGEST)
        if digests[index * DIGEST :][:DIGEST] != leaf[index * DIGEST :][:DIGEST]
    ]


def _digests(blocks: bytes | bytearray, salt: str) -> bytearray:
    # Most of an image was never written: zeros are hashed once.
    zeros, of_zeros = bytes(BLOCK), digest_of_zeros(salt)
    salted, digests = hashlib.sha256(bytes.fromhex(salt)), bytearray()
    for start in range(0, len(blocks), BLOCK):
        block = blocks[start : start + BLOCK]
        digests += of_zeros if block == zeros else _digest(salted, block)
    return digests


def _digest(salted: hashlib._Hash, block: bytes | bytearray) -> bytes:
    one = salted.copy()
    one.update(block)
    return one.digest()


def _padded(blocks: bytes | bytearray) -> bytearray:
    return bytearray(blocks) + bytes(-len(blocks) % BLOCK)
