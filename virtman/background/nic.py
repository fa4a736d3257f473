"""How busy the network card is through which this node serves, and whether it is too busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

_MEGABIT = 1_000_000 // 8
_IN_A_ROW = 3
_RELIEF = 0.8


@dataclass(frozen=True)
class Rates:
    """Bytes a second since the look before this one."""

    received: int = 0
    sent: int = 0


class Card:
    """The network card that holds an address.

    :param bandwidth: of its link in Mbit/s; 0 to ask the card
    """

    def __init__(
        self, ip: str, bandwidth: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.ip = ip
        self.bandwidth = bandwidth
        self.clock = clock
        self._last: tuple[str, float, int, int] | None = None

    def rates(self) -> Rates:
        """Return how much went through since the last call; zeros at the first."""
        name = self._name()
        counters = psutil.net_io_counters(pernic=True).get(name)
        if counters is None:
            self._last = None
            return Rates()
        now = (name, self.clock(), counters.bytes_recv, counters.bytes_sent)
        last, self._last = self._last, now
        if last is None or last[0] != name or now[1] <= last[1]:
            return Rates()
        passed = now[1] - last[1]
        return Rates(
            max(0, round((now[2] - last[2]) / passed)), max(0, round((now[3] - last[3]) / passed))
        )

    def speed(self) -> int:
        """Return what the link can carry each way, in bytes a second; 0 if nobody knows."""
        card = psutil.net_if_stats().get(self._name())
        return (self.bandwidth or (card.speed if card else 0)) * _MEGABIT

    def _name(self) -> str:
        """Kernel name of the card; empty if no card has the address just now."""
        return next(
            (
                name
                for name, addresses in psutil.net_if_addrs().items()
                if any(one.address.partition("%")[0] == self.ip for one in addresses)
            ),
            "",
        )


class Overload:
    """Whether this node sends too much to feed more children.

    It takes several looks in a row to change that, and a good deal less traffic to end it
    than to begin it, so that it does not change with every burst.

    :param share: of the link's speed; at 1 there is no such thing
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.present = False
        self._against = 0

    def look(self, sent: int, speed: int) -> bool:
        """Take a look, in bytes a second, into account; return whether it is too much now."""
        limit = self.share * speed * (_RELIEF if self.present else 1)
        busy = 0 < limit < sent and self.share < 1
        self._against = self._against + 1 if busy != self.present else 0
        if self._against == _IN_A_ROW:
            self.present, self._against = busy, 0
        return self.present
