"""When a silent host is taken for dead.

A few hosts that are silent are dead. If not one is heard of many, it is Volt who is cut off from
them. They go on without it, and would all have to be placed anew for nothing.
"""

import logging
import math
from typing import Protocol

from volt import metrics

LOG = logging.getLogger(__name__)

EVENTS = 10_000  # so many of the latest are kept
BATCH = 1_000  # hosts expired in one act
MANY = 3  # hosts that do not die all at once
_PRUNE_EVERY = 60  # ticks


class Hosts(Protocol):
    """Where hosts are found and expired."""

    def heard(self) -> tuple[int, int]:
        """Return how many hosts there are, and the tick at which the last of them was seen."""

    def silent(self, before: int, limit: int) -> list[str]:
        """Return up to ``limit`` hosts that were last seen before that tick."""

    def expire(self, names: list[str], before: int) -> int:
        """Expire those of the hosts that were not seen since that tick; return how many."""

    def note(self, kind: str, image: None, host: None, detail: str) -> None:
        """Keep an event."""

    def prune_events(self, keep: int) -> None:
        """Forget all but the latest events."""


class Reaper:
    """Expires hosts not seen for more than ``expiry`` ticks.

    Only the holder of the clock reaps. Should it lose the clock in the middle, nothing goes
    wrong: who was not seen since a tick of the past is silent for whoever holds the clock.
    """

    def __init__(self, hosts: Hosts, expiry: int) -> None:
        self._hosts = hosts
        self._expiry = expiry
        self._deaf = -math.inf  # the last tick at which nobody was heard
        self._pruned = 0

    def reap(self, tick: int) -> None:
        """Expire whoever is silent as of that tick."""
        before = tick - self._expiry
        silent = self._hosts.silent(before, BATCH)
        if silent and not self._is_patient(tick):
            LOG.info("Expiring %d hosts, silent for %s s: %s", len(silent), self._expiry,
                     ", ".join(silent[:10]))  # fmt: skip
            metrics.EXPIRIES.inc(self._hosts.expire(silent, before))
        if tick - self._pruned >= _PRUNE_EVERY:
            self._hosts.prune_events(EVENTS)
            self._pruned = tick

    def _is_patient(self, tick: int) -> bool:
        """Tell whether nobody is heard, or was until less than ``expiry`` ticks ago.

        Half of ``expiry`` without a word is enough: each host that lives reports twice in
        ``expiry``, and so nobody is expired before that can be known.
        """
        is_patient = tick - self._deaf <= self._expiry
        known, last = self._hosts.heard()
        if known < MANY or tick - last <= self._expiry / 2:
            return is_patient
        if not is_patient:
            said = f"{known} hosts, none heard for {tick - last} s"
            LOG.error("Is Volt cut off? %s: none is expired until one is heard", said)
            self._hosts.note("deaf", None, None, said)
        self._deaf = tick
        return True
