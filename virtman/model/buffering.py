"""How much of what is fetched must be there before a VM goes on, and for how long it waits.

vTube (4.2.3) compares what will have been read by when with what the line can bring by then. What
it cannot bring in time has to come first, while the VM stands still; the rest comes while it runs::

    bytes
      |                   ____|  read, if the VM goes on now
      |             _____|   .
      |       _____|      .      come, by the rate of the line
      |  ____|         .
      | |          .
    H | |      .                 H: how much has to be there first, so that the dots
      | |  .                     are never below the steps
      +-----------------------> s
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_MEASURED = 1 << 20
"""Bytes that have come, after which their time tells the rate of a line."""


@dataclass(frozen=True)
class Connection:
    """A line, as it was measured.

    :ivar rate: bytes/s
    :ivar round_trip_s: seconds until the first byte comes of what is asked for
    """

    rate: float
    round_trip_s: float


def head(demands: Iterable[tuple[float, float]], rate: float) -> float:
    """Return the bytes that must be there before a VM goes on, so that it waits for none later.

    :param demands: seconds after it goes on, and bytes that it begins to read then; in order.
        All bytes of one are taken to be needed at its begin
    :param rate: bytes/s
    """
    total = most = 0.0
    for after_s, size in demands:
        total += size
        most = max(most, total - rate * after_s)
    return most


def needed(demands: Iterable[tuple[float, float]], come: int, seconds: float) -> float:
    """Return the same, by what has come over the line up to now: all, while that tells nothing.

    :param come: bytes
    :param seconds: for which they came
    """
    return head(demands, come / seconds if come >= _MEASURED and seconds else 0.0)


def pause(amount: float, connection: Connection) -> float:
    """Return the seconds until that many bytes are there that are asked for now."""
    return connection.round_trip_s + amount / connection.rate if amount else 0.0
