"""Tells whether an image is warm: hardly a read of it misses the cache any more."""

from __future__ import annotations

import time
from collections.abc import Callable

from virtman.stack.cache import Figures

_WARM, _COLD = 1.0, 16.0
"""Misses a second below which an image is warm, and above which it is cold again. A VM that reads
from the cache misses in smaller pieces than a page cache does, which reads ahead."""


class Warmth:
    """One image's.

    :param span: seconds over which misses are counted; 0 if no image is ever warm
    """

    def __init__(self, span: float, now: Callable[[], float] = time.monotonic) -> None:
        self.span = span
        self.now = now
        self.begin()

    def begin(self) -> None:
        """Know nothing yet: devices that are made anew count from nothing."""
        self._since = self.now()
        self._before = Figures()

    def look(self, figures: Figures, warm: bool) -> bool:
        """Return whether it is warm; that it was stays true until a span is over.

        :param warm: whether it was
        """
        if not self.span:
            return False
        elapsed = self.now() - self._since
        if elapsed < self.span:
            return warm
        before, self._before = self._before, figures
        self._since = self.now()
        misses = figures.misses - before.misses
        if misses < 0:  # a cache that was made anew counts from nothing
            return False
        used = figures.hits + figures.misses > 0
        return used and misses / elapsed < (_COLD if warm else _WARM)
