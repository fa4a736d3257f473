"""Whether somebody asks too often."""

import time
from collections.abc import Callable

from volt.errors import TooFast


class Rates:
    """Up to ``burst`` requests at once by each asker, and ``rate`` a second on average.

    This is the generic cell rate algorithm (ITU-T I.371): all that is known of an asker is
    when the requests so far would have come, had they come at the rate.
    """

    def __init__(
        self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval = 1 / rate
        self._ahead = (burst - 1) / rate
        self._clock = clock
        self._due: dict[str, float] = {}
        self._sweep_at = 1024

    def check(self, asker: str) -> None:
        """Raise TooFast if the asker may not ask now."""
        now = self._clock()
        self._check(self._due.get(asker, now), now)

    def take(self, asker: str) -> None:
        """Count a request; raise TooFast if it is one too many, which then does not count."""
        now = self._clock()
        due = max(self._due.get(asker, now), now)
        self._check(due, now)
        if len(self._due) >= self._sweep_at:
            self._sweep(now)
        self._due[asker] = due + self._interval

    def _check(self, due: float, now: float) -> None:
        wait = due - now - self._ahead
        if wait > 0:
            raise TooFast(wait)

    def _sweep(self, now: float) -> None:
        """Forget the idle; doubling the threshold keeps the cost of a request constant."""
        self._due = {asker: due for asker, due in list(self._due.items()) if due > now}
        self._sweep_at = max(1024, 2 * len(self._due))
