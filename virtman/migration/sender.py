"""What is sent of a VM that leaves this node, and what goes here once it is another host's.

See ``virtman.model.handover`` for who owns a VM's data when. What changed in a round is known
without a bitmap or dm-era: a snapshot at each end of it leaves the chunks that were written in
between in exception stores of their own, which say themselves what they hold. So a VM that does
not move pays nothing, and an agent that restarts finds the rounds in the kernel's own tables.
Rounds that were sent are merged as any snapshots are, so that a chain stays short.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from virtman.errors import (
    InstanceExists,
    InstanceUnknown,
    MoveCancelled,
    MoveUnknown,
    VirtmanError,
)
from virtman.migration.peer_client import Peer
from virtman.migration.phases import Course, Phase, Status
from virtman.migration.rounds import End, Rounds
from virtman.model import dirty
from virtman.model.chain import Instance, Snapshot
from virtman.model.handover import VERSION, Move, Offer, Piece, Standing
from virtman.node.agent import Agent

LOG = logging.getLogger(__name__)

ROUNDS = 8
"""Of a VM that writes faster than its data can be sent; then it is held for what is left."""

PAUSE = 0.5
"""Seconds for which a VM should be held at most: smaller changes are not worth a round."""

SHRINKS = 0.75
"""Of what was to be sent after the round before; above that, rounds lead nowhere."""

SILENCE = 10.0
"""Seconds that a destination may take to answer while a VM is ready: it attaches no image for that,
as it does for the first offer."""

_AGAIN = 1.0
_MERGES, _LOOK = 60.0, 0.1


class Sender:
    """The steps of one move, on its thread. Each goes from one phase to the next, or fails.

    :ivar move: as it is written down
    :ivar progress: what users see, but for the phase
    :ivar heard: when the destination took something last
    :ivar is_in_doubt: whether the record may say that the destination owns the data, though
        writing that failed
    """

    def __init__(self, agent: Agent, peer: Peer, move: Move, course: Course) -> None:
        self.agent = agent
        self.records = agent.records
        self.stores = agent.stores
        self.suspension = agent.stores.suspension
        self.rounds = Rounds(agent.stores, move.vm)
        self.peer = peer
        self.move = move
        self.course = course
        self.progress = Status(move)
        self.heard = time.monotonic()
        self.is_in_doubt = False
        self._rate = 0.0
        self._pause = math.inf
        self._suspended_at: float | None = None

    def try_offer(self, *, begins: bool = False, within: float = math.inf) -> Standing:
        """Offer the VM, so that what the destination has against it is known at once.

        :param begins: whether this is the first time
        :param within: seconds that the answer may take, if that is less than others may
        """
        move = self.move
        instance = self.records.get(move.vm)
        origin = instance.origin or self.agent.images.info(instance.image).origin
        return self.peer.offer(
            move.name,
            Offer(
                VERSION, move.id, instance.image, instance.size, origin, instance.quota,
                move.round, move.live, begins,
            ),
            within,
        )  # fmt: skip

    def withdraw(self) -> None:
        """Have the destination forget what was offered, as it is not handed over.

        One that does not hear asks before long, and is told once there is no such move.
        """
        try:
            self.peer.drop(self.move.name, self.move.id)
        except VirtmanError as err:
            LOG.info("VM %s: %s", self.move.vm, err)

    # Rounds.

    def send_rounds(self) -> None:
        """Send what there was, and then what was written meanwhile, until that is little."""
        self._check_wanted()
        kept = self._held().get(self.move.round)
        if kept is None:
            kept = self._freeze(self.move.round if self._is_new() else self.move.round + 1)
        while True:
            before = [one for number, one in self._held().items() if number < self.move.round]
            standing = self.try_offer()
            if standing.active:  # a copy, whose end we did not hear of
                return
            self._send(standing, self.rounds.changed(kept, before[-1] if before else None), kept)
            # Only now may a power cut there, after which the next round goes on, lose none of it.
            self.peer.settle(self.move.name, self.move.id, standing.attempt)
            for one in before:
                self.stores.delete(one)
            if self.move.keeps:
                self.peer.complete(self.move.name, self.move.id, standing.attempt)
                return
            if self._is_enough(kept):
                return
            self._await_merges()
            kept = self._freeze(self.move.round + 1)

    def _await_merges(self) -> None:
        """Let the merger do its work, so that the VM's chain does not grow with each round."""
        end = time.monotonic() + _MERGES
        while self.records.inventory().merge(self.move.vm) and time.monotonic() < end:
            self._check_wanted()
            self.course.pause(_LOOK)

    def _is_new(self) -> bool:
        return self.move.round == 0 and not self._held()

    def _held(self) -> dict[int, Snapshot]:
        return self.rounds.held(self.move)

    def _freeze(self, number: int) -> Snapshot:
        """End a round with a snapshot. A number is never used for another round."""
        self._record(replace(self.move, round=number))
        return self.stores.snapshot(self.move.vm, self.move.snapshot(number))

    def _is_enough(self, kept: Snapshot) -> bool:
        """Tell whether the VM is to be held now for what was written since the last round.

        Another round shortens that, if less was written during the last one than during the one
        before.
        """
        before, self._pause = self._pause, self._rest(kept)
        shrinks = self._pause < SHRINKS * before
        if self._pause > PAUSE and shrinks and self.move.round < ROUNDS:
            return False
        return not self.move.live or self._was_told(kept)

    def _was_told(self, kept: Snapshot) -> bool:
        """Wait for the word; return False once what was written meanwhile is worth a round.

        The destination is asked all the time: before a VM's memory goes there for good, its
        hypervisor wants to know whether the data can. They still can while a round goes.
        """
        while not self.course.is_told:
            self._check_wanted()
            self.try_offer(within=SILENCE)
            self.heard = time.monotonic()
            self.note(note="")
            self.course.enter(Phase.READY)
            self.course.await_word(_AGAIN)
            if not self.course.is_told and self._rest(kept) > PAUSE:
                return False
        return True

    def _rest(self, kept: Snapshot) -> float:
        """Return for how many seconds the VM would be held, if it were now."""
        taken = self.rounds.rest(kept)
        return taken / self._rate if self._rate else 0.0

    def _send(self, standing: Standing, changed: bytes, end: End) -> None:
        """Send what a map says of the data that a snapshot, or the VM that is held, has."""
        size = self.records.get(self.move.vm).size
        begin, done = time.monotonic(), 0
        left = dirty.amount(changed, standing.done)
        self.note(left=left)
        for portion in dirty.portions(changed, size, standing.done):
            self._check_wanted()
            content = self.rounds.read(end, portion.runs)
            digest = hashlib.sha256(content).hexdigest()
            piece = Piece(self.move.id, standing.attempt, portion.runs, portion.end, digest)
            wire = self.peer.send(self.move.name, piece, content)
            done += portion.size
            self.heard = time.monotonic()
            sent, wire = self.progress.sent + portion.size, self.progress.wire + wire
            self.note(sent=sent, wire=wire, left=max(0, left - done), note="")
        if done:
            self._rate = done / max(0.001, time.monotonic() - begin)

    # The end.

    def copied(self) -> None:
        """Let the copy be the destination's; nothing changes here."""
        self.peer.activate(self.move.name, self.move.id)
        self._let_go()
        self.note(note="")
        self.course.enter(Phase.DONE)
        LOG.info("VM %s was copied to host %s as %s", self.move.vm, self.move.host, self.move.name)

    def hand_over(self) -> None:
        """Suspend the VM, send the rest, and give it to the destination."""
        self._suspended_at = time.monotonic()
        self.course.enter(Phase.HANDING)
        self._record(replace(self.move, round=self.move.round + 1))
        (*_, kept) = self._held().values()
        with self._suspended() as instance:
            standing = self.try_offer()
            self._send(standing, self.rounds.changed(instance, kept), instance)
            self.peer.complete(self.move.name, self.move.id, standing.attempt)
            if not self.course.hand(self._write_handed):
                self._check_wanted()

    @contextmanager
    def _suspended(self) -> Iterator[Instance]:
        """Suspend the VM, and let it go on if what is done meanwhile fails."""
        before = self.move
        instance = self.suspension.suspend(before.vm)
        try:
            yield instance
        except Exception:
            # Whatever became of the file: before the VM goes on it must say whose it is.
            self._record(before)
            self.is_in_doubt = False
            self.suspension.resume(before.vm)
            raise

    def _write_handed(self) -> None:
        self.is_in_doubt = True
        self._record(replace(self.move, handed=True))
        self.is_in_doubt = False

    def give_up(self) -> None:
        """Take away what is here of a VM that another host owns.

        :raises DeviceBusy: while its device is open; whoever has it open gets errors
        """
        vm = self.move.vm
        self._activate()
        try:
            self.suspension.seal(vm)
            self.agent.remove(vm)
        except InstanceUnknown:
            LOG.debug("VM %s was removed already", vm)
        self._let_go()
        self.note(note="")
        self.course.enter(Phase.DONE)

    def _activate(self) -> None:
        """Have the destination let the VM go on, which has been suspended here."""
        vm, host = self.move.vm, self.move.host
        try:
            self.peer.activate(self.move.name, self.move.id)
        except (MoveUnknown, InstanceExists):
            LOG.info("VM %s has been on host %s and is gone", vm, host)
        if self._suspended_at is not None:
            pause, self._suspended_at = time.monotonic() - self._suspended_at, None
            self.note(pause=pause)
            LOG.info("VM %s moved to host %s; it was held for %.3f s", vm, host, pause)

    def undo(self) -> None:
        """Have the VM stay as if nothing had been.

        The destination hears of it last. Until there is no record any more, that may say that the
        destination owns the data, be it only after a power cut.
        """
        vm = self.move.vm
        self._let_go()
        self.is_in_doubt = False
        if self.suspension.is_handing_over(vm):  # its record could not be written when it failed
            self.suspension.resume(vm)
        self.withdraw()
        self.course.enter(Phase.FAILED)

    def _let_go(self) -> None:
        """Forget the snapshots at the ends of rounds, and then the move."""
        for one in self._held().values():
            self.stores.delete(one)
        self.course.note(lambda _: self.records.forget(self.move))

    def _check_wanted(self) -> None:
        if not self.course.is_wanted:
            raise MoveCancelled(f"VM {self.move.vm} shall not go to host {self.move.host}")

    def write_cancelled(self) -> None:
        """Have it on record that the VM stays, unless the move has ended."""
        if self.records.move(self.move.vm) is not None:
            self._put(replace(self.move, cancelled=True))

    def _record(self, move: Move) -> None:
        self.course.note(lambda cancelled: self._put(replace(move, cancelled=cancelled)))

    def _put(self, move: Move) -> None:
        self.records.put(move)
        self.move = move

    def note(self, **changed: object) -> None:
        """Have users see it, but for the phase."""
        self.progress = replace(self.progress, **changed)  # type: ignore[arg-type]
