"""Unit tests: pure and fast. One that starts a process or really sleeps fails.

Others may run in the same process, and are let alone.
"""

import sys
import time
from typing import Any

_FORBIDDEN = frozenset({
    "subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system",
    "time.sleep",
})  # fmt: skip
_RUNNERS = ("unittest/case.py", "testtools/runtest.py")


class ImpureTest(AssertionError):
    """A unit test started a process or slept."""


_really_sleep = time.sleep


def _sleep(seconds: float) -> None:
    # Python 3.11 has no audit event for it
    _guard("time.sleep", (seconds,))
    _really_sleep(seconds)


def _guard(event: str, args: tuple[Any, ...]) -> None:
    if event in _FORBIDDEN and _inside_a_unit_test():
        raise ImpureTest(f"unit tests are pure and fast, but this one calls {event}{args[:1]}")


def _inside_a_unit_test() -> bool:
    """Tell whether a unit test is on this thread's stack: the runner itself may fork and wait."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.endswith(_RUNNERS):
            runner = frame.f_locals.get("self")
            case = getattr(runner, "case", runner)
            if type(case).__module__.startswith(f"{__name__}."):
                return True
        frame = frame.f_back
    return False


sys.addaudithook(_guard)
time.sleep = _sleep
