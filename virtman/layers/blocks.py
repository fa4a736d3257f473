"""Single blocks of a device: whether they are right, and dropping them from caches."""

from __future__ import annotations

from collections.abc import Iterable

from virtman import hashtree
from virtman.hashtree import BLOCK, HashTree
from virtman.layers import explained
from virtman.privileged import block

_DIGEST = 32


def wrong(device: str, leaves: str, offset: int, length: int, tree: HashTree) -> list[int]:
    """Return where blocks of a device differ from what the leaves of its hash tree say.

    :param offset: bytes; a multiple of 512 KiB, so that leaves begin there
    """
    blocks = length // BLOCK
    with explained(f"comparing {device} with its hashes"):
        told = block.read(leaves, offset // BLOCK * _DIGEST, -(-blocks * _DIGEST // BLOCK) * BLOCK)
        found = block.digests(device, offset, length, bytes.fromhex(tree.salt))
    return [offset + index * BLOCK for index in hashtree.wrong_blocks(found, told)]


def drop(device: str, offset: int, above: Iterable[tuple[str, int]]) -> None:
    """Let a cache device, and the page caches above it, fetch a block anew.

    :param above: devices, and how many bytes there are on them before the first byte of this
    """
    with explained(f"dropping a block of {device}"):
        block.discard(device, offset, BLOCK)
        for one, before in above:
            block.forget(one, before + offset, BLOCK)
