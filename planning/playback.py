"""How many bytes of an image a VM has read by when.

VMTorrent (section 3) calls the curve M(t) if nothing makes the VM wait, and P(t) if something
does. Both are piecewise linear here, so what follows from them is exact.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from planning.errors import check
from virtman.model.profile import Profile, bands


@dataclass(frozen=True)
class Playback:
    """A curve through these points; none of the numbers ever falls.

    :ivar seconds: since the VM could begin
    :ivar amounts: bytes read by then, as many; the first is 0
    :raises Invalid: if it is not so
    """

    seconds: tuple[float, ...]
    amounts: tuple[float, ...]

    def __post_init__(self) -> None:
        check(self.seconds, "a playback curve has no point: give at least one")
        check(len(self.seconds) == len(self.amounts), "a playback curve needs a time for each size")
        numbers = (*self.seconds, *self.amounts)
        check(all(map(math.isfinite, numbers)), "a playback curve has finite numbers only")
        check(self.seconds[0] >= 0, "a playback curve begins at 0 seconds or later")
        check(self.amounts[0] == 0, "a playback curve begins with 0 bytes")
        check(_never_falls(self.seconds), "the seconds of a playback curve never fall")
        check(_never_falls(self.amounts), "the bytes of a playback curve never fall")

    @property
    def total(self) -> float:
        """Bytes that are read in all: A."""
        return self.amounts[-1]

    @property
    def end(self) -> float:
        """Seconds until all is read and thought about."""
        return self.seconds[-1]

    def read(self, second: float) -> float:
        """Return the bytes that are read by that time: M(t)."""
        place = bisect_right(self.seconds, second)
        return _between(self.seconds, self.amounts, second, place)

    def when(self, amount: float) -> float:
        """Return the first time by which so many bytes are read: the inverse of M."""
        place = bisect_left(self.amounts, amount)
        return _between(self.amounts, self.seconds, amount, place)

    def later(self, seconds: float) -> Playback:
        """Return the same, begun so much later."""
        return Playback(tuple(one + seconds for one in self.seconds), self.amounts)

    def stretched(self, end: float) -> Playback:
        """Return the same reads, with the pauses stretched so that they take so long."""
        check(self.end > 0, "a boot without a pause cannot be stretched: leave out its time")
        return Playback(tuple(one * end / self.end for one in self.seconds), self.amounts)


def regular(amount: float, seconds: float, piece: float) -> Playback:
    """Return the playback of a VM that reads a piece, computes for a while, and so on."""
    check(amount > 0, f"a working set of {amount:g} bytes: it must have some")
    check(seconds >= 0, f"a boot of {seconds:g} seconds: it cannot end before it begins")
    check(piece > 0, f"pieces of {piece:g} bytes: they must have some")
    count = math.ceil(amount / piece)
    return _steps((seconds / count, amount / count) for _ in range(count))


def recorded(profile: Profile) -> Playback:
    """Return what boots read by a profile, on average: in each of its bands as ``regular`` does.

    The boots that were recorded waited for their reads, so a VM without waits is faster: stretch
    the curve to its time.
    """
    check(profile.groups, "the profile has no pieces: record another")
    width = profile.band_ms / 1000
    steps: list[tuple[float, float]] = []
    end = 0.0
    for band in bands(profile):
        steps.append((band.begin - end, 0.0))
        steps += [(width / band.pieces, band.share * profile.piece_size)] * band.pieces
        end = band.begin + width
    return _steps(steps)


def _steps(steps: Iterable[tuple[float, float]]) -> Playback:
    """Return the playback of pauses, and of what is read at once after each."""
    now = amount = 0.0
    seconds, amounts = [now], [amount]
    for pause, read in steps:
        now += pause
        seconds += [now, now]
        amounts += [amount, amount + read]
        amount += read
    return Playback(tuple(seconds), tuple(amounts))


def _never_falls(numbers: Sequence[float]) -> bool:
    return all(one <= other for one, other in pairwise(numbers))


def _between(known: Sequence[float], wanted: Sequence[float], at: float, place: int) -> float:
    """Return what belongs to ``at``, which lies before that place among the known numbers."""
    if place == 0:
        return wanted[0]
    if place == len(known):
        return wanted[-1]
    share = (at - known[place - 1]) / (known[place] - known[place - 1])
    return wanted[place - 1] + share * (wanted[place] - wanted[place - 1])
