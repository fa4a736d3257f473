"""Which piece of an image is fetched ahead next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import StrEnum
from random import Random

AHEAD = 300
"""Pieces among which one is picked at random, by default."""


class Policy(StrEnum):
    """What is fetched, and how the next piece is picked.

    In order suits hosts with one parent a stripe: each piece comes when it is wanted. With a
    random one of the first k, hosts that boot at once hold different pieces; those wanted soon
    come later (VMTorrent, 2.2.4). With a stream, what VMs read says what comes next (vTube, 4.2).
    """

    IN_ORDER = "in-order"
    WINDOW_RANDOM = "window-random"
    STREAM = "stream"


class Queue:
    """Pieces that are to be fetched, each once.

    ::

        put: 7 8 ->  | 3 4 5 6 ...      one of the first k is next
                     |<- k ->|

    :param k: of how many one is picked; 1 is in order
    """

    def __init__(self, dice: Random, k: int = 1) -> None:
        self._dice = dice
        self._k = k
        self._waiting: deque[int] = deque()
        self._known: set[int] = set()

    @property
    def next(self) -> int | None:
        """Which piece is taken next; None if none waits."""
        return self._waiting[0] if self._waiting else None

    def put(self, pieces: Iterable[int]) -> list[int]:
        """Have pieces fetched in this order, before all that wait; none is a second time.

        :returns: those that were never put before
        """
        waiting = set(self._waiting)
        first = [one for one in dict.fromkeys(pieces) if one in waiting or one not in self._known]
        new = [one for one in first if one not in waiting]
        moved = set(first)
        self._waiting = deque([*first, *(one for one in self._waiting if one not in moved)])
        self._known |= moved
        self._pick()
        return new

    def take(self) -> int | None:
        """Take the next piece; None if none waits."""
        if not self._waiting:
            return None
        taken = self._waiting.popleft()
        self._pick()
        return taken

    def _pick(self) -> None:
        """Put the piece that is next before all others."""
        if self._k > 1 and self._waiting:
            picked = self._dice.randrange(min(self._k, len(self._waiting)))
            piece = self._waiting[picked]
            del self._waiting[picked]
            self._waiting.appendleft(piece)


def queue(policy: Policy, dice: Random) -> Queue:
    """Return the queue of a policy, empty."""
    return Queue(dice, AHEAD if policy is Policy.WINDOW_RANDOM else 1)
