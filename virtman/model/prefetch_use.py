"""Whether what is fetched ahead is used: else no more is.

Pure: the caller measures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from virtman.model import sizes
from virtman.model.profile import Profile
from virtman.model.read_counts import Count

LEAST_USED = 0.7
"""Share of the pieces fetched ahead that VMs have to read."""

SPAN_S = 10.0
"""Seconds back that are looked at to tell whether pieces are used."""

_FEW = 16  # pieces; a MiB for nothing is no reason to stop

_LATELY = 32
"""Areas that were read last, which tell how far the boot is."""

_FOREIGN = 0.1
"""Share of the pieces that VMs read which a profile has at least, if it is of their workload."""

_ENOUGH = 8
"""Pieces that VMs have read before that share tells something."""

_STRANGE = 0.5
"""The same share where VMs are followed: of runs that vary, others have read nearly all."""


class Usefulness:
    """Whether VMs read what is fetched ahead.

    :param ahead_s: how long before its use a piece may come. Later ones are not judged yet::

            not looked at  |<-- span_s: judged -->|<-- ahead_s -->|
        -------------------+----------------------+---------------> now
    """

    def __init__(
        self, least: float = LEAST_USED, span_s: float = SPAN_S, ahead_s: float = 0
    ) -> None:
        self._least = least
        self._span_s = span_s
        self._ahead_s = ahead_s
        self._began: float | None = None
        self._fetched: dict[int, float] = {}
        self._unused: set[int] = set()

    def fetched(self, now: float, piece: int) -> None:
        """Take notice that a piece came, fetched ahead."""
        if self._began is None:
            self._began = now
        self._fetched[piece] = now
        self._unused.add(piece)

    def used(self, piece: int) -> None:
        """Take notice that a VM read a piece; one that was not fetched ahead does not count."""
        self._unused.discard(piece)

    def is_poor(self, now: float) -> bool:
        """Tell whether to stop: too few of the pieces that came in the span were used.

        Not before the first span is over, and not for less than 16 pieces.
        """
        last = now - self._ahead_s
        first = last - self._span_s
        if self._began is None or self._began > first:
            return False
        self._fetched = {piece: time for piece, time in self._fetched.items() if time >= first}
        self._unused &= self._fetched.keys()
        judged = [piece for piece, time in self._fetched.items() if time <= last]
        if len(judged) < _FEW:
            return False
        used = sum(piece not in self._unused for piece in judged)
        return used / len(judged) < self._least


@dataclass(frozen=True)
class Look:
    """What VMs have read of a profile since the look before.

    :ivar used: pieces that came ahead
    :ivar missed: those that did not, when somebody wanted them for the first time
    :ivar strange: pieces that the profile does not have, at that time
    """

    used: tuple[int, ...]
    missed: tuple[int, ...]
    strange: tuple[int, ...]


class Judge:
    """Whether VMs read what is fetched ahead.

    A boot may be slower than those that were recorded. So time is not what passes here, but how
    far the boot has come in the profile: the band of what VMs read last. That band is not judged
    yet: all of it was read in about a second as it was recorded, and may be hundreds of pieces.

    What VMs read is counted by areas, which may have many pieces. Of those that were not fetched
    ahead it is known which ones: they are in memory because somebody wanted them. The rest of what
    was read in an area is taken to be of the pieces that came ahead.

    Where runs vary, and what comes follows what VMs read, a band tells nothing of how far they
    are. Then it is enough that the profile has half of what they read.

    :param area: bytes of which it is known together how much was read
    :param follows: whether what comes follows what VMs read
    """

    def __init__(self, profile: Profile, area: int, *, follows: bool = False) -> None:
        self._follows = follows
        self._usefulness = Usefulness(ahead_s=profile.band_ms / 1000)
        self._piece = profile.piece_size
        self._area = area
        self._bucket = max(area, self._piece)
        self._times: dict[int, float] = {}
        for group in profile.groups:
            seconds = group.band * profile.band_ms / 1000
            self._times |= dict.fromkeys(group.pieces, seconds)
        self._ahead: set[int] = set()
        self._unused: dict[int, list[int]] = {}
        self._sectors: dict[int, int] = {}
        self._known: set[int] = set()
        self._strange: set[int] = set()
        self._owed: dict[int, int] = {}
        self._lately: deque[float] = deque(maxlen=_LATELY)

    def coming(self, pieces: Iterable[int]) -> None:
        """Take notice that pieces are about to be fetched ahead."""
        self._ahead.update(pieces)

    def fetched(self, piece: int) -> None:
        """Take notice that a piece came, fetched ahead."""
        self._usefulness.fetched(self._times[piece], piece)
        self._unused.setdefault(self._bucket_of(piece), []).append(piece)

    def changed(self, seen: Mapping[int, Count]) -> list[int]:
        """Return the areas of which VMs have read more since the last look."""
        return [area for area, count in seen.items() if self._sectors.get(area) != count.sectors]

    def look(self, seen: Mapping[int, Count], wanted: Iterable[int]) -> Look:
        """Return which pieces were read since the last look.

        :param seen: all that VMs have read
        :param wanted: pieces of the areas that changed which are in memory, because somebody
            wanted something of them or they came ahead
        """
        missed, strange = self._take(wanted)
        fresh: dict[int, int] = {}
        for area in self.changed(seen):
            bucket = area * self._area // self._bucket
            more = seen[area].sectors - self._sectors.get(area, 0)
            fresh[bucket] = fresh.get(bucket, 0) + more * sizes.SECTOR
            self._sectors[area] = seen[area].sectors
        used: list[int] = []
        for bucket, read in fresh.items():
            owed = self._owed.get(bucket)
            if owed is not None:
                self._owed[bucket] = max(0, owed - read)
            waiting = self._unused.get(bucket, [])
            these = waiting[: -(-max(0, read - (owed or 0)) // self._piece)]
            for piece in these:
                self._usefulness.used(piece)
                self._lately.append(self._times[piece])
            # else it may have been a strange one that was read again: one of another workload
            if owed is None or self._follows:
                self._known.update(these)
            used += these
            del waiting[: len(these)]
        return Look(tuple(used), missed, strange)

    def is_proven(self) -> bool:
        """Tell whether VMs have read a piece of the profile."""
        return bool(self._known)

    def is_poor(self) -> bool:
        """Tell whether the profile is of another workload than what runs."""
        known, read = len(self._known), len(self._known) + len(self._strange)
        if self._follows:
            return read >= _LATELY and known < _STRANGE * read
        if read >= _ENOUGH and known < _FOREIGN * read:
            return True
        if len(self._lately) < _LATELY:
            return False
        return self._usefulness.is_poor(sorted(self._lately)[_LATELY // 2])

    def _take(self, wanted: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Take notice of pieces that VMs read and that did not come ahead.

        :returns: the new ones that the profile has, and those that it does not have
        """
        missed, strange = [], []
        for piece in sorted(set(wanted) - self._ahead):
            if piece in self._times:
                if piece not in self._known:
                    missed.append(piece)
                self._known.add(piece)
            elif piece not in self._strange:
                strange.append(piece)
                self._strange.add(piece)
                bucket = self._bucket_of(piece)
                self._owed[bucket] = self._owed.get(bucket, 0) + self._piece
        return tuple(missed), tuple(strange)

    def _bucket_of(self, piece: int) -> int:
        return piece * self._piece // self._bucket
