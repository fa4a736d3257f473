"""In which phase a move is on its source, and who has it go from one to the next.

::

    sending <-> ready      rounds go; ready while little is left of a VM that moves live
       |          |
       +-> handing <-+     the VM is suspended, the last of it goes
              |
              v
           handed          the destination owns it; what is here goes
              |
              v
            done           a copy gets there from sending

What fails or is cancelled before "handed" goes through *undoing* to *failed*; what may be otherwise
in a moment goes back to *sending*. The move's thread goes from phase to phase; others say what they
want: that it ends, that the VM stays, that it is handed over.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from virtman.model.handover import Move


class Phase(enum.Enum):
    """Of a move, on its source."""

    SENDING = "sending"
    READY = "ready"
    HANDING = "handing"
    HANDED = "handed"
    UNDOING = "undoing"
    DONE = "done"
    FAILED = "failed"

    @property
    def shown(self) -> str:
        """What users see of it: neither the last part of sending, nor what a failure leaves."""
        return "sending" if self in (Phase.HANDING, Phase.UNDOING) else self.value


_NEXT = {
    Phase.SENDING: {Phase.SENDING, Phase.READY, Phase.HANDING, Phase.UNDOING, Phase.DONE},
    Phase.READY: {Phase.SENDING, Phase.READY, Phase.HANDING, Phase.UNDOING},
    Phase.HANDING: {Phase.SENDING, Phase.HANDED, Phase.UNDOING},
    Phase.HANDED: {Phase.DONE},
    Phase.UNDOING: {Phase.FAILED},
    Phase.DONE: set(),
    Phase.FAILED: set(),
}


@dataclass(frozen=True)
class Status:
    """How far a move is.

    :ivar state: "sending"; "ready" while little is left to send of a VM that moves live, and the
        destination answers; "handed" once that owns the data, while the source cleans up; "done"
        or "failed"
    :ivar sent: bytes of data that the destination has got
    :ivar wire: bytes that this took, compressed
    :ivar left: bytes of this round that are still to be sent
    :ivar pause: seconds for which the VM was held at the hand-over; None before, and for copies
    :ivar note: why nothing goes on at the moment, or went wrong; empty if all is well
    :ivar code: of the error that the move failed with; empty if it did not
    """

    move: Move
    state: str = "sending"
    sent: int = 0
    wire: int = 0
    left: int = 0
    pause: float | None = None
    note: str = ""
    code: str = ""


class Course:
    """The phase of one move, and what is wanted of it. One lock guards both.

    :ivar phase: as of now
    """

    def __init__(self, phase: Phase, *, cancelled: bool = False) -> None:
        self.phase = phase
        self._changed = threading.Condition()
        self._stopped = False
        self._cancelled = cancelled
        self._told = False

    # For the move's thread.

    def enter(self, phase: Phase) -> None:
        """Go to the next phase. Once the word has come, nothing is ready any more."""
        with self._changed:
            if phase is Phase.READY and self._told:
                return
            self._go(phase)

    def hand(self, write: Callable[[], None]) -> bool:
        """Have the destination own the VM by writing that down; False if the VM shall stay.

        Nobody can cancel it meanwhile.
        """
        with self._changed:
            if not self.is_wanted:
                return False
            write()
            self._go(Phase.HANDED)
            return True

    def note(self, write: Callable[[bool], None]) -> None:
        """Have something written down, with whether the VM shall stay; both stay true together."""
        with self._changed:
            write(self._cancelled)

    def pause(self, seconds: float) -> None:
        """Wait, unless the VM is wanted elsewhere no more: what is to be undone takes its time."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopped or (self._cancelled and self.phase in _CAN_STAY), seconds
            )

    def await_word(self, seconds: float) -> None:
        """Wait until the VM shall be handed over, or stay."""
        with self._changed:
            self._changed.wait_for(lambda: self._told or not self.is_wanted, seconds)

    @property
    def is_stopped(self) -> bool:
        """Whether the move's thread is to end, and leave all as it is."""
        return self._stopped

    @property
    def is_wanted(self) -> bool:
        """Whether the VM shall still go."""
        return not (self._cancelled or self._stopped)

    @property
    def is_told(self) -> bool:
        """Whether the word has come to hand the VM over."""
        return self._told

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to do."""
        return not _NEXT[self.phase]

    # For others.

    def stop(self) -> None:
        """Have the thread end soon; it hands nothing over any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def cancel(self, write: Callable[[], None]) -> bool:
        """Have the VM stay by writing that down; False if it is too late for that."""
        with self._changed:
            if self.phase is Phase.HANDED:
                return False
            write()
            self._cancelled = True
            self._changed.notify_all()
            return True

    def tell(self) -> None:
        """Have the VM handed over as soon as that can be."""
        with self._changed:
            self._told = True
            if self.phase is Phase.READY:
                self._go(Phase.SENDING)
            self._changed.notify_all()

    @contextmanager
    def kept_from_handing(self) -> Iterator[bool]:
        """Let nobody hand the VM over meanwhile; give whether that was done already."""
        with self._changed:
            yield self.phase is Phase.HANDED

    def _go(self, phase: Phase) -> None:
        assert phase in _NEXT[self.phase], (self.phase, phase)
        self.phase = phase


_CAN_STAY = frozenset({Phase.SENDING, Phase.READY, Phase.HANDING})
