"""Verbs on data in pieces: which chunks an exception store holds, and runs of bytes of devices.

The format of a store is the kernel's (drivers/md/dm-snap-persistent.c): a header of one chunk,
then areas of one chunk each, with an entry of two numbers a chunk of data that follows. All
numbers are little-endian. An entry whose second number is 0 ends the table.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

from virtman.privileged import context, exchange

Runs = list[tuple[int, int]]
"""Offset and length of each, in bytes."""

_HEADER = struct.Struct("<4sIII")
_ENTRY = struct.Struct("<QQ")
_MAGIC = b"SnAp"
_SECTOR = 512


@context.entrypoint
def written(store: str, chunk: int, count: int) -> bytes:
    """Return which chunks an exception store holds something of; nobody writes to it.

    The lowest bit of the first byte is chunk 0. The store's own chunks may be of another size, as
    those of a store that an earlier VirtMan made are.

    :param store: path of its block device
    :param chunk: bytes of one
    :param count: how many there can be
    :raises OSError: EUCLEAN if the device does not hold such a store
    """
    found = bytearray(-(-count // 8))
    with _opened(store, os.O_RDONLY) as descriptor:
        own = _chunk(store, descriptor)
        for number in _exceptions(descriptor, own):
            first, end = number * own // chunk, -(-(number + 1) * own // chunk)
            if first >= count:
                raise OSError(errno.EUCLEAN, f"{store} holds chunk {first} of {count}")
            for one in range(first, min(end, count)):
                found[one // 8] |= 1 << one % 8
    return bytes(found)


def _chunk(store: str, descriptor: int) -> int:
    """Return the size of a store's chunks, of which the first says so."""
    with mmap.mmap(-1, mmap.PAGESIZE) as memory:
        os.preadv(descriptor, [memory], 0)
        magic, valid, _, sectors = _HEADER.unpack_from(memory)
    if (magic, valid) != (_MAGIC, 1) or not sectors:
        raise OSError(errno.EUCLEAN, f"{store} does not hold an exception store")
    return int(sectors * _SECTOR)


def _exceptions(descriptor: int, chunk: int) -> Iterator[int]:
    """Say which of its chunks a store holds."""
    area = chunk // _ENTRY.size + 1
    with mmap.mmap(-1, chunk) as memory:
        for at in itertools.count(1, area):
            if os.preadv(descriptor, [memory], at * chunk) != chunk:
                return
            for number, place in _ENTRY.iter_unpack(memory[:]):
                if not place:
                    return
                yield number


def read(device: str, runs: Sequence[tuple[int, int]]) -> bytes:
    """Return runs of a device, one after the other, past the page cache."""
    content = bytearray()
    with exchange.slot() as slot, exchange.view(slot) as memory:
        for part in _portions(runs):
            read_shared(device, part, slot)
            content += memory[: sum(length for _, length in part)]
    return bytes(content)


def write(device: str, runs: Sequence[tuple[int, int]], data: bytes) -> None:
    """Write over runs of a device, past the page cache; a flush has it on the disk."""
    start = 0
    with exchange.slot() as slot, exchange.view(slot) as memory:
        for part in _portions(runs):
            length = sum(length for _, length in part)
            memory[:length] = data[start : start + length]
            write_shared(device, part, slot)
            start += length


@context.entrypoint
def read_shared(device: str, runs: Runs, slot: int) -> None:
    """Read runs of a device into a slot of shared memory, one after the other."""
    with _opened(device, os.O_RDONLY) as descriptor:
        _move(device, runs, slot, lambda part, offset: os.preadv(descriptor, [part], offset))


@context.entrypoint
def write_shared(device: str, runs: Runs, slot: int) -> None:
    """Write what a slot of shared memory has over runs of a device."""
    with _opened(device, os.O_WRONLY) as descriptor:
        _move(device, runs, slot, lambda part, offset: os.pwritev(descriptor, [part], offset))


def _move(device: str, runs: Runs, slot: int, transfer: Callable[[memoryview, int], int]) -> None:
    start = 0
    with exchange.view(slot) as memory:
        for offset, length in runs:
            with memory[start : start + length] as part:
                done = transfer(part, offset)
            if done != length:
                raise OSError(errno.EIO, f"{device}: {done} of {length} bytes at {offset}")
            start += length


def _portions(runs: Iterable[tuple[int, int]]) -> Iterator[Runs]:
    """Give runs in portions that a slot has room for; a run may be parted."""
    portion: Runs = []
    room = exchange.SLOT
    for offset, length in runs:
        done = 0
        while done < length:
            taken = min(room, length - done)
            portion.append((offset + done, taken))
            done, room = done + taken, room - taken
            if not room:
                yield portion
                portion, room = [], exchange.SLOT
    if portion:
        yield portion


@context.entrypoint
def flush(device: str) -> None:
    """Return once all that was written to a device, or a file, is on the disk."""
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _opened(device: str, flags: int) -> Iterator[int]:
    descriptor = os.open(device, flags | os.O_DIRECT | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
