"""Waits for the kernel that end in time, whatever becomes of what is waited for."""

from __future__ import annotations

import contextlib
import errno
import math
import queue
import signal
import threading
from collections.abc import Iterator

from virtman.privileged import chunks

_INTERRUPTING = 0.1

# Paths of devices whose flush was given up, or goes on, each by a thread of its own.
_flushing: set[str] = set()
_flushes = threading.Lock()


@contextlib.contextmanager
def interrupted_after(patience: float) -> Iterator[None]:
    """Interrupt what the kernel does for this thread if it takes longer: a suspend is undone then.

    The signal has a handler only where ``start`` set one; elsewhere it is lost, and the kernel
    waits on.
    """
    if math.isinf(patience):
        yield
        return
    waiting, over = threading.get_ident(), threading.Event()

    def interrupt() -> None:
        pause = patience
        while not over.wait(pause):
            signal.pthread_kill(waiting, signal.SIGURG)
            pause = _INTERRUPTING  # the first may have come just before the ioctl

    watcher = threading.Thread(target=interrupt, name="patience", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def check_flushes(path: str) -> None:
    """Raise OSError if an earlier flush of a device has not ended: nobody is held for another."""
    with _flushes:
        if path in _flushing:
            raise _not_flushed(path)


def flush_in_time(path: str, patience: float) -> None:
    """Have on the disk what was written to a device, or give up.

    No signal ends a flush: the kernel waits for the disk without listening to any. So a thread of
    its own waits with it, and stays behind for as long as the disk hangs.
    """
    done: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()

    def flush() -> None:
        failure = None
        try:
            chunks.flush(path)
        except OSError as err:
            failure = err
        with _flushes:
            _flushing.discard(path)
        done.put(failure)

    with _flushes:
        threading.Thread(target=flush, name=f"flush {path}", daemon=True).start()
        _flushing.add(path)
    try:
        failure = done.get(timeout=patience)
    except queue.Empty:
        raise _not_flushed(path) from None
    if failure is not None:
        raise failure


def _not_flushed(path: str) -> OSError:
    return OSError(errno.ETIMEDOUT, f"{path}: what was written to it does not get to the disk")
