"""Which pieces of an image its VMs read when they boot, and about when.

A profile (VMTorrent, 2.2.3) is merged from runs. A run is what one boot read: the number of each
piece, and how many seconds after the boot began it was first read. Boots read nearly the same
set, never in quite the same order: so a profile keeps coarse bands of time::

    band         0          1     2
    seconds      0..1       1..2  2..3
    in 3 of 3    0-3, 17    40    41, 42       groups: the pieces of one band that were in
    in 1 of 3               99                 as many runs

Runs whose reads vary are helped by what was read after what, in each of them (``clusters``). So a
profile also keeps, of the latest runs, the band of each piece in that run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from virtman.errors import ProfileForeign, ProfileInvalid
from virtman.model.hashtree import BLOCK

BOOT = "boot"
"""The workload that is recorded and helped without a word."""

PIECE = 64 * 1024
"""Bytes; how long a piece is by default."""

BAND_MS = 1000
"""Milliseconds; how wide a band is by default."""

PIECES = 1 << 18
"""Pieces that a profile has at most: all of 16 GiB. No boot reads as much."""

LATEST = 16
"""Runs of which a profile keeps when they read each piece, at most."""

KEPT = 1 << 19
"""Bands of pieces in these runs, at most: 2 runs of 16 GiB, 16 of 2 GiB."""

Run = Mapping[int, float]
"""Piece number, and seconds from the begin of the boot to its first read."""

Leaves = bytes | memoryview
"""Leaves of an image's hash tree: the digests of its blocks, one after another."""

_DIGEST = 32
_SIZES = [1 << power for power in range(12, 21)]
_NUMBERS = range(1 << 32)


@dataclass(frozen=True)
class Group:
    """Pieces of one band that were read in as many runs.

    :ivar band: counted from 0
    :ivar count: of runs
    :ivar pieces: ascending, at least one
    """

    band: int
    count: int
    pieces: tuple[int, ...]


@dataclass(frozen=True)
class Band:
    """What boots read in one band; ``share`` is how many of the runs read a piece, on average.

    :ivar begin: seconds
    :ivar bytes: of all its pieces
    :ivar share: 0 to 1
    """

    begin: float
    pieces: int
    bytes: int
    share: float


@dataclass(frozen=True)
class Profile:
    """What some boots from an image read.

    :ivar identity: the image's root hash, 64 hexadecimal digits
    :ivar piece_size: bytes; a power of two from 4 KiB to 1 MiB
    :ivar runs: how many were merged
    :ivar band_ms: how wide a band is, in ms
    :ivar groups: by band, then by count, most first; no piece is in two of them
    :ivar latest: the runs that were merged last, oldest first: the band of each piece read
    :raises ProfileInvalid: if it is not so; what can be made can be encoded
    """

    identity: str
    piece_size: int
    runs: int
    band_ms: int
    groups: tuple[Group, ...]
    latest: tuple[Mapping[int, int], ...] = ()

    def __post_init__(self) -> None:
        check(re.fullmatch("[0-9a-f]{64}", self.identity), "the identity is no root hash")
        check(self.piece_size in _SIZES, f"pieces cannot have {self.piece_size} bytes")
        check(self.runs in _NUMBERS, f"{self.runs} runs")
        check(self.band_ms in _NUMBERS[1:], f"bands of {self.band_ms} ms")
        check(_ascend((one.band, -one.count) for one in self.groups), "groups are out of order")
        for group in self.groups:
            check(group.band in _NUMBERS, f"a band {group.band}")
            check(1 <= group.count <= self.runs, f"pieces in {group.count} of {self.runs} runs")
            check(group.pieces and _ascend(group.pieces), "pieces are out of order")
            check(group.pieces[0] >= 0 and group.pieces[-1] in _NUMBERS, "a piece is beyond all")
        check(self.total <= PIECES, f"{self.total} pieces are more than {PIECES}")
        seen = _seen(self)
        check(self.total == len(seen), "a piece is in two groups")
        most = min(self.runs, _kept(self.total))
        check(len(self.latest) <= most, f"{len(self.latest)} runs are kept, more than {most}")
        for run in self.latest:
            check(run.keys() <= seen.keys(), "a run has a piece that is in no group")
            check(all(band in _NUMBERS for band in run.values()), "a run has no such band")

    @property
    def total(self) -> int:
        """How many pieces it has."""
        return sum(len(group.pieces) for group in self.groups)

    def wanted(self) -> tuple[int, ...]:
        """Return the pieces of at least half of the runs, by band, then by position."""
        common = filter(self.is_wanted, self.groups)
        found = sorted((group.band, piece) for group in common for piece in group.pieces)
        return tuple(piece for _, piece in found)

    def is_wanted(self, group: Group) -> bool:
        """Tell whether at least half of the runs read a group."""
        return 2 * group.count >= self.runs

    def timed(self) -> list[Run]:
        """Return the latest runs; a band stands for its middle."""
        width = self.band_ms / 1000
        return [{piece: (band + 0.5) * width for piece, band in run.items()} for run in self.latest]


def merged(
    profile: Profile | None,
    run: Run,
    identity: str,
    piece_size: int = PIECE,
    band_ms: int = BAND_MS,
) -> Profile:
    """Add a run of the image with this identity to its profile, or to none yet.

    A piece goes to the band of its mean time; times known only by band count as its middle.
    A profile keeps its ``band_ms``. Beyond ``PIECES``, the pieces of fewest runs are left out,
    the latest first. Of the latest runs as many are kept as there is room for.

    :raises ProfileForeign: if the profile is of another image or piece size
    """
    profile = profile or Profile(identity, piece_size, 0, band_ms, ())
    if profile.identity != identity:
        raise ProfileForeign(
            f"the profile is of an image with root hash {profile.identity}, this one has"
            f" {identity}: record a new profile"
        )
    if profile.piece_size != piece_size:
        raise ProfileForeign(
            f"the profile has pieces of {profile.piece_size} bytes, what was recorded has"
            f" {piece_size}: record a new profile"
        )
    width, seen = profile.band_ms, _seen(profile)
    for piece, first_s in run.items():
        band, count = seen.get(piece, (0, 0))
        mean = (count * (band + 0.5) * width + first_s * 1000) / (count + 1)
        seen[piece] = (int(mean // width), count + 1)
    kept = sorted(seen, key=lambda piece: (-seen[piece][1], seen[piece][0], piece))[:PIECES]
    found: dict[tuple[int, int], list[int]] = {}
    for piece in sorted(kept):
        found.setdefault(seen[piece], []).append(piece)
    order = sorted(found, key=lambda one: (one[0], -one[1]))
    groups = tuple(Group(band, count, tuple(found[band, count])) for band, count in order)
    last = {piece: int(first_s * 1000 // width) for piece, first_s in run.items()}
    latest = _of([*profile.latest, last][-_kept(len(kept)) :], set(kept))
    return replace(profile, runs=profile.runs + 1, groups=groups, latest=latest)


def carried(profile: Profile, old: Leaves, new: Leaves, identity: str) -> Profile:
    """Return the profile of a new version of an image: the pieces that are the same in both.

    The salts of the two trees must be the same, or no digest is. Only the digests of pieces in
    the profile are read.

    :param old: leaves of the profile's image, padded with zeros or not
    :param new: leaves of the new version, as long as that image
    :param identity: of the new version
    """
    width = profile.piece_size // BLOCK * _DIGEST

    def is_same(piece: int) -> bool:
        start = piece * width
        digests = old[start : start + width]
        # behind an image's end are no digests, or zeros; no piece is there
        return any(digests[:_DIGEST]) and digests == new[start : start + width]

    parts = (
        replace(group, pieces=tuple(filter(is_same, group.pieces))) for group in profile.groups
    )
    groups = tuple(group for group in parts if group.pieces)
    latest = _of(profile.latest, {piece for group in groups for piece in group.pieces})
    return replace(profile, identity=identity, groups=groups, latest=latest)


def bands(profile: Profile) -> list[Band]:
    """Return what was read in each band, by time; without those in which nothing was."""
    found = []
    for number, those in groupby(profile.groups, key=lambda group: group.band):
        counts = [(group.count, len(group.pieces)) for group in those]
        pieces = sum(length for _, length in counts)
        share = sum(count * length for count, length in counts) / pieces / profile.runs
        begin = number * profile.band_ms / 1000
        found.append(Band(begin, pieces, pieces * profile.piece_size, share))
    return found


def rows(profile: Profile) -> list[tuple[str, str, str, str]]:
    """Return a row for each band, for people: begin in s, pieces, MiB, mean share of the runs."""
    return [
        (f"{one.begin:g}", f"{one.pieces}", f"{one.bytes / 2**20:.1f}", f"{one.share:.0%}")
        for one in bands(profile)
    ]


def _seen(profile: Profile) -> dict[int, tuple[int, int]]:
    return {piece: (group.band, group.count) for group in profile.groups for piece in group.pieces}


def _kept(pieces: int) -> int:
    """Return how many runs a profile of so many pieces keeps."""
    return min(LATEST, KEPT // max(pieces, 1))


def _of(runs: Iterable[Mapping[int, int]], pieces: Set[int]) -> tuple[Mapping[int, int], ...]:
    """Return what runs read of these pieces."""
    return tuple({one: band for one, band in run.items() if one in pieces} for run in runs)


def _ascend(keys: Iterable[Any]) -> bool:
    return all(one < other for one, other in pairwise(keys))


def check(is_so: object, otherwise: str) -> None:
    """Raise ProfileInvalid unless something is so."""
    if not is_so:
        raise ProfileInvalid(f"no valid boot profile: {otherwise}")
