"""Waiting for a condition, with a deadline."""

import time
from collections.abc import Callable

from lab.errors import DeadlinePassed


def wait_until(
    condition: Callable[[], object], what: str, deadline: float, interval: float = 0.05
) -> None:
    """Return once the condition holds; raise DeadlinePassed after `deadline` seconds."""
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() >= end:
            raise DeadlinePassed(f"{what} not within {deadline:g} s")
        time.sleep(interval)
