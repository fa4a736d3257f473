"""How the bytes of a layer lie: an exception store of dm-snapshot to which nobody writes any more.

Pure. All numbers are little-endian and, but for offsets, count chunks::

    0       header: what the kernel looks for; from byte 4096 on, what the layer is of, and how a
            VM goes on from it if it is a suspended image
    1       area 0: a pair of numbers for each chunk of the disk, where it belongs and where it is
    2 ...   data of 4096 chunks, in the order of the area, which is that of the disk
    4098    area 1, and so on

An area with an empty pair is the last one. What is behind it, and was never written, is zeros: a
layer is long enough to have a hash tree.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from virtman.errors import SuspendedInvalid
from virtman.model import suspended
from virtman.model.dirty import CHUNK
from virtman.model.sizes import SECTOR
from virtman.model.suspended import Suspended

Read = Callable[[int, int], bytes]
"""Returns the bytes of a layer from an offset on, so many."""

DESCRIPTION = 4096
"""Where the layer says what it is of."""

LONGEST = 16 * 1024
"""Bytes that it has for that."""

AREA = CHUNK // 16
"""Chunks of data that an area tells of."""

_SHORTEST = 1024 * 1024
_HEADER = struct.Struct("<4sIII")
_ENTRY = struct.Struct("<QQ")
_MARK = "virtman layer 1"


@dataclass(frozen=True)
class Description:
    """What a layer is of.

    :ivar parent: name of the image that it lies on
    :ivar origin: tells that image from others of that name
    :ivar disk_size: bytes of the VM's disk
    :ivar suspended: how a VM of it goes on, if it is a suspended image
    """

    parent: str
    origin: str
    disk_size: int
    suspended: Suspended | None = None


def header(of: Description) -> bytes:
    """Return the first chunk."""
    known = _HEADER.pack(b"SnAp", 1, 1, CHUNK // SECTOR)
    said = {"format": _MARK} | asdict(of)
    if of.suspended is None:
        del said["suspended"]
    text = json.dumps(said).encode()
    if len(text) > LONGEST:
        raise ValueError(f"a layer's description has {len(text)} bytes")
    return (known.ljust(DESCRIPTION, b"\0") + text).ljust(CHUNK, b"\0")


def describe(read: Read) -> Description | None:
    """Return what a layer says of itself; None if it is no layer."""
    text = read(DESCRIPTION, LONGEST)
    try:
        found = json.loads(text.rstrip(b"\0"))
        if found.pop("format") != _MARK:
            return None
        saved = found.pop("suspended", None)
        return Description(**found, suspended=saved and suspended.parse(saved))
    except (ValueError, KeyError, TypeError, AttributeError, SuspendedInvalid):
        return None


def length(count: int) -> int:
    """Return the bytes of a layer that has so many chunks of data."""
    last_area = _area_at(count // AREA)
    return max(_SHORTEST, (last_area + 1) * CHUNK, (place(count - 1) + 1) * CHUNK if count else 0)


def place(index: int) -> int:
    """Return the chunk of the layer that has the data of a number, counted from 0."""
    return _area_at(index // AREA) + 1 + index % AREA


def pieces(of: Description, numbers: Sequence[int], chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Return all bytes of a layer, in their order.

    :param numbers: of the disk's chunks that it holds, ascending
    :param chunks: what these have, each whole but for the end of a disk
    """
    yield header(of)
    content = iter(chunks)
    for first in range(0, len(numbers) + 1, AREA):
        pairs = enumerate(numbers[first : first + AREA], first)
        entries = b"".join(_ENTRY.pack(number, place(index)) for index, number in pairs)
        yield entries.ljust(CHUNK, b"\0")
        for chunk in itertools.islice(content, AREA):
            yield chunk.ljust(CHUNK, b"\0")
    count = len(numbers)
    yield bytes(length(count) - _area_at(count // AREA) * CHUNK - (count % AREA + 1) * CHUNK)


def numbers(read: Read) -> Iterator[int]:
    """Return which chunks of the disk a layer holds."""
    for area in itertools.count():
        for number, at in _ENTRY.iter_unpack(read(_area_at(area) * CHUNK, CHUNK)):
            if not at:
                return
            yield number


def _area_at(area: int) -> int:
    return 1 + area * (AREA + 1)
