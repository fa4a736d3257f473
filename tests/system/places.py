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
    places = range(_PER_PROCESSOR * os.cpu_count())
    with contextlib.ExitStack() as held:
        with _locked("turn", fcntl.LOCK_EX):
            left = list(places)
            while len(places) - len(left) < min(nodes, len(places)):
                for one in left:
                    with contextlib.suppress(BlockingIOError):
                        held.enter_context(_locked(str(one), fcntl.LOCK_EX | fcntl.LOCK_NB))
                        left.remove(one)
                        break
                else:
                    time.sleep(_AGAIN)
        yield


@contextlib.contextmanager
def _locked(name, how):
    with open(_FOLDER / name, "w") as file:
        fcntl.flock(file, how)
        yield
