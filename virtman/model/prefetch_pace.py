"""How fast pieces are fetched ahead, and when no more are: what VMs read now goes first.

Pure: the caller measures, and gives times as seconds of a clock that never goes back.
"""

from __future__ import annotations

import math

LARGEST = 8
"""Pieces in flight for a stripe, at most: with 16, parents dropped connections."""

HURT = 2.0
"""How many times longer than idle a read of a VM may take."""

LEAST_USED = 0.7
"""Share of the pieces fetched ahead that VMs have to read."""

SPAN_S = 10.0
"""Seconds back that are looked at to tell whether pieces are used."""

_FEW = 16  # pieces; a MiB for nothing is no reason to stop
_BURST_S = 0.1


class Window:
    """How many pieces of a stripe may be in flight.

    Additive increase, multiplicative decrease: one more each time that as many have come, half
    when VMs are hurt. While they are hurt, it does not grow.
    """

    def __init__(self, largest: int = LARGEST) -> None:
        self.size = 1
        self._largest = largest
        self._came = 0
        self._hurt = False

    def came(self) -> None:
        """Take notice that a piece came."""
        if self._hurt:
            return
        self._came += 1
        if self._came >= self.size:
            self.size = min(self.size + 1, self._largest)
            self._came = 0

    def demand(self, read_s: float, idle_s: float) -> None:
        """Take notice of how long a read of a VM takes now.

        :param read_s: mean of late; 0 if nothing was read
        :param idle_s: mean when nothing is fetched ahead; 0 if that is not known
        """
        self._hurt = bool(idle_s) and read_s > HURT * idle_s
        if self._hurt:
            self.size = max(self.size // 2, 1)
            self._came = 0


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


class Cap:
    """How many bytes a second may be fetched ahead: a token bucket, for which takers queue.

    It holds a tenth of a second's bytes. A piece that is longer passes, and is waited for::

        |<-- may be fetched -->|<-- waits -->|
        0                    free          taken: bytes so far

    :ivar rate: bytes/s; 0 is nothing, None is without a cap
    """

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self._taken = 0.0
        self._free = math.inf
        self._last = 0.0

    def change(self, now: float, rate: float | None) -> None:
        """Have another rate from now on, also for what waits."""
        self._let_pass(now)
        self.rate = rate

    def take(self, now: float, amount: int) -> float:
        """Take so many bytes; return where they end in the queue."""
        self._let_pass(now)
        self._taken += amount
        return self._taken

    def delay(self, now: float, end: float) -> float:
        """Return how many seconds to wait before what ends there is fetched, at this rate."""
        self._let_pass(now)
        if end <= self._free:
            return 0
        return (end - self._free) / self.rate if self.rate else math.inf

    def _let_pass(self, now: float) -> None:
        if self.rate is None:
            self._free = math.inf
        else:
            gained = (now - self._last) * self.rate
            self._free = min(self._free + gained, self._taken + self.rate * _BURST_S)
        self._last = now
