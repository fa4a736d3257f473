"""When something that goes on beside the verbs is done again: one thread for each such thing."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator

from virtman.errors import VirtmanError

LOG = logging.getLogger(__name__)

_CALLS = 6
"""Of what a turn that takes too long is doing: the last so many calls are logged."""


class Periodic:
    """A thread that takes one turn after another until it is told to stop.

    A turn that fails is logged, and the next one follows.

    :param turn: returns the seconds until the next one; None for ``period``
    :param period: seconds from the end of a turn to the next one, after a failure too
    :param first: seconds before the first turn
    :param woken: when this is set the next turn comes at once; set during a turn it counts
    :param patience: seconds after which it is logged where a turn is; None for never
    :ivar period: may be changed at any time
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], float | None],
        period: float,
        *,
        first: float = 0.0,
        woken: threading.Event | None = None,
        patience: float | None = None,
    ) -> None:
        self.period = period
        self._turn = turn
        self._first = first
        self._woken = woken or threading.Event()
        self._patience = patience
        self._stopped = threading.Event()
        # One that waits for a parent or for Volt ends with the process.
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    @property
    def is_stopped(self) -> bool:
        """Whether it was told to stop."""
        return self._stopped.is_set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no turn any more. The present one goes on: see ``join``, and ``sleep``."""
        self._stopped.set()
        self._woken.set()

    def join(self) -> None:
        """Wait for the end of the last turn of one that was told to stop."""
        if self._thread.is_alive():
            self._thread.join()

    def wake(self) -> None:
        """Have the next turn come now."""
        self._woken.set()

    def sleep(self, seconds: float) -> bool:
        """Let time pass within a turn; tell whether it is over because of ``stop``."""
        return self._stopped.wait(seconds)

    def run(self) -> None:
        """Take turns on this thread instead of one of its own."""
        pause = self._first
        while True:
            self._woken.wait(pause)
            self._woken.clear()
            if self.is_stopped:
                return
            pause = self._take()

    def _take(self) -> float:
        """Take a turn; return the seconds until the next one."""
        pause = None
        try:
            with self._watched():
                pause = self._turn()
        except VirtmanError as err:
            LOG.warning("%s: %s", self._thread.name, err)
        except Exception:
            # what it needs may have ended under it
            level = logging.DEBUG if self.is_stopped else logging.ERROR
            LOG.log(level, "%s failed", self._thread.name, exc_info=True)
        return self.period if pause is None else pause

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Have it logged if a turn takes too long: the kernel, or a disk, may give no answer."""
        if self._patience is None:
            yield
            return
        watch = threading.Timer(self._patience, self._tell, [threading.get_ident()])
        watch.daemon = True
        watch.start()
        try:
            yield
        finally:
            watch.cancel()

    def _tell(self, thread: int) -> None:
        frame = sys._current_frames().get(thread)
        calls = "".join(traceback.format_stack(frame)[-_CALLS:]) if frame else ""
        text = "%s has taken %g s and is not over; it waits here:\n%s"
        LOG.warning(text, self._thread.name, self._patience, calls)
