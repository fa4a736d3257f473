"""How fast this node may fetch ahead: in all, by its configuration, and of an image, by Volt."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator

from virtman.model.prefetch_pace import Cap

_LOOK = 0.5
"""Seconds after which who waits looks whether it still has to."""

_STALE = 30.0
"""Seconds for which it counts that VMs wait, after Volt has said so last: it may be away."""


class SharedCap:
    """One cap for whoever fetches ahead on this node.

    :param rate: bytes/s; 0 for none
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._cap = Cap(rate or None)
        self._clock = clock
        self._lock = threading.Lock()

    @property
    def rate(self) -> float:
        """Bytes/s; 0 for none."""
        return self._cap.rate or 0.0

    def delay(self, amount: int) -> float:
        """Take so many bytes; return how many seconds to wait before they are fetched."""
        with self._lock:
            now = self._clock()
            return self._cap.delay(now, self._cap.take(now, amount))


class Share:
    """What Volt lets this node fetch ahead of an image.

    It changes with each heartbeat. Without an answer the last one stays in force: Volt counts it
    as granted.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Guards the four below; who waits for its turn waits here.
        self._changed = threading.Condition()
        self._cap = Cap(None)
        self._takers = 0
        self._wanted_since, self._wanted_until = math.inf, 0.0
        # Set once Volt has said whether VMs wait, since something is fetched.
        self._is_said = threading.Event()

    @property
    def is_taken(self) -> bool:
        """Whether anything is fetched ahead of the image."""
        return self._takers > 0

    @property
    def rate(self) -> float | None:
        """Bytes/s; 0 if it has to wait, None without a cap."""
        return self._cap.rate

    @contextlib.contextmanager
    def taken(self, *, capped: bool) -> Iterator[None]:
        """Want a share meanwhile.

        :param capped: whether Volt said that a cap applies; then nothing may be fetched before it
            has said how much
        """
        with self._changed:
            self._takers += 1
            if self._takers == 1:
                self._is_said.clear()
                self._set(0 if capped else None)
        try:
            yield
        finally:
            with self._changed:
                self._takers -= 1
                self._set(self.rate if self._takers else None)

    def grant(self, rate: float | None) -> None:
        """Take notice of what Volt says; None is that no cap applies."""
        with self._changed:
            if self._takers:
                self._set(rate)

    @property
    def is_wanted(self) -> bool:
        """Whether VMs wait for what they read of the image, here or on other hosts."""
        return self._wanted_since <= self._clock() < self._wanted_until

    def want(self, *, is_wanted: bool) -> None:
        """Take notice whether Volt says that VMs wait."""
        with self._changed:
            if not is_wanted:
                self._wanted_since = math.inf
            elif not self.is_wanted:
                self._wanted_since = self._clock()
            self._wanted_until = self._clock() + _STALE
            self._changed.notify_all()
        self._is_said.set()

    def give_way(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Wait until no VMs wait, or they have for so many seconds."""
        with self._changed:
            while self.is_wanted and self._clock() < self._wanted_since + seconds and not is_over():
                self._changed.wait(_LOOK)

    def await_word(self, seconds: float) -> None:
        """Wait until Volt has said whether VMs wait, for so many seconds at most."""
        self._is_said.wait(seconds)

    def wait(self, amount: int, seconds: float, is_over: Callable[[], bool]) -> bool:
        """Take so many bytes, and wait until they may be fetched; tell whether they may.

        :param seconds: for which to wait at least
        :param is_over: whether nothing more is to be fetched
        """
        with self._changed:
            now = self._clock()
            begin, end = now + seconds, self._cap.take(now, amount)
            while not is_over():
                now = self._clock()
                left = max(begin - now, self._cap.delay(now, end))
                if left <= 0:
                    return True
                self._changed.wait(min(left, _LOOK))
            return False

    def _set(self, rate: float | None) -> None:
        self._cap.change(self._clock(), rate)
        self._changed.notify_all()
