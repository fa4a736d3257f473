"""One line from a server to a client, which carries one piece after another.

The server hears of what is asked for after half a round trip, and each piece takes as long again
after its last byte was sent. What is sent is not called back. Pieces that a VM waits for go before
all that are sent ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from virtman.model.buffering import Connection

LINES = (Connection(7.2e6 / 8, 0.12), Connection(25e6 / 8, 0.001))
"""A slow line over a long way, as in vTube (5.1), and one that a host has for itself."""


class Line:
    """What of an image has come to a client, and what is on its way.

    Times are seconds of one clock; callers never go back.
    """

    def __init__(self, piece: int, connection: Connection) -> None:
        self._piece_s = piece / connection.rate
        self._half_s = connection.round_trip_s / 2
        self._free = 0.0
        self._coming: deque[int] = deque()
        self._there: dict[int, float] = {}

    def when(self, piece: int, now: float) -> float | None:
        """Return when a piece that is there, or on its way, is there; None if it is neither."""
        self._pass(now + self._half_s)
        return self._there.get(piece)

    def fetch(self, piece: int, now: float) -> float:
        """Have a piece sent that a VM waits for; return when it is there."""
        self.push([piece], now)
        self._send()
        return self._there[piece]

    def push(self, pieces: Sequence[int], now: float) -> None:
        """Have pieces sent ahead in this order, before all that are waiting for their turn."""
        heard = now + self._half_s
        self._pass(heard)
        fresh = dict.fromkeys(piece for piece in pieces if piece not in self._there)
        self._coming = deque([*fresh, *(one for one in self._coming if one not in fresh)])
        self._free = max(self._free, heard)

    def lacking(self, pieces: Iterable[int], now: float) -> list[int]:
        """Return those that are neither there nor on their way."""
        self._pass(now + self._half_s)
        return [piece for piece in pieces if piece not in self._there]

    def sent(self, now: float) -> int:
        """Return how many pieces were sent, or are being sent."""
        self._pass(now + self._half_s)
        return len(self._there)

    def _pass(self, heard: float) -> None:
        while self._coming and self._free < heard:
            self._send()

    def _send(self) -> None:
        self._free += self._piece_s
        self._there[self._coming.popleft()] = self._free + self._half_s
