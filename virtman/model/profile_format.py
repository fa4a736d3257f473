"""A boot profile as bytes, as Volt keeps it.

It is encoded as

======  =============================================================
bytes   what
======  =============================================================
4       magic: ``VMBP``
1       version: 2
32      identity of the image
32      SHA-256 of all that follows
rest    body, compressed by zlib
======  =============================================================

and its body as identity (32 bytes, as nothing else guards the one before), piece size, number of
runs, width of a band in ms, number of groups; then for each group, in order, its band less that
of the group before, count of runs, number of pieces, and each piece less the one before. Then
come the number of runs that are kept, and for each, oldest first, a number for each piece, in the
order of the groups: 0 if that run did not read it, else 1 and how much later than the group's its
band is, as 0, -1, 1, -2, ... are counted. All are unsigned LEB128 of at most 5 bytes; the first
"one before" is 0. Volt reads the first 69 bytes and checks the sum, no more.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import accumulate, islice, pairwise

from virtman.errors import ProfileInvalid
from virtman.model.profile import KEPT, LATEST, PIECES, Group, Profile, check

LARGEST = 1 << 20
"""Bytes that an encoded profile has at most: Volt takes no more."""

_DIGEST = 32
_MAGIC = b"VMBP"
_VERSION = 2
_IDENTITY = len(_MAGIC) + 1
_SUM = _IDENTITY + _DIGEST
_BODY = _SUM + _DIGEST
_LONGEST = 64 + 16 * PIECES + 5 * KEPT  # a body: at worst, each piece is a group of its own


def encode(profile: Profile) -> bytes:
    """Return a profile as bytes: less than 512 KB for all pieces of 15 GB."""
    body = bytearray(bytes.fromhex(profile.identity))
    _put(body, (profile.piece_size, profile.runs, profile.band_ms, len(profile.groups)))
    band = 0
    for group in profile.groups:
        _put(body, (group.band - band, group.count, len(group.pieces), group.pieces[0]))
        _put(body, (piece - before for before, piece in pairwise(group.pieces)))
        band = group.band
    _put(body, [len(profile.latest)])
    for run in profile.latest:
        _put(body, _later(profile.groups, run))
    packed = zlib.compress(body, 9)
    return _MAGIC + bytes([_VERSION]) + body[:_DIGEST] + sha256(packed).digest() + packed


def decode(data: bytes) -> Profile:
    """Return the profile that was encoded so.

    :raises ProfileInvalid: whatever is wrong with the bytes
    """
    body = _unpacked(data)
    check(body[:_DIGEST] == data[_IDENTITY:_SUM], "it is of another image than it says")
    numbers = _numbers(body[_DIGEST:])
    try:
        piece_size, runs, band_ms, count = islice(numbers, 4)
        groups, band = [], 0
        for _ in range(count):
            band += next(numbers)
            groups.append(Group(band, next(numbers), _pieces(numbers)))
        kept = next(numbers)
        check(kept <= LATEST, f"{kept} runs are kept")
        latest = tuple([_run(groups, numbers) for _ in range(kept)])
    except (StopIteration, ValueError) as err:
        raise ProfileInvalid("no valid boot profile: its body ends early") from err
    check(next(numbers, None) is None, "its body does not end")
    return Profile(body[:_DIGEST].hex(), piece_size, runs, band_ms, tuple(groups), latest)


def _unpacked(data: bytes) -> bytes:
    check(len(data) >= _BODY and data.startswith(_MAGIC), "it does not begin like one")
    version = data[len(_MAGIC)]
    check(version == _VERSION, f"its version is {version}, not {_VERSION}")
    check(sha256(data[_BODY:]).digest() == data[_SUM:_BODY], "the checksum is wrong")
    unpacking = zlib.decompressobj()
    try:
        body = unpacking.decompress(data[_BODY:], _LONGEST)
    except zlib.error as err:
        raise ProfileInvalid(f"no valid boot profile: {err}") from err
    check(unpacking.eof and not unpacking.unused_data, "its body has the wrong length")
    return body


def _pieces(numbers: Iterator[int]) -> tuple[int, ...]:
    count = next(numbers)
    pieces = tuple(accumulate(islice(numbers, count)))
    check(len(pieces) == count, "a group ends early")
    return pieces


def _later(groups: Iterable[Group], run: Mapping[int, int]) -> Iterator[int]:
    """Yield, for each piece, how much later than others a run read it."""
    for group in groups:
        for piece in group.pieces:
            by = run.get(piece, 0) - group.band
            yield (1 + (2 * by if by >= 0 else -2 * by - 1)) if piece in run else 0


def _run(groups: Iterable[Group], numbers: Iterator[int]) -> dict[int, int]:
    found = {}
    for group in groups:
        for piece in group.pieces:
            if number := next(numbers):
                half, is_earlier = divmod(number - 1, 2)
                found[piece] = group.band + (-half - 1 if is_earlier else half)
    return found


def _put(body: bytearray, numbers: Iterable[int]) -> None:
    for number in numbers:
        rest = number
        while rest > 0x7F:
            body.append(rest & 0x7F | 0x80)
            rest >>= 7
        body.append(rest)


def _numbers(body: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in body:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            check(shift < 35, "a number is too long")
        else:
            yield number
            number = shift = 0
    check(not shift, "the last number ends early")
