"""When a parent that lives, but answers no reads, counts as stuck.

A slow parent answers some read now and then, however many wait. So what counts is for how long a
disk has owed answers without giving one, against the longest time that it ever took for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

_NEW = 10.0
"""Seconds for which a disk is new: its parent's own parents may still have to be connected. One of
a parent that was stuck before is not: who lets in again need not answer again."""

_SHORTEST, _LONGEST = 2.0, 4.0
"""Seconds for an answer: twice the longest so far, but within these."""


@dataclass
class _Disk:
    """What a disk has answered, since when it owes an answer, and the longest that one took."""

    answered: int
    new_until: float
    since: float | None = None
    longest: float = 0.0

    def look(self, answered: int, owes: bool, now: float) -> bool:
        """Tell whether it is stuck."""
        if answered != self.answered:
            if self.since is not None:
                self.longest = max(self.longest, now - self.since)
            self.answered, self.since = answered, None
        self.since = (self.since or now) if owes else None
        if self.since is None or now < self.new_until:
            return False
        return now - self.since >= min(max(_SHORTEST, 2 * self.longest), _LONGEST)


class Stalls:
    """Which parents are stuck.

    :param behind: returns the name of what a disk is read from; empty if it is no parent's
    """

    def __init__(self, behind: Callable[[str], str]) -> None:
        self.behind = behind
        self._disks: dict[str, _Disk] = {}
        self._were_stuck: set[str] = set()

    def look(self, reads: Mapping[str, tuple[int, bool]], now: float) -> set[str]:
        """Return the names of those that are stuck.

        :param reads: of each disk, how many it has answered, and whether it owes more
        :param now: seconds of a clock that only goes forward
        """
        self._disks = {
            disk: self._disks.get(disk) or self._met(disk, answered, now)
            for disk, (answered, _) in reads.items()
        }
        disks = [disk for disk, seen in reads.items() if self._disks[disk].look(*seen, now)]
        stuck = {self.behind(disk) for disk in disks} - {""}
        self._were_stuck |= stuck
        return stuck

    def _met(self, disk: str, answered: int, now: float) -> _Disk:
        is_known = self.behind(disk) in self._were_stuck
        return _Disk(answered, now if is_known else now + _NEW)
