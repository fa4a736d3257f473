"""When a parent that lives, but answers no reads, counts as stuck.

A slow parent answers some read now and then, however many wait. So what counts is for how long a
disk has owed answers without giving one, against the longest time that it ever took for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_NEW = 10.0
"""Seconds for which a disk is new: its parent's own parents may still have to be connected."""

_SHORTEST, _LONGEST = 2.0, 4.0
"""Seconds for an answer: twice the longest so far, but within these."""


@dataclass
class _Disk:
    """What a disk has answered, since when it owes an answer, and the longest that one took."""

    born: float
    answered: int
    since: float | None = None
    longest: float = 0.0

    def look(self, answered: int, owes: bool, now: float) -> bool:
        """Tell whether it is stuck."""
        if answered != self.answered:
            if self.since is not None:
                self.longest = max(self.longest, now - self.since)
            self.answered, self.since = answered, None
        self.since = (self.since or now) if owes else None
        if self.since is None or now - self.born < _NEW:
            return False
        return now - self.since >= min(max(_SHORTEST, 2 * self.longest), _LONGEST)


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
            name: self._disks.get(name) or _Disk(now, answered)
            for name, (answered, _) in reads.items()
        }
        return {name for name, seen in reads.items() if self._disks[name].look(*seen, now)}
