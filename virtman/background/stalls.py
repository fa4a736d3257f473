"""When a parent that lives, but answers no reads, counts as stuck.

A slow parent answers some read now and then, however many wait. So what counts is for how long a
disk has owed answers without giving one, against the longest time that it ever took for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_FIRST = 10.0
"""Seconds for the first answer, which may wait for the parent's own parents to be connected."""

_SHORTEST, _LONGEST = 2.0, 4.0
"""Seconds for others: twice the longest so far, but within these."""


@dataclass
class _Disk:
    """What a disk has answered, since when it owes an answer, and the longest that one took."""

    answered: int
    since: float | None = None
    longest: float | None = None

    def look(self, answered: int, owes: bool, now: float) -> bool:
        """Tell whether it is stuck."""
        if answered != self.answered:
            if self.since is not None:
                self.longest = max(self.longest or 0.0, now - self.since)
            self.answered, self.since = answered, None
        self.since = (self.since or now) if owes else None
        return self.since is not None and now - self.since >= self._patience()

    def _patience(self) -> float:
        if self.longest is None:
            return _FIRST
        return min(max(_SHORTEST, 2 * self.longest), _LONGEST)


class Stalls:
    """Which of the disks of parents are stuck."""

    def __init__(self) -> None:
        self._disks: dict[str, _Disk] = {}

    def look(self, reads: Mapping[str, tuple[int, bool]], now: float) -> set[str]:
        """Return the disks that are stuck.

        :param reads: of each disk, how many it has answered, and whether it owes more
        :param now: seconds of a clock that only goes forward
        """
        self._disks = {
            name: self._disks.get(name) or _Disk(answered) for name, (answered, _) in reads.items()
        }
        return {name for name, seen in reads.items() if self._disks[name].look(*seen, now)}
