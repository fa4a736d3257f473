"""What a service does that looks after something in rounds, until it is told to end."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable

LOG = logging.getLogger(__name__)


def run(tend: Callable[[], None], interval: float, about: str) -> None:
    """Do rounds until SIGTERM or SIGINT; one that fails is logged, and the next one follows.

    Only the main thread can call it.

    :param interval: seconds from the end of a round to the next one
    :param about: what the log says that a round was about
    """
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    while not ended.is_set():
        try:
            tend()
        except Exception as err:
            LOG.warning("%s: %s", about, err)
        ended.wait(interval)
