"""What VMs will read soon after they have read a piece (vTube, 4.2.2).

Runs tell which cluster was read after which, and how soon. What is small is hard to predict and
costs little, so it is fetched though it is unlikely; what is large has to be likely::

    P(Y after X) > share of all pieces that are in clusters smaller than Y
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from virtman.model.clusters import Cluster

WINDOW_S = 960.0
"""Seconds that are looked ahead: 16 minutes, as in vTube (5.1)."""


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
        self._of = {piece: cluster for cluster in clusters for piece in cluster.pieces}
        self._sizes = sorted(len(cluster.pieces) for cluster in clusters)
        self._pieces = [0, *accumulate(self._sizes)]

    def after(self, piece: int) -> tuple[Coming, ...]:
        """Return what to fetch once somebody reads a piece: soonest first, its cluster before all.

        Nothing if no run has read it.
        """
        read = self._of.get(piece)
        if read is None:
            return ()
        found = [Coming(read, 0.0)]
        for other in self._clusters:
            intervals = following(read, other)
            if other is read or not intervals or min(intervals) > self._window_s:
                continue
            if len(intervals) / _runs(read) > self.percentile(len(other.pieces)):
                found.append(Coming(other, min(intervals)))
        return (found[0], *sorted(found[1:], key=lambda one: one.after_s))

    def percentile(self, size: int) -> float:
        """Return the share of all pieces that are in clusters of fewer pieces than that."""
        return self._pieces[bisect_left(self._sizes, size)] / self._pieces[-1]


def following(one: Cluster, other: Cluster) -> list[float]:
    """Return how soon after one cluster another was read: a number for each run that did so."""
    return [
        there - here
        for here, there in zip(one.begins, other.begins, strict=True)
        if here is not None and there is not None and there >= here
    ]


def _runs(cluster: Cluster) -> int:
    return sum(begin is not None for begin in cluster.begins)
