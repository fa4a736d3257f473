"""Blocks of a device: what they should be, what they are, and dropping them from page caches."""

from __future__ import annotations

from collections.abc import Iterable

from virtman.model import hashtree
from virtman.model.hashtree import BLOCK, HashTree
from virtman.privileged import block
from virtman.stack.mapped import explained

_DIGEST = 32

GROUP = BLOCK // _DIGEST * BLOCK
"""Bytes whose leaves of the hash tree are one block."""


def told(leaves: str, group: int) -> bytes:
    """Return what the leaves say of the blocks of a group; they may come from a parent."""
    with explained(f"reading {leaves}"):
        return bytes(block.read(leaves, group * BLOCK, BLOCK))


def read(device: str, offset: int) -> None:
    """Read a block, past the page cache."""
    with explained(f"reading {device}"):
        block.read(device, offset, BLOCK)


def wrong(device: str, offset: int, length: int, leaves: bytes, tree: HashTree) -> list[int]:
    """Return where blocks differ from what the leaves of their group say.

    :param offset: bytes; the blocks from here on, for ``length`` bytes, are of one group
    """
    with explained(f"comparing {device} with its hashes"):
        found = block.digests(device, offset, length, bytes.fromhex(tree.salt))
    mine = leaves[offset % GROUP // BLOCK * _DIGEST :]
    return [offset + index * BLOCK for index in hashtree.wrong_blocks(found, mine)]


def forget(offset: int, above: Iterable[tuple[str, int]]) -> None:
    """Let page caches forget a block of an image.

    :param above: devices, and how many bytes there are on them before the first byte of it
    """
    for one, before in above:
        with explained(f"dropping a block of {one}"):
            block.forget(one, before + offset, BLOCK)
