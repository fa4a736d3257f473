"""Who counts Volt's time, and when another worker takes over.

Volt's time is a number in the database: ticks, of about a second. One worker, the
*holder*, adds one for each second of its own monotonic clock, and never more than one at
once: a holder that was suspended loses seconds, it does not jump. The others watch. One that
sees the same tick for ``PATIENCE`` of its own seconds becomes the holder, by compare and set.

No wall clock is asked, so that turning one expires nobody; and while no worker runs, time
stands still.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from volt import metrics
from volt.db.clock import Reading

LOG = logging.getLogger(__name__)

TICK = 1.0  # seconds between two beats
PATIENCE = 5.0  # seconds: a holder that is merely busy must not lose the clock


class Table(Protocol):
    """Where the clock is kept."""

    def read(self) -> Reading:
        """Return what it shows now."""

    def move(self, seen: Reading, to: Reading) -> bool:
        """Set it unless it moved meanwhile; tell whether it was set."""


class Clock:
    """One worker's hand on the clock; ``name`` is the worker's, ``monotonic`` gives seconds."""

    def __init__(
        self, table: Table, name: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._table = table
        self._name = name
        self._monotonic = monotonic
        self._seen: Reading | None = None
        self._since = 0.0
        self._held: Reading | None = None

    @property
    def tick(self) -> int | None:
        """The present tick if this worker is the holder, as far as it knows."""
        held = self._held
        return None if held is None else held.tick

    def beat(self) -> None:
        """Count a second as the holder, or watch the holder count; call it once a ``TICK``."""
        try:
            if self._held is not None:
                self._count(self._held)
            else:
                self._observe()
        finally:
            metrics.CLOCK_HOLDER.set(self._held is not None)

    def release(self) -> None:
        """Let another worker take over at once."""
        held, self._held = self._held, None
        metrics.CLOCK_HOLDER.set(False)
        if held is not None:
            self._table.move(held, replace(held, holder=""))

    def _count(self, held: Reading) -> None:
        following = replace(held, tick=held.tick + 1)
        moved = False
        try:
            moved = self._table.move(held, following)
        finally:
            # Unless it surely moved it: the answer may not have come, or said no.
            self._held = following if moved else None
        if not moved:
            LOG.warning("Another worker counts Volt's time now, %s was too slow", self._name)

    def _observe(self) -> None:
        before = self._monotonic()  # before the read: the row may move while it is on its way
        reading = self._table.read()
        if reading.holder and reading != self._seen:
            self._seen, self._since = reading, self._monotonic()
        elif not reading.holder or before - self._since >= PATIENCE:
            own = Reading(self._name, reading.tick + 1)
            if self._table.move(reading, own):
                self._held, self._seen = own, None
                LOG.info("Worker %s counts Volt's time from tick %s on", self._name, own.tick)
