"""What runs on a simulated kernel, and which verb is its last."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.functional.virtman.doubles.kernel import Kernel


class Killed(BaseException):
    """The process died here: nothing catches this."""


@dataclass
class Process:
    """Something that runs on a kernel, with a fate.

    :ivar fail_at: number of the verb, counted from 1, that fails; 0 for none
    :ivar kill_at: number of the verb at which the process dies
    :ivar passed: the verbs that were called, in order
    """

    kernel: Kernel
    count: int = 0
    fail_at: int = 0
    kill_at: int = 0
    fired: str = ""
    dead: bool = False
    passed: list[str] = field(default_factory=list)

    def fate(self, fail_at: int = 0, kill_at: int = 0) -> None:
        self.count, self.fail_at, self.kill_at, self.fired = 0, fail_at, kill_at, ""
        self.passed = []

    def passes(self, verb: str) -> None:
        """Count a verb, and let it fail or kill if its turn has come."""
        self.count += 1
        self.passed.append(verb)
        if self.dead or self.count == self.kill_at:
            self.fired = self.fired or verb
            self.dead = True
            raise Killed(verb)
        if self.count == self.fail_at:
            self.fired = verb
            raise OSError(errno.EIO, f"injected: {verb}")

    @contextmanager
    def here(self) -> Iterator[None]:
        """Let this thread, and threads that it starts, belong to the process."""
        before = getattr(_thread, "process", None)
        _thread.process = self
        try:
            yield
        finally:
            _thread.process = before


_thread = threading.local()


def current() -> Process:
    process: Process = _thread.process
    return process


def inherited(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    """Return a ``Thread.start`` whose threads belong to the process of the thread that calls."""

    def start_in_same_process(thread: threading.Thread) -> None:
        process, run = getattr(_thread, "process", None), thread.run

        def run_there() -> None:
            _thread.process = process
            run()

        thread.run = run_there  # type: ignore[method-assign]
        start(thread)

    return start_in_same_process
