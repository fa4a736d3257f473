"""Which pieces of an image are read in one go: clusters, found in runs that were recorded.

vTube (4.2.1) finds that a program's reads come in bursts, at times and in orders that differ from
run to run, while each burst is much the same. It puts what a run reads one soon after another
into a cluster, has overlapping clusters of two runs make three, and splits again what is now too
far apart in time::

    run 1       a b c d         e f          a burst, a pause, a burst
    run 2       a b     g       c d e f
                        |
    clusters    a b | c d | e f | g          d and e were one in run 2, not in run 1

The result does not depend on the order of the steps: it is the coarsest set of clusters each of
which is, in every run, read as a whole or not at all, and without a pause longer than the interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from virtman.model.profile import Run

INTERVAL_S = 2.0
"""Seconds: what is read no later than that after something else belongs to it (vTube, 4.2.1)."""


@dataclass(frozen=True)
class Cluster:
    """Pieces that are read together.

    :ivar pieces: at least one, about in the order in which they are read
    :ivar begins: for each run, the seconds to the first read of any; None if it read none
    """

    pieces: tuple[int, ...]
    begins: tuple[float | None, ...]


def clusters(runs: Sequence[Run], interval_s: float = INTERVAL_S) -> tuple[Cluster, ...]:
    """Return the clusters of some runs: each piece that was read is in one.

    They are in order of their first reads, on average.
    """
    found = [_cluster(one, runs) for one in _split(_by_runs(runs), runs, interval_s)]
    return tuple(sorted(found, key=lambda one: (_mean(one.begins), one.pieces)))


def _by_runs(runs: Sequence[Run]) -> list[list[int]]:
    """Return the pieces that the same runs read, together."""
    found: dict[tuple[bool, ...], list[int]] = {}
    for piece in sorted(set[int]().union(*runs)):
        found.setdefault(tuple(piece in run for run in runs), []).append(piece)
    return list(found.values())


def _split(groups: list[list[int]], runs: Sequence[Run], interval_s: float) -> list[list[int]]:
    """Split groups where a run paused, until no run did in any.

    What one run splits, others have to look at again: a pause may have been hidden by what is
    now elsewhere.
    """
    whole: list[list[int]] = []
    while groups:
        group = groups.pop()
        parts = next(
            (parts for run in runs if len(parts := _bursts(group, run, interval_s)) > 1), None
        )
        if parts is None:
            whole.append(group)
        else:
            groups += parts
    return whole


def _bursts(group: Iterable[int], run: Run, interval_s: float) -> list[list[int]]:
    """Return what a run read of a group without a pause; all of a group is read, or nothing."""
    bursts: list[list[int]] = []
    last = 0.0
    for piece in sorted((one for one in group if one in run), key=lambda one: (run[one], one)):
        if not bursts or run[piece] - last > interval_s:
            bursts.append([])
        bursts[-1].append(piece)
        last = run[piece]
    return bursts


def _cluster(group: Sequence[int], runs: Sequence[Run]) -> Cluster:
    those = [run for run in runs if group[0] in run]
    begins = tuple(min(run[one] for one in group) if group[0] in run else None for run in runs)
    since = {
        piece: sum(run[piece] - begin for run, begin in zip(those, _read(begins), strict=True))
        for piece in group
    }
    return Cluster(tuple(sorted(group, key=lambda piece: (since[piece], piece))), begins)


def _read(begins: Iterable[float | None]) -> Iterator[float]:
    return (begin for begin in begins if begin is not None)


def _mean(begins: Iterable[float | None]) -> float:
    found = list(_read(begins))
    return sum(found) / len(found)
