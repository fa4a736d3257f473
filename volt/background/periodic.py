"""How a worker does something again and again beside serving."""

import logging
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)


class Rounds:
    """Calls ``turn`` in a thread of its own, once in ``period`` seconds.

    What a turn takes is part of its period. Turns that came too late are not made up for. A
    failed one is logged, and the next follows.
    """

    def __init__(self, name: str, turn: Callable[[], None], period: float) -> None:
        self._turn = turn
        self._period = period
        self._stopped = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin, with a turn at once."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present turn, and return then."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            try:
                self._turn()
            except Exception as err:
                # Once in a row: a database that is away would fill the log.
                LOG.log(
                    logging.DEBUG if self._failing else logging.ERROR,
                    "%s failed (%s), trying on", self._thread.name, err, exc_info=True,
                )  # fmt: skip
                self._failing = True
            else:
                self._failing = False
            now = time.monotonic()
            due = max(due + self._period, now)
            if self._stopped.wait(due - now):
                return
