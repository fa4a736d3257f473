"""When a silent host is taken for dead."""

import logging
from typing import Protocol

from volt import metrics

LOG = logging.getLogger(__name__)

EVENTS = 10_000  # so many of the latest are kept
BATCH = 1_000  # hosts expired in one act
_PRUNE_EVERY = 60  # ticks


class Hosts(Protocol):
    """Where hosts are found and expired."""

    def silent(self, before: int, limit: int) -> list[str]:
        """Return up to ``limit`` hosts that were last seen before that tick."""

    def expire(self, names: list[str], before: int) -> int:
        """Expire those of the hosts that were not seen since that tick; return how many."""

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
        self._pruned = 0

    def reap(self, tick: int) -> None:
        """Expire whoever is silent as of that tick."""
        before = tick - self._expiry
        silent = self._hosts.silent(before, BATCH)
        if silent:
            LOG.info("Expiring %d hosts, silent for %s s: %s", len(silent), self._expiry,
                     ", ".join(silent[:10]))  # fmt: skip
            metrics.EXPIRIES.inc(self._hosts.expire(silent, before))
        if tick - self._pruned >= _PRUNE_EVERY:
            self._hosts.prune_events(EVENTS)
            self._pruned = tick
