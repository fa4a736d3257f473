"""How requests wait for a host's placements to change.

Each worker asks the database four times a second what changed, whoever changed it, and wakes
those of its requests that wait for one of these hosts.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from volt.db.changes import Change
from volt.errors import TooManyWaiting

INTERVAL = 0.25  # seconds between two questions: news are late by this at most
LARGEST_CROWD = 10_000  # requests that may wait in one worker
LARGEST_OF_HOST = 32  # of them for one host: an agent has one, and leaves some as it restarts
STALE = 2.0  # seconds without an answer after which the database counts as unreachable


class Waiter:
    """One request that waits."""

    def __init__(self, stopped: threading.Event) -> None:
        self._woken = threading.Event()
        self._stopped = stopped

    def wake(self) -> None:
        """Let it look."""
        self._woken.set()

    def wait(self, seconds: float) -> bool:
        """Return true once there may be news, false after that time or when Volt stops."""
        news = self._woken.wait(max(0, seconds)) and not self._stopped.is_set()
        self._woken.clear()
        return news


class Watch:
    """One worker's eye on the database; ``following`` tells what changed since the last call.

    What changed is passed on to ``told`` too.
    """

    def __init__(
        self,
        following: Callable[[], Sequence[Change]],
        told: Callable[[Sequence[Change]], None],
        crowd: int = LARGEST_CROWD,
    ) -> None:
        self._following = following
        self._told = told
        self._crowd = crowd
        self._lock = threading.Lock()  # protects the waiters and their number
        self._waiters: dict[str, set[Waiter]] = defaultdict(set)
        self._waiting = 0
        self._stopped = threading.Event()
        self._looked = time.monotonic()

    @property
    def is_blind(self) -> bool:
        """Whether the database has not answered for some time."""
        return time.monotonic() - self._looked > STALE

    def look(self) -> None:
        """Ask what changed and pass it on."""
        changes = self._following()
        self._looked = time.monotonic()
        with self._lock:
            woken = [
                waiter
                for host in {change.host for change in changes} & self._waiters.keys()
                for waiter in self._waiters[host]
            ]
        for waiter in woken:
            waiter.wake()
        if changes:
            self._told(changes)

    def stop(self) -> None:
        """Answer all who wait, and let nobody wait any more."""
        self._stopped.set()
        with self._lock:
            waiters = [waiter for crowd in self._waiters.values() for waiter in crowd]
        for waiter in waiters:
            waiter.wake()

    @contextmanager
    def waiting(self, host: str) -> Iterator[Waiter]:
        """Let a request wait for news of the host; raises TooManyWaiting.

        Look at the host's placements after this, not before: a change in between is no news.
        """
        waiter = Waiter(self._stopped)
        with self._lock:
            if self._waiting >= self._crowd:
                raise TooManyWaiting(
                    f"{self._crowd} requests wait in this worker already: ask without waiting"
                )
            if len(self._waiters.get(host, ())) >= LARGEST_OF_HOST:
                raise TooManyWaiting(
                    f"{LARGEST_OF_HOST} requests wait for news of host {host} in this worker "
                    "already: ask without waiting"
                )
            self._waiting += 1
            self._waiters[host].add(waiter)
        if self._stopped.is_set():
            waiter.wake()
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiting -= 1
                self._waiters[host].discard(waiter)
                if not self._waiters[host]:
                    del self._waiters[host]
