"""What a layer is: one device of a stack, brought up over what lies below it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from virtman.errors import KernelFailure

_POLL = 0.01


class Layer(Protocol):
    """One device. The kernel is asked each time; nothing is remembered.

    ``up`` may be called in any state: an absent device is made, one that lies on the
    same devices is left alone, one that lies on others gets a new table in place.
    With nothing below, a device holds its I/O back until it is given something;
    one that has been given something keeps it.
    """

    def up(self, below: Sequence[str]) -> str:
        """Bring the device up over ``below`` (paths) and return its path."""

    def release(self) -> None:
        """Fail the I/O that waits here for something to come, so that ``down`` can end."""

    def down(self) -> None:
        """Take the device away; return once the kernel let go. Absent is fine."""

    def is_up(self) -> bool:
        """Tell whether the kernel has the device, complete."""


def wait_until(
    condition: Callable[[], bool], deadline: float, what: str, every: float = _POLL
) -> None:
    """Return as soon as ``condition()`` is true.

    :param deadline: seconds
    :param every: seconds between two looks
    :raises KernelFailure: naming ``what`` did not happen
    """
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise KernelFailure(f"{what} did not happen within {deadline:g} s")
        time.sleep(every)
