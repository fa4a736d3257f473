"""How fast pieces are fetched ahead: what VMs read now goes first.

Pure: the caller measures, and gives times as seconds of a clock that never goes back.
"""

from __future__ import annotations

import math

from virtman.model.profile import PIECE
from virtman.model.read_counts import Count

LARGEST = 8
"""Pieces in flight for a stripe, at most."""

LARGEST_BYTES = 512 * 1024
"""The same in bytes: with a MiB, parents dropped connections."""

HURT = 2.0
"""How many times longer than idle a read of a VM may take."""

_IDLE_READS = 8
"""Reads of VMs that tell how long one takes with one piece in flight a stripe."""

_BURST_S = 0.1


def step(piece: int) -> int:
    """Return how many pieces of so many bytes count as one in flight: as many as make one up."""
    return max(PIECE // piece, 1)


def fitting(window: int, piece: int) -> int:
    """Return how many pieces of so many bytes may be in flight of a window, at most: one may."""
    return min(window * step(piece), max(LARGEST_BYTES // piece, 1))


class Window:
    """How many pieces of a stripe may be in flight.

    Additive increase, multiplicative decrease: a step more each time that as many have come, half
    when VMs are hurt. While they are hurt, it does not grow.

    :ivar size: pieces
    :ivar step: pieces that it has at least, and by which it grows
    """

    def __init__(self, largest: int = LARGEST, step: int = 1) -> None:
        self.size = self.step = step
        self._largest = largest
        self._came = 0
        self._hurt = False

    def came(self) -> None:
        """Take notice that a piece came."""
        if self._hurt:
            return
        self._came += 1
        if self._came >= self.size:
            self.size = min(self.size + self.step, self._largest)
            self._came = 0

    def demand(self, read_s: float, idle_s: float) -> None:
        """Take notice of how long a read of a VM takes now.

        :param read_s: mean of late; 0 if nothing was read
        :param idle_s: mean with one piece in flight; 0 if that is not known, so that whoever waits
            is hurt, and one step is what may be in flight
        """
        self._hurt = read_s > HURT * idle_s
        if self._hurt:
            self.size = max(self.size // 2, self.step) if idle_s else self.step
            self._came = 0


class Idle:
    """How long a read takes that memory does not answer, while hardly anything is fetched ahead.

    The first read that waits has windows of one piece, and the next eight tell it::

        -- none waits --|-- one has: windows of 1 --|-- known
                        first look at it            8 more reads

    :ivar seconds: mean; 0 as long as it is not known
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._learns = False
        self._last = (0, 0.0)

    def look(self, seen: dict[int, Count]) -> float:
        """Return how long reads took since the last look, on average; 0 if none waited.

        Infinity while it is learnt how long they take.
        """
        waited = sum(one.waited for one in seen.values())
        seconds = sum(one.seconds for one in seen.values())
        fresh = waited - self._last[0]
        if self._learns and fresh < _IDLE_READS:
            return math.inf
        mean = (seconds - self._last[1]) / fresh if fresh else 0.0
        self._last = waited, seconds
        if self._learns:
            self.seconds, self._learns = mean, False
        elif fresh and not self.seconds:
            self._learns = True  # these found more in flight
            return math.inf
        return mean


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
