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
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

BLOCK = 4096
_FANNED = 128
_DIGEST = 32
_PIECE = 16 * BLOCK  # little enough that memory is used again, not asked for anew each time

SALT = hashlib.sha256(b"virtman").hexdigest()
"""Of all images: so what is the same in two of them has the same leaves."""

Progress = Callable[[int], None]


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


def build(
    data: BinaryIO, size: int, salt: str, into: BinaryIO, progress: Progress
) -> tuple[HashTree, bytes]:
    """Hash an image; write the leaves to ``into``, return the root and the upper levels.

    :param data: read from its present position on, ``size`` bytes
    :param progress: called with the bytes done since it was called last
    """
    level, done = bytearray(), 0
    while done < size:
        piece = data.read(min(_PIECE, size - done))
        if not piece:
            raise EOFError(f"the image ends after {done} of {size} bytes")
        done += len(piece)
        level += _digests(_padded(piece), salt)
        progress(len(piece))
    level = _padded(level)
    into.write(level)
    upper: list[bytes] = []
    while len(level) > BLOCK:
        digests = _digests(level, salt)
        level = _padded(digests)
        upper.append(bytes(level))
    return HashTree(_digests(level, salt).hex(), salt), b"".join(reversed(upper))


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


def wrong_blocks(digests: bytes, leaf: bytes) -> list[int]:
    """Return which of a run of blocks differ from what the leaves say, counted from 0."""
    return [
        index
        for index in range(len(digests) // _DIGEST)
        if digests[index * _DIGEST :][:_DIGEST] != leaf[index * _DIGEST :][:_DIGEST]
    ]


def _digests(blocks: bytes | bytearray, salt: str) -> bytearray:
    salted = hashlib.sha256(bytes.fromhex(salt))

    def digest(block: bytes | bytearray) -> bytes:
        one = salted.copy()
        one.update(block)
        return one.digest()

    # Most of an image was never written: zeros are hashed once.
    zeros = bytes(BLOCK)
    of_zeros, digests = digest(zeros), bytearray()
    for start in range(0, len(blocks), BLOCK):
        block = blocks[start : start + BLOCK]
        digests += of_zeros if block == zeros else digest(block)
    return digests


def _padded(blocks: bytes | bytearray) -> bytearray:
    return bytearray(blocks) + bytes(-len(blocks) % BLOCK)
