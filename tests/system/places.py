"""How many nodes all beds of the tests may have together: as many as the machine carries."""

import contextlib
import fcntl
import os
import time
from pathlib import Path

_FOLDER = Path("/run/virtman-test-places")
_PER_PROCESSOR = 6
_AGAIN = 0.5  # seconds


@contextlib.contextmanager
def taken(nodes):
    """Wait until there is room for so many nodes, and hold it.

    Whoever waits keeps what has become free, and others queue behind. So a large bed has its turn
    too. A process that dies gives back what it held.
    """
    _FOLDER.mkdir(exist_ok=True)
    free = list(range(_PER_PROCESSOR * os.cpu_count()))
    with contextlib.ExitStack() as held:
        with _locked("turn", fcntl.LOCK_EX):
            for _ in range(min(nodes, len(free))):
                free.remove(_await_any(free, held))
        yield


def _await_any(places, held):
    """Wait until one of these places is free, hold it, and return which it is."""
    while True:
        for one in places:
            with contextlib.suppress(BlockingIOError):
                held.enter_context(_locked(str(one), fcntl.LOCK_EX | fcntl.LOCK_NB))
                return one
        time.sleep(_AGAIN)


@contextlib.contextmanager
def _locked(name, how):
    with open(_FOLDER / name, "w") as file:
        fcntl.flock(file, how)
        yield
