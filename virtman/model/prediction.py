"""What VMs will read soon after they have read a piece (vTube, 4.2.2).

Runs tell which cluster was read after which, and how soon. What is small is hard to predict and
costs little, so it is fetched though it is unlikely; what is large has to be likely::

    P(Y after X) > share of all pieces that are in clusters smaller than Y

Pieces in clusters as large as Y, and in Y, count half, as in a percentile rank. With vTube's many
clusters, of pieces of 4 KiB, that changes little. Here many clusters have a single piece: without
that half they would be fetched however unlikely they are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from virtman.model.clusters import Cluster

WINDOW_S = 960.0
"""Seconds that are looked ahead: 16 minutes, as in vTube (5.1)."""

HINT_S = 120.0
"""Seconds without a miss, after which other reads tell what follows: as in vTube (5.1)."""


@dataclass(frozen=True)
class Coming:
    """A cluster that will be read.

    :ivar after_s: how soon at the earliest, as far as runs tell
    """

    cluster: Cluster
    after_s: float


class Prediction:
    """What follows what, by some runs.

    :param window_s: what comes later is not predicted
    """

    def __init__(self, clusters: Sequence[Cluster], window_s: float = WINDOW_S) -> None:
        self._clusters = clusters
        self._window_s = window_s
        self._of = {piece: place for place, one in enumerate(clusters) for piece in one.pieces}
        self._sizes = sorted(len(cluster.pieces) for cluster in clusters)
        self._pieces = [0, *accumulate(self._sizes)]
        self._after = cache(self._followers)

    def begin(self) -> tuple[Coming, ...]:
        """Return what to fetch before anything is read, soonest first."""
        runs = len(self._clusters[0].begins) if self._clusters else 0
        return self._coming(self._likely(Cluster((), (0.0,) * runs)))

    def after(self, *pieces: int) -> tuple[Coming, ...]:
        """Return what to fetch once somebody reads pieces: soonest first, their own before all.

        Nothing follows a piece that no run has read.
        """
        read = {self._of[piece] for piece in pieces if piece in self._of}
        found: dict[int, float] = {}
        for place in read:
            for other, after_s in self._after(place).items():
                found[other] = min(after_s, found.get(other, after_s))
        return self._coming(dict.fromkeys(sorted(read), 0.0) | found)

    def percentile(self, size: int) -> float:
        """Return the share of all pieces that are in clusters of fewer pieces than that.

        Those in clusters of as many count half.
        """
        fewer, as_many = bisect_left(self._sizes, size), bisect_right(self._sizes, size)
        return (self._pieces[fewer] + self._pieces[as_many]) / 2 / self._pieces[-1]

    def _coming(self, found: Mapping[int, float]) -> tuple[Coming, ...]:
        order = sorted(found, key=lambda place: found[place])
        return tuple(Coming(self._clusters[place], found[place]) for place in order)

    def _followers(self, place: int) -> Mapping[int, float]:
        return self._likely(self._clusters[place]) | {place: 0.0}

    def _likely(self, read: Cluster) -> dict[int, float]:
        """Return the places of clusters that follow one, and how soon."""
        found = {}
        for place, other in enumerate(self._clusters):
            intervals = following(read, other)
            if not intervals or min(intervals) > self._window_s:
                continue
            if len(intervals) / _runs(read) > self.percentile(len(other.pieces)):
                found[place] = min(intervals)
        return found


def following(one: Cluster, other: Cluster) -> list[float]:
    """Return how soon after one cluster another was read: a number for each run that did so."""
    return [
        there - here
        for here, there in zip(one.begins, other.begins, strict=True)
        if here is not None and there is not None and there >= here
    ]


def _runs(cluster: Cluster) -> int:
    return sum(begin is not None for begin in cluster.begins)
