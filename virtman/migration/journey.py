"""One move on its source: in which phase it is, what an error means there, and who ends it."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace

from virtman.errors import (
    CoordinatorUnreachable,
    DeviceBusy,
    DevicePending,
    InstanceNotServed,
    MoveGarbled,
    MoveHanded,
    MoveStale,
    PeerUnreachable,
    VirtmanError,
)
from virtman.migration.peer_client import Peers
from virtman.migration.phases import Course, Phase, Status
from virtman.migration.sender import Sender
from virtman.model.handover import Move
from virtman.node.agent import Agent

LOG = logging.getLogger(__name__)

_AGAIN, _PENDING = 1.0, 30.0
_STILL_OPEN = 15.0
_PASSING = (
    CoordinatorUnreachable,
    DevicePending,
    InstanceNotServed,
    MoveGarbled,
    MoveStale,
    PeerUnreachable,
)
"""What may be otherwise in a moment."""


class Journey:
    """A thread that goes from phase to phase.

    :param patience: seconds without any progress after which the VM stays
    """

    def __init__(self, agent: Agent, peers: Peers, patience: float, move: Move) -> None:
        self.suspension = agent.stores.suspension
        self.patience = patience
        self.timeout = peers.timeout
        phase = Phase.HANDED if move.handed else Phase.SENDING
        self.course = Course(phase, cancelled=move.cancelled)
        self.sender = Sender(agent, peers.peer(move.host), move, self.course)
        self._thread = threading.Thread(target=self._run, name=f"move {move.vm}", daemon=True)

    @property
    def move(self) -> Move:
        """The move, as it is written down."""
        return self.sender.move

    @property
    def status(self) -> Status:
        """How far it is."""
        phase = self.course.phase  # before the rest, which is written before it
        code = self.sender.progress.code if phase is Phase.FAILED else ""
        return replace(self.sender.progress, move=self.move, state=phase.shown, code=code)

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to do."""
        return self.course.has_ended

    def start(self) -> None:
        """Begin, or go on."""
        self._thread.start()

    def stop(self) -> None:
        """End soon, and leave all as it is."""
        self.course.stop()

    def join(self, seconds: float) -> None:
        """Wait for the end of one that was told to stop; the VM is held no longer than that."""
        vm, host = self.move.vm, self.move.host
        self._thread.join(seconds)
        if not self._thread.is_alive():
            return
        with self.course.kept_from_handing() as handed:
            may_go_on = not (handed or self.sender.is_in_doubt)
            if self.suspension.is_handing_over(vm) and may_go_on:
                LOG.warning("VM %s goes on here: host %s does not answer", vm, host)
                self.suspension.resume(vm)

    def cancel(self) -> None:
        """Have it undone, whatever becomes of this agent, and wait a while for that.

        :raises MoveHanded: if it is too late
        """
        if not self.course.cancel(self.sender.write_cancelled) or self.move.handed:
            raise MoveHanded(f"VM {self.move.vm} is host {self.move.host}'s already")
        self._thread.join(self.timeout)

    def finish(self) -> None:
        """Have a VM that moves live handed over, as soon as that can be."""
        self.course.tell()

    def _run(self) -> None:
        try:
            while not (self.course.is_stopped or self.has_ended):
                self._try()
        finally:
            self.sender.peer.close()

    def _try(self) -> None:
        try:
            self._step()
        except VirtmanError as err:
            self._fail(err)
        except Exception as err:
            LOG.exception("moving VM %s", self.move.vm)
            self._fail(VirtmanError(f"{type(err).__name__}: {err}"))

    def _step(self) -> None:
        """Do what belongs to the phase, up to the next one."""
        match self.course.phase:
            case Phase.HANDED:
                self.sender.give_up()
            case Phase.UNDOING:
                self.sender.undo()
            case _:
                self.sender.send_rounds()
                if self.move.keeps:
                    self.sender.copied()
                else:
                    self.sender.hand_over()

    def _fail(self, err: VirtmanError) -> None:
        """Find out what an error means in this phase, and wait before the next try of it."""
        self.sender.peer.close()
        vm, host, phase = self.move.vm, self.move.host, self.course.phase
        if self.course.is_stopped:
            return
        if phase is Phase.UNDOING:
            LOG.warning("VM %s: what the move was made of stays for now: %s", vm, err)
        elif phase is Phase.HANDED:
            LOG.warning("VM %s, which is host %s's now: %s", vm, host, err)
            self.sender.note(note=str(err))
        elif isinstance(err, _PASSING) and time.monotonic() - self.sender.heard < self.patience:
            LOG.warning("moving VM %s: %s", vm, err)
            self.sender.note(note=str(err))
            self.course.enter(Phase.SENDING)
        else:
            LOG.error("VM %s stays: %s", vm, err)
            self.sender.note(note=str(err), code=err.code)
            self.course.enter(Phase.UNDOING)
            return
        self.course.pause(_pace(err))


def _pace(err: VirtmanError) -> float:
    """Return the seconds until the next try.

    Each try holds the VM back for as long as it waits; an old device may be open for long, and a
    try to remove it takes a while.
    """
    match err:
        case DevicePending():
            return _PENDING
        case DeviceBusy():
            return _STILL_OPEN
    return _AGAIN
