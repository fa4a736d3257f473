"""When a silent host is taken for dead: after a while, unless most fell silent at once."""

import logging
from typing import Protocol

from volt import metrics
from volt.background.brake import Brake, Phase

LOG = logging.getLogger(__name__)

EVENTS = 10_000  # so many of the latest are kept
BATCH = 1_000  # hosts expired in one act
_PRUNE_EVERY = 60  # ticks
_SAID = {
    Phase.HELD: "Most hosts are silent again",
    Phase.BACK: "Most hosts are heard again: the others have their time anew",
    Phase.SPENT: "Most hosts stayed silent for a day: they are taken for dead",
    Phase.OFF: "Silent hosts are expired again",
}


class Hosts(Protocol):
    """Where hosts are found and expired."""

    def silence(self, before: int) -> tuple[int, int]:
        """Return how many hosts there are, and how many were last seen before that tick."""

    def silent(self, before: int, limit: int) -> list[str]:
        """Return up to ``limit`` hosts that were last seen before that tick."""

    def expire(self, names: list[str], before: int) -> int:
        """Expire those of the hosts that were not seen since that tick; return how many."""

    def note(self, kind: str, image: None, host: None, detail: str) -> None:
        """Keep an event."""

    def prune_events(self, keep: int) -> None:
        """Forget all but the latest events."""


class Reaper:
    """Expires hosts not seen for more than ``expiry`` ticks, unless the brake holds.

    Only the holder of the clock reaps. Should it lose the clock in the middle, nothing goes
    wrong: who was not seen since a tick of the past is silent for whoever holds the clock.
    """

    def __init__(self, hosts: Hosts, expiry: int) -> None:
        self._hosts = hosts
        self._expiry = expiry
        self._brake = Brake(expiry)
        self._pruned = 0

    def reap(self, tick: int) -> None:
        """Expire whoever is silent as of that tick."""
        before = tick - self._expiry
        silent = self._hosts.silent(before, BATCH)
        if not self._is_held(tick, bool(silent)) and silent:
            LOG.info("Expiring %d hosts, silent for %s s: %s", len(silent), self._expiry,
                     ", ".join(silent[:10]))  # fmt: skip
            metrics.EXPIRIES.inc(self._hosts.expire(silent, before))
        if tick - self._pruned >= _PRUNE_EVERY:
            self._hosts.prune_events(EVENTS)
            self._pruned = tick

    def rest(self) -> None:
        """Leave it to another worker: this one does not hold the clock."""
        self._brake = Brake(self._expiry)
        metrics.HELD.set(0)

    def _is_held(self, tick: int, is_any_late: bool) -> bool:
        """Tell whether silent hosts are kept, as Volt seems to be cut off.

        Half of ``expiry`` without a word is silence enough: each host that lives reports
        twice in ``expiry``. Those that died earlier are expired by then, so all who are
        silent fell silent within as long a time.
        """
        brake, half = self._brake, self._expiry // 2
        known, silent = self._hosts.silence(tick - half) if is_any_late else (0, 0)
        before, held = brake.phase, brake.holds
        brake.look(tick, known, silent)
        if brake.holds and not held:
            said = f"{silent} of {known} hosts not heard for {half} s"
            LOG.error("Is Volt cut off? %s: none is expired until most are heard", said)
            self._hosts.note("deaf", None, None, said)
        elif brake.phase != before:
            LOG.warning(_SAID[brake.phase])
        metrics.HELD.set(silent if brake.holds else 0)
        return brake.holds
