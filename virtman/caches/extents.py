"""Which blocks a bcache cache set holds, and where: read from its own format. Pure.

bcache tells nobody what it holds. But what it needs to find it again is on the cache device: a
B-tree of extents, and a journal of the latest changes to that (Linux, ``bcache.h`` and
``bcache_ondisk.h``)::

    superblock ── buckets of the journal ── newest entry ── root of the B-tree
                        └ keys that are not in the tree yet      └ ... ── leaves: keys

A key says that so many sectors of a member end at some sector, and where they are. What is read
here may be older than what the kernel knows: keys of what was read in the last half minute may be
missing, for they are not journaled (``btree_node_write_work``), and some may be gone, their place
having been given to others.
So whoever finds something wrong there asks bcache itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from virtman.caches import Extent
from virtman.plan import SECTOR

Read = Callable[[int, int], bytes]
"""Returns bytes of the cache device: offset, length."""

_SUPERBLOCK_AT, _SUPERBLOCK_SIZE = 4096, 4096
_MAGIC = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
_JOURNAL_MAGIC, _NODE_MAGIC = 0x245235C1A3625032, 0x90135C78B99E07F5
_WORD = 8
_DEEPEST = 8


@dataclass(frozen=True)
class _Set:
    """What the superblock says; sizes in bytes.

    :ivar magic: of this set, by which what it wrote is known
    """

    magic: int
    block: int
    bucket: int
    journal: tuple[int, ...]


@dataclass(frozen=True)
class _Key:
    """A key: sectors of a member that end at ``end``, and where they are; -1 for nowhere."""

    member: int
    end: int
    size: int
    at: int


@dataclass(frozen=True)
class _Entry:
    """An entry of the journal.

    :ivar oldest: number of the oldest entry whose keys may not be in the tree
    """

    number: int
    oldest: int
    root: _Key
    level: int
    keys: tuple[_Key, ...]


def extents(read: Read, member: int) -> list[Extent]:
    """Return what a cache set holds of a member, by offset; an extent may overlap others.

    Offsets are those on its backing device.

    :param member: its number in the set
    :raises ValueError: if there is no cache set
    """
    found = _superblock(read(_SUPERBLOCK_AT, _SUPERBLOCK_SIZE))
    entries = list(_journal(read, found))
    if not entries:
        return []
    newest = max(entries, key=lambda one: one.number)
    keys = list(_node(read, found, newest.root, newest.level))
    for entry in sorted(entries, key=lambda one: one.number):
        if entry.number >= newest.oldest:
            keys += entry.keys
    # a later key of the same end takes the place of an earlier one
    latest = {(one.member, one.end): one for one in keys}
    return sorted(
        (
            Extent((one.end - one.size) * SECTOR, one.size * SECTOR, one.at * SECTOR)
            for one in latest.values()
            if one.member == member and one.size and one.at >= 0
        ),
        key=lambda one: one.offset,
    )


def _superblock(data: bytes) -> _Set:
    if data[24:40] != _MAGIC:
        raise ValueError("no superblock of bcache")
    block, bucket = struct.unpack_from("<2H", data, 192)
    (count,) = struct.unpack_from("<H", data, 206)
    buckets = struct.unpack_from(f"<{count}Q", data, 208)
    (magic,) = struct.unpack_from("<Q", data, 56)
    size = bucket * SECTOR
    return _Set(magic, block * SECTOR, size, tuple(one * size for one in buckets))


def _journal(read: Read, of: _Set) -> Iterator[_Entry]:
    for at in of.journal:
        bucket = read(at, of.bucket)
        position = 0
        while position + 240 <= len(bucket):
            magic, number, _, words, oldest = struct.unpack_from("<QQIIQ", bucket, position + 8)
            if magic != of.magic ^ _JOURNAL_MAGIC:
                break
            (level,) = struct.unpack_from("<H", bucket, position + 168)
            root = next(_keys(bucket, position + 104, 3), None)
            keys = tuple(_keys(bucket, position + 240, words))
            if root is not None:
                yield _Entry(number, oldest, root, level, keys)
            position += _rounded(240 + words * _WORD, of.block)


def _node(read: Read, of: _Set, key: _Key, level: int) -> Iterator[_Key]:
    """Return the keys of the leaves below a node, older ones first."""
    if key.at < 0 or level > _DEEPEST:
        return
    data = read(key.at * SECTOR, of.bucket)
    position, sequence = 0, None
    keys: list[_Key] = []
    while position + 32 <= len(data):
        magic, number, _, words = struct.unpack_from("<QQII", data, position + 8)
        if magic != of.magic ^ _NODE_MAGIC or sequence not in (None, number):
            break
        sequence = number
        keys += _keys(data, position + 32, words)
        position += _rounded(32 + words * _WORD, of.block)
    if not level:
        yield from keys
        return
    for child in {(one.member, one.end): one for one in keys}.values():
        yield from _node(read, of, child, level - 1)


def _keys(data: bytes, at: int, words: int) -> Iterator[_Key]:
    end = min(at + words * _WORD, len(data))
    while at + 2 * _WORD <= end:
        high, low = struct.unpack_from("<QQ", data, at)
        pointers = high >> 60 & 0x7
        place = -1
        if pointers and at + 3 * _WORD <= len(data):
            (pointer,) = struct.unpack_from("<Q", data, at + 2 * _WORD)
            if not pointer >> 51 & 0xFFF:  # else it stands for data that are on their way
                place = pointer >> 8 & (1 << 43) - 1
        yield _Key(high & (1 << 20) - 1, low, high >> 20 & 0xFFFF, place)
        at += (2 + pointers) * _WORD


def _rounded(length: int, to: int) -> int:
    return -(-length // to) * to
