"""What of a stripe is fetched ahead next, and how much of it is on its way.

Whoever looks at what VMs read puts pieces in; some threads take them out and fetch them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from virtman.model.prefetch_order import Queue
from virtman.model.prefetch_pace import Window


class Lane:
    """The pieces of one stripe: which is next, and how many are on their way."""

    def __init__(self, coming: Queue, window: Window) -> None:
        self.window = window
        self._coming = coming
        self._flying = 0
        # Guards all of these; who may take nothing yet waits here.
        self._changed = threading.Condition()
        self._is_over = False

    def put(self, numbers: Iterable[int]) -> list[int]:
        """Have pieces taken before all that wait; return those that were never put before."""
        with self._changed:
            new = self._coming.put(numbers)
            self._changed.notify_all()
            return new

    def begin(self) -> None:
        """Let pieces fly."""
        with self._changed:
            self._is_over = False

    def is_done(self) -> bool:
        """Tell whether all that was put has come."""
        with self._changed:
            return self._coming.next is None and not self._flying

    def take(self, is_alone: Callable[[], bool]) -> list[int]:
        """Return the next pieces once there are some and they may fly; none after the end.

        These are a step of the window.

        :param is_alone: whether no VM waits; then those that lie behind them come too, as many as
            may fly
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._may_fly())
            free = self.window.size - self._flying
            taken: list[int] = []
            while not self._is_over and (piece := self._coming.take()) is not None:
                taken.append(piece)
                is_step = len(taken) >= self.window.step
                if len(taken) == free:
                    break
                if is_step and (self._coming.next != piece + 1 or not is_alone()):
                    break
            self._flying += len(taken)
            return taken

    def _may_fly(self) -> bool:
        return self._coming.next is not None and self._flying < self.window.size

    def came(self, taken: Sequence[int]) -> None:
        """Take notice that what was taken has come."""
        with self._changed:
            self._flying -= len(taken)
            for _ in taken:
                self.window.came()
            self._changed.notify_all()

    def hurt(self, read_s: float, idle_s: float) -> None:
        """Take notice of how long VMs wait."""
        with self._changed:
            self.window.demand(read_s, idle_s)

    def end(self) -> None:
        """Let nothing more fly."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
