"""On which other images an image is based: which of its blocks they have too, and where.

The leaves of hash trees tell that (ACStor, 3.4.3 and 3.5): blocks of the same content have the same
leaf, wherever they are. Neighbours that are neighbours there too make one *run*::

    image     | a b c | x | d e | y y |        a, b ...: blocks of 4 KiB
    other     | e' | a b c | d e |             runs: 0..2 at 1, 4..5 at 4

A basis is encoded as

======  =============================================================
bytes   what
======  =============================================================
4       magic: ``VMBS``
1       version: 1
32      SHA-256 of all that follows
32      root hash of the image
8       how many of its blocks are in the others
1       how many others there are: 1 to 4
80 each name of another, padded with zeros to 48 bytes, and its root hash
rest    runs, compressed by zlib
======  =============================================================

and a run as four numbers of 4 bytes: which of the others, first block of the image, first block of
the other, and how many. All numbers are little-endian. Volt reads what is before the runs and
checks the sum, no more.
"""

from __future__ import annotations

import re
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby, pairwise

from virtman.errors import BasisInvalid
from virtman.model import naming
from virtman.model.hashtree import BLOCK, DIGEST, SALT, digest_of_zeros

OTHERS = 4
"""Images on which one may be based."""

RUNS = 5_000
"""Runs that are kept by default: with what is between them, as many pieces again."""

MOST_RUNS = 10_000
"""Runs of a basis at most: the kernel takes a while to read a longer table."""

LARGEST = 1 << 20
"""Bytes that an encoded basis has at most: Volt takes no more."""

Leaves = bytes | memoryview
"""Digests of all blocks of an image, in order; perhaps padded with zeros."""

_MAGIC, _VERSION = b"VMBS", 1
_SUM, _HEAD = 5, 37
_FIXED = struct.Struct("<32sQB")
_OTHER = struct.Struct("<48s32s")
_RUN = struct.Struct("<4I")
_STEP = 128  # blocks that are compared at once
_SAMPLED = re.compile(rb"[\x00-\x03]")  # first bytes of digests
_LONG = 4  # blocks of zeros at least
_FEW = 1 << 14  # blocks of which all are looked at


@dataclass(frozen=True)
class Other:
    """An image on which another is based, as it was then."""

    name: str
    root: str


@dataclass(frozen=True)
class Run:
    """Blocks of an image that another has as well; all in blocks.

    :ivar other: which one, counted from 0
    :ivar start: where they begin in the image
    :ivar at: and in the other
    """

    other: int
    start: int
    at: int
    count: int

    @property
    def end(self) -> int:
        """The block behind the last, in the image."""
        return self.start + self.count


@dataclass(frozen=True)
class Basis:
    """What an image has in common with others.

    :ivar root: of the image
    :ivar runs: in the order of the image; none overlaps another
    """

    root: str
    others: tuple[Other, ...]
    runs: tuple[Run, ...]

    @property
    def shared(self) -> int:
        """Bytes that the others have."""
        return sum(run.count for run in self.runs) * BLOCK

    def reach(self) -> Mapping[str, int]:
        """Return how many bytes each of the others must have."""
        ends = dict.fromkeys((one.name for one in self.others), 0)
        for run in self.runs:
            name = self.others[run.other].name
            ends[name] = max(ends[name], (run.at + run.count) * BLOCK)
        return ends


@dataclass(frozen=True)
class Piece:
    """A part of an image that is read from one device; all in blocks.

    :ivar other: name of the image that has it; empty for the image itself
    """

    start: int
    count: int
    other: str
    at: int


def compare(
    new: Leaves, blocks: int, others: Sequence[tuple[Leaves, int]], limit: int = RUNS
) -> tuple[Run, ...]:
    """Return which blocks of an image are also in others, in as many runs as are allowed.

    What is at the same place in one of them comes first, and then what is anywhere: an image that
    was updated in place gives few and long runs so, and one that was built anew as many as it must.
    If there are more than the limit, the shortest are left out. A block of zeros is never
    looked for: it is in a run if it is among its neighbours in both images. But zeros, if they are
    more than a few, are all read from one place where another lacks what is before them, and if
    the limit allows that: who reads what is before them reads ahead, and whoever has read all of
    the other did not meet all its zeros, so they are not in its cache.

    All trees must have the same salt.

    :param blocks: of the image
    :param others: leaves, and number of blocks, the best match first
    """
    placed: list[Run] = []
    gaps = [(0, blocks)]
    for number, (old, length) in enumerate(others):
        for start, end in gaps:
            placed += _in_place(number, new, old, start, min(end, length))
        gaps = list(_between(placed, blocks))
    zeros = digest_of_zeros(SALT)
    found = _places({_at(new, block) for gap in gaps for block in range(*gap)} - {zeros}, others)
    if found:
        for start, end in gaps:
            placed += _anywhere(new, others, found, start, end)
    joined = list(_joined(_in_order(placed)))
    zeros_of_one = list(_zeros_of_one(joined, new, blocks, others))
    every = [*_outside(joined, zeros_of_one), *zeros_of_one]
    if len(every) > limit:
        every = sorted(joined, key=lambda run: (-run.count, run.start))[:limit]
    return tuple(_in_order(every))


def sample(leaves: Leaves, blocks: int) -> frozenset[bytes]:
    """Return some of an image's digests: those of two images have in common what the images have.

    Which ones they are depends on their content alone, so the same block is in both samples or in
    neither. That of an image with many blocks has a 64th of them.

    :param blocks: of the image
    """
    found: Iterable[int] = range(blocks)
    if blocks > _FEW:
        firsts = bytes(leaves[: blocks * DIGEST : DIGEST])
        found = (one.start() for one in _SAMPLED.finditer(firsts))
    return frozenset(_at(leaves, block) for block in found) - {digest_of_zeros(SALT)}


def pieces(basis: Basis, lenders: Iterable[str], blocks: int) -> list[Piece]:
    """Return from what each part of an image is read, in order.

    :param lenders: those of the others that can be read
    :param blocks: of the image
    """
    wanted, found, end = set(lenders), list[Piece](), 0
    for run in basis.runs:
        name = basis.others[run.other].name
        if name in wanted:
            if end < run.start:
                found.append(Piece(end, run.start - end, "", end))
            found.append(Piece(run.start, run.count, name, run.at))
            end = run.end
    if end < blocks:
        found.append(Piece(end, blocks - end, "", end))
    return found


def encode(basis: Basis) -> bytes:
    """Return a basis as bytes."""
    runs = b"".join(_RUN.pack(one.other, one.start, one.at, one.count) for one in basis.runs)
    blocks = basis.shared // BLOCK
    body = _FIXED.pack(bytes.fromhex(basis.root), blocks, len(basis.others))
    for one in basis.others:
        body += _OTHER.pack(one.name.encode(), bytes.fromhex(one.root))
    body += zlib.compress(runs, 9)
    return _MAGIC + bytes([_VERSION]) + sha256(body).digest() + body


def decode(data: bytes, blocks: int) -> Basis:
    """Return the basis that was encoded so.

    :param blocks: of the image
    :raises BasisInvalid: whatever is wrong with the bytes
    """
    _check(len(data) >= _HEAD + _FIXED.size and data.startswith(_MAGIC), "it does not begin so")
    version = data[len(_MAGIC)]
    _check(version == _VERSION, f"its version is {version}, not {_VERSION}")
    _check(sha256(data[_HEAD:]).digest() == data[_SUM:_HEAD], "the checksum is wrong")
    root, shared, count = _FIXED.unpack_from(data, _HEAD)
    begin = _HEAD + _FIXED.size
    end = begin + count * _OTHER.size
    _check(1 <= count <= OTHERS and len(data) >= end, f"it names {count} images")
    others = tuple(_other(*words) for words in _OTHER.iter_unpack(data[begin:end]))
    _check(len({one.name for one in others}) == count, "it names an image twice")
    runs = tuple(Run(*numbers) for numbers in _RUN.iter_unpack(_unpacked(data[end:])))
    _check(all(run.count > 0 and run.other < count for run in runs), "a run is of no image")
    _check(all(one.end <= other.start for one, other in pairwise(runs)), "runs overlap")
    _check(not runs or runs[-1].end <= blocks, "a run is outside the image")
    basis = Basis(root.hex(), others, runs)
    _check(basis.shared == shared * BLOCK, "its runs are not as long as it says")
    return basis


def _other(name: bytes, root: bytes) -> Other:
    text = name.rstrip(b"\0").decode("ascii", "replace")
    _check(naming.NAME.fullmatch(text), f"it names an image {text!r}")
    return Other(text, root.hex())


def _unpacked(packed: bytes) -> bytes:
    unpacking, longest = zlib.decompressobj(), MOST_RUNS * _RUN.size
    try:
        runs = unpacking.decompress(packed, longest + 1)
    except zlib.error as err:
        raise BasisInvalid(f"no valid basis: {err}") from err
    _check(len(runs) <= longest, f"it has more than {MOST_RUNS} runs")
    _check(unpacking.eof and not unpacking.unused_data, "its runs do not end")
    _check(len(runs) % _RUN.size == 0, "its last run ends early")
    return runs


def _at(leaves: Leaves, block: int) -> bytes:
    return bytes(leaves[block * DIGEST : (block + 1) * DIGEST])


def _in_place(other: int, new: Leaves, old: Leaves, start: int, end: int) -> Iterator[Run]:
    """Yield what two images have at the same place, from a block on."""
    begin = start
    for at in range(start, end, _STEP):
        after = min(end, at + _STEP)
        where = slice(at * DIGEST, after * DIGEST)
        if bytes(new[where]) == bytes(old[where]):
            continue
        for block in range(at, after):
            if _at(new, block) != _at(old, block):
                if begin < block:
                    yield Run(other, begin, begin, block - begin)
                begin = block + 1
    if begin < end:
        yield Run(other, begin, begin, end - begin)


def _between(placed: Iterable[Run], blocks: int) -> Iterator[tuple[int, int]]:
    end = 0
    for run in _in_order(placed):
        if end < run.start:
            yield end, run.start
        end = run.end
    if end < blocks:
        yield end, blocks


def _places(
    wanted: set[bytes], others: Sequence[tuple[Leaves, int]]
) -> Mapping[bytes, tuple[int, int]]:
    """Return where the others have blocks of these digests: which of them, and where."""
    found: dict[bytes, tuple[int, int]] = {}
    for number, (old, length) in enumerate(others if wanted else ()):
        for block, (digest,) in enumerate(struct.iter_unpack("32s", old[: length * DIGEST])):
            if digest in wanted:
                found.setdefault(digest, (number, block))
    return found


def _anywhere(
    new: Leaves,
    others: Sequence[tuple[Leaves, int]],
    found: Mapping[bytes, tuple[int, int]],
    start: int,
    end: int,
) -> Iterator[Run]:
    """Yield what the others have of a part of an image; what goes on goes before what is first."""
    block = start
    while block < end:
        place = found.get(_at(new, block))
        if place is None:
            block += 1
            continue
        number, at = place
        old, length = others[number]
        count = 1
        while (
            block + count < end
            and at + count < length
            and _at(new, block + count) == _at(old, at + count)
        ):
            count += 1
        yield Run(number, block, at, count)
        block += count


def _in_order(runs: Iterable[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: run.start)


def _joined(runs: Iterable[Run]) -> Iterator[Run]:
    """Yield runs, those that go on in both images as one."""
    last: Run | None = None
    for run in runs:
        if last is not None and (run.other, run.start, run.at) == (
            last.other,
            last.end,
            last.at + last.count,
        ):
            last = Run(last.other, last.start, last.at, last.count + run.count)
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def _zeros(leaves: Leaves, blocks: int) -> Iterator[tuple[int, int]]:
    """Yield where an image has some zeros: the first block, and the one behind the last."""
    zeros, begin = digest_of_zeros(SALT), 0
    digests = struct.iter_unpack(f"{DIGEST}s", leaves[: blocks * DIGEST])
    for is_zero, group in groupby(digest == zeros for (digest,) in digests):
        end = begin + sum(1 for _ in group)
        if is_zero and end - begin >= _LONG:
            yield begin, end
        begin = end


def _zeros_of_one(
    runs: Sequence[Run], new: Leaves, blocks: int, others: Sequence[tuple[Leaves, int]]
) -> Iterator[Run]:
    """Yield zeros that no run has together with the block before them, all at one place."""
    places = (
        (end - at, number, at)
        for number, (old, length) in enumerate(others)
        for at, end in _zeros(old, length)
    )
    length, other, at = max(places, default=(0, 0, 0))
    starts = [run.start for run in runs]
    for start, end in _zeros(new, blocks) if length else ():
        before = bisect_right(starts, max(start - 1, 0))  # before the first there is none
        if not before or runs[before - 1].end < end:
            for begin in range(start, end, length):
                yield Run(other, begin, at, min(length, end - begin))


def _outside(runs: Iterable[Run], others: Sequence[Run]) -> Iterator[Run]:
    """Yield what of runs is in none of the others, which are in order."""
    ends = [one.end for one in others]
    for run in runs:
        begin = run.start
        at = bisect_right(ends, begin)
        while at < len(others) and others[at].start < run.end:
            yield from _part(run, begin, others[at].start)
            begin = others[at].end
            at += 1
        yield from _part(run, begin, run.end)


def _part(run: Run, start: int, end: int) -> Iterator[Run]:
    if start < end:
        yield Run(run.other, start, run.at + start - run.start, end - start)


def _check(is_so: object, otherwise: str) -> None:
    if not is_so:
        raise BasisInvalid(f"no valid basis: {otherwise}")
