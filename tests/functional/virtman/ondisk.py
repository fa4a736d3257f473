"""What bcache writes to a cache device, as far as somebody reads it who looks for extents."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

SECTOR = 512
BLOCK, BUCKET = 8, 128  # sectors
_MAGIC = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
_SET = 0x1122334455667788
_JOURNAL, _NODE = 0x245235C1A3625032, 0x90135C78B99E07F5

Key = tuple[int, int, int, int]
"""A member's number; in bytes: offset, length, and where on the cache device (-1: nowhere)."""


def key(member: int, offset: int, length: int, at: int) -> bytes:
    pointers = 0 if at < 0 else 1
    high = 1 << 63 | pointers << 60 | (length // SECTOR) << 20 | member
    words = [high, (offset + length) // SECTOR]
    return struct.pack(f"<{2 + pointers}Q", *words, *[at // SECTOR << 8 | 5] * pointers)


def coming(member: int, offset: int) -> bytes:
    """A key for data that are on their way into the cache."""
    return struct.pack("<3Q", 1 << 63 | 1 << 60 | 8 << 20 | member, offset // SECTOR + 8,
                       0xFFF << 51 | 0x1234567 << 8)  # fmt: skip


def node(keys: Iterable[Key], sequence: int = 9, more: bytes = b"") -> bytes:
    """A set of keys as part of a node."""
    body = b"".join(key(*one) for one in keys) + more
    head = struct.pack("<QQQII", 0, _SET ^ _NODE, sequence, 1, len(body) // 8)
    return _padded(head + body)


def entry(number: int, oldest: int, root: Key, level: int, keys: Iterable[Key]) -> bytes:
    """An entry of the journal."""
    body = b"".join(key(*one) for one in keys)
    head = struct.pack("<QQQIIQ", 0, _SET ^ _JOURNAL, number, 1, len(body) // 8, oldest)
    head += bytes(64) + key(*root).ljust(64, b"\0") + struct.pack("<H", level)
    return _padded(head.ljust(240, b"\0") + body)


def device(journal: Sequence[bytes], buckets: dict[int, bytes]) -> bytes:
    """A cache device: buckets of the journal from the first one on, then others by number."""
    head = bytearray(4096)
    head[24:40] = _MAGIC
    struct.pack_into("<Q", head, 56, _SET)
    struct.pack_into("<2H", head, 192, BLOCK, BUCKET)
    struct.pack_into("<H", head, 206, len(journal))
    struct.pack_into(f"<{len(journal)}Q", head, 208, *range(1, len(journal) + 1))
    content = bytearray(BUCKET * SECTOR * (2 + max([len(journal), *buckets])))
    content[4096:8192] = head
    for number, data in (*enumerate(journal, 1), *buckets.items()):
        content[number * BUCKET * SECTOR : number * BUCKET * SECTOR + len(data)] = data
    return bytes(content)


def at(bucket: int) -> int:
    """Where a bucket begins."""
    return bucket * BUCKET * SECTOR


def _padded(data: bytes) -> bytes:
    return data.ljust(-(-len(data) // (BLOCK * SECTOR)) * BLOCK * SECTOR, b"\0")
