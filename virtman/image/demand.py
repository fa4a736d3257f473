"""Whether VMs wait for what they read of an image: then copies of it hold back, on all hosts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple

from virtman import sysfs

_LONG = 0.001
"""Seconds that a read takes, on average, if it waits: from the cache it takes less."""

_PART = 0.02
"""Part of the time that VMs spend on reads if they wait: not now and then."""

_HOLD = 5.0
"""Seconds for which they are taken to wait on: a guest that boots reads, and thinks, and reads."""


class _Seen(NamedTuple):
    at: float
    reads: int
    seconds: float


class Demand:
    """That of one image.

    :param device: what all its VMs read through
    :ivar waits: whether VMs wait, as the last look saw it
    """

    def __init__(self, device: str, now: Callable[[], float] = time.monotonic) -> None:
        self._device = device
        self._now = now
        self._before: _Seen | None = None
        self._until = now()
        self.waits = False

    def look(self) -> bool:
        """See whether VMs have waited since the last look; tell whether they just began to."""
        before, waited = self.waits, self._have_waited()
        now = self._now()
        if waited:
            self._until = now + _HOLD
        self.waits = now < self._until
        return self.waits and not before

    def _have_waited(self) -> bool:
        before, self._before = self._before, None
        with contextlib.suppress(OSError):  # it is not here yet, or not any more
            self._before = now = _Seen(self._now(), *sysfs.read_times(self._device))
            if before is not None and now.reads >= before.reads:  # else it was made anew
                reads, seconds = now.reads - before.reads, now.seconds - before.seconds
                if not reads:
                    return sysfs.is_read(self._device)
                return seconds >= max(reads * _LONG, (now.at - before.at) * _PART)
        return False
