"""One VM on its way from this node: what is sent when, and when this node gives it up.

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
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from virtman.errors import (
    CoordinatorUnreachable,
    DeviceBusy,
    DevicePending,
    InstanceExists,
    InstanceNotServed,
    InstanceUnknown,
    MoveCancelled,
    MoveGarbled,
    MoveHanded,
    MoveStale,
    MoveUnknown,
    PeerUnreachable,
    VirtmanError,
)
from virtman.migration.peer_client import Peers
from virtman.model import dirty
from virtman.model.chain import Instance, Snapshot, Store
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

_AGAIN, _PENDING = 1.0, 30.0
_STILL_OPEN = 15.0
_MERGES, _LOOK = 60.0, 0.1
_PASSING = (
    CoordinatorUnreachable,
    DevicePending,
    InstanceNotServed,
    MoveGarbled,
    MoveStale,
    PeerUnreachable,
)
"""What may be otherwise in a moment."""


End = Snapshot | Instance
"""What consists of the stores up to one of them."""


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


class Journey:
    """All that changes happens on its thread.

    :param patience: seconds without any progress after which the VM stays
    :ivar status: as of now
    """

    def __init__(self, agent: Agent, peers: Peers, patience: float, move: Move) -> None:
        self.agent = agent
        self.records = agent.records
        self.stores = agent.stores
        self.suspension = agent.stores.suspension
        self.patience = patience
        self.timeout = peers.timeout
        self.move = move
        self.status = Status(move, "handed" if move.handed else "sending")
        self.peer = peers.peer(move.host)
        self._ended = threading.Event()
        self._cancelled = threading.Event()
        self._told = threading.Event()
        # Between deciding to hand over and having done so nobody may cancel. Nor is a VM ready
        # again once the word has come.
        self._deciding = threading.Lock()
        self._pace = _AGAIN
        self._failed: VirtmanError | None = None
        self._moved = time.monotonic()
        self._rate = 0.0
        self._pause = math.inf
        self._thread = threading.Thread(target=self._run, name=f"move {move.vm}", daemon=True)

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to do."""
        return self.status.state in ("done", "failed")

    def start(self) -> None:
        """Begin, or go on."""
        self._thread.start()

    def stop(self) -> None:
        """End soon, and leave all as it is."""
        self._ended.set()
        self._cancelled.set()

    def join(self, seconds: float) -> None:
        """Wait for the end of one that was told to stop; the VM is held no longer than that."""
        vm, host = self.move.vm, self.move.host
        self._thread.join(seconds)
        if not self._thread.is_alive():
            return
        with self._deciding:  # it was told to stop: from now on it is not handed any more
            if self.suspension.is_handing_over(vm) and not self.move.handed:
                LOG.warning("VM %s goes on here: host %s does not answer", vm, host)
                self.suspension.resume(vm)

    def cancel(self) -> None:
        """Have it undone, and wait for that.

        :raises MoveHanded: if it is too late
        """
        with self._deciding:
            if self.move.handed:
                raise MoveHanded(f"VM {self.move.vm} is host {self.move.host}'s already")
            self._cancelled.set()
        self._thread.join(self.timeout)

    def finish(self) -> None:
        """Have a VM that moves live handed over, as soon as that can be."""
        with self._deciding:
            self._told.set()
            if self.status.state == "ready":
                self._note(state="sending")

    def try_offer(self, *, begins: bool = False, within: float = math.inf) -> Standing:
        """Offer the VM, so that what the destination has against it is known at once.

        :param begins: whether this is the first time
        :param within: seconds that the answer may take, if that is less than others may
        """
        move = self.move
        instance = self.records.get(move.vm)
        origin = instance.origin or self.agent.info(instance.image).origin
        return self.peer.offer(
            move.name,
            Offer(
                VERSION, move.id, instance.image, instance.size, origin, instance.quota,
                move.round, move.live, begins,
            ),
            within,
        )  # fmt: skip

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._travel()
                self._note(state="done", note="")
                return
            except _PASSING as err:
                if not self._goes_on(err):
                    return
            except VirtmanError as err:
                if not self._fails(err):
                    return
            except Exception as err:
                LOG.exception("moving VM %s", self.move.vm)
                if not self._fails(VirtmanError(f"{type(err).__name__}: {err}")):
                    return
            finally:
                self.peer.close()
            waits = self._ended if self.move.handed else self._cancelled
            waits.wait(self._pace)

    def _goes_on(self, err: VirtmanError) -> bool:
        """Tell whether to try again after an error that may pass."""
        LOG.warning("moving VM %s: %s", self.move.vm, err)
        self._note(state="handed" if self.move.handed else "sending", note=str(err))
        # each try holds the VM back for as long as it waits
        self._pace = _PENDING if isinstance(err, DevicePending) else _AGAIN
        waited = time.monotonic() - self._moved
        return waited < self.patience or self._fails(err)

    def _fails(self, err: VirtmanError) -> bool:
        """Undo the move, if it can still be; tell whether to try again instead."""
        if self._ended.is_set():
            return False
        self._note(note=str(err))
        if self.move.handed:
            # An old device may be open for long, and a try to remove it takes a while.
            self._pace = _STILL_OPEN if isinstance(err, DeviceBusy) else _AGAIN
            LOG.warning("VM %s, which is host %s's now: %s", self.move.vm, self.move.host, err)
            return True
        LOG.error("VM %s stays: %s", self.move.vm, err)
        try:
            self.peer.drop(self.move.name, self.move.id)
        except VirtmanError as also:  # it will ask
            LOG.info("VM %s: %s", self.move.vm, also)
        try:
            self._let_go()
        except (VirtmanError, OSError) as also:
            LOG.warning("VM %s: what the move was made of stays for now: %s", self.move.vm, also)
            self._failed = err
            self._ended.wait(_AGAIN)  # whoever cancelled it need not be waited for
            return True
        if self.suspension.is_handing_over(
            self.move.vm
        ):  # its record could not be written when it failed
            self.suspension.resume(self.move.vm)
        self._note(state="failed", note=str(err), code=err.code)
        return False

    def _travel(self) -> None:
        if self._failed:  # all that is left is to undo it
            raise self._failed
        if not self.move.handed:
            self._check_wanted()
            self._send_rounds()
            if self.move.keeps:
                self._copied()
                return
            self._hand_over()
        self._give_up()

    # Rounds.

    def _send_rounds(self) -> None:
        """Send what there was, and then what was written meanwhile, until that is little."""
        kept = self._held().get(self.move.round)
        if kept is None:
            kept = self._freeze(self.move.round if self._is_new() else self.move.round + 1)
        while True:
            before = [one for number, one in self._held().items() if number < self.move.round]
            standing = self.try_offer()
            if standing.active:  # a copy, whose end we did not hear of
                return
            self._send(standing, self._changed(kept, before[-1] if before else None), kept)
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
            self._ended.wait(_LOOK)

    def _is_new(self) -> bool:
        return self.move.round == 0 and not self._held()

    def _held(self) -> dict[int, Snapshot]:
        """Return the snapshots at the ends of rounds, in order."""
        move, found = self.move, self.records.inventory().snapshots.values()
        held = {
            int(one.name.removeprefix(move.prefix)): one
            for one in found
            if one.name.startswith(move.prefix)
        }
        return dict(sorted(held.items()))

    def _freeze(self, number: int) -> Snapshot:
        """End a round with a snapshot. A number is never used for another round."""
        self._record(replace(self.move, round=number))
        return self.stores.snapshot(self.move.vm, self.move.snapshot(number))

    def _changed(self, end: End, base: Snapshot | None) -> bytes:
        """Return what the stores of one end hold, but for those that another consists of.

        A store that is being merged hands its chunks down: so upper ones are looked at first.
        """
        with self.suspension.locked(self.move.vm):
            mine = reversed(self._newer(end, base))
            return dirty.union(self.stores.layer(one).written() for one in mine)

    def _newer(self, end: End, base: Snapshot | None) -> list[Store]:
        """Return the stores of one end but for those of another, lower ones first."""
        below = self._chain(base) if base is not None else ()
        return [one for one in self._chain(end) if one not in below]

    def _chain(self, end: End) -> tuple[Store, ...]:
        """Return the stores of an end as they are now: the merger may have led it to others."""
        inventory = self.records.inventory()
        if isinstance(end, Snapshot):
            return inventory.chain(inventory.snapshots[end.name].store)
        return inventory.chain(inventory.instances[end.vm].store)

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
        hypervisor wants to know whether the data can.
        """
        while not self._told.is_set():
            self._check_wanted()
            self.try_offer(within=SILENCE)
            self._moved = time.monotonic()
            with self._deciding:
                if not self._told.is_set():
                    self._note(state="ready", note="")
            self._told.wait(_AGAIN)
            if not self._told.is_set() and self._rest(kept) > PAUSE:
                return False
        return True

    def _rest(self, kept: Snapshot) -> float:
        """Return for how many seconds the VM would be held, if it were now."""
        with self.suspension.locked(self.move.vm) as instance:
            newer = self._newer(instance, kept)
            taken = sum(self.stores.layer(one).usage().taken for one in newer)
        return taken / self._rate if self._rate else 0.0

    def _send(self, standing: Standing, changed: bytes, end: End) -> None:
        """Send what a map says of the data that a snapshot, or the VM that is held, has."""
        size = self.records.get(self.move.vm).size
        begin, done = time.monotonic(), 0
        left = dirty.amount(changed, standing.done)
        self._note(left=left)
        for portion in dirty.portions(changed, size, standing.done):
            self._check_wanted()
            with self.suspension.locked(self.move.vm):
                content = self.stores.layer(self._chain(end)[-1]).read(portion.runs)
            digest = hashlib.sha256(content).hexdigest()
            piece = Piece(self.move.id, standing.attempt, portion.runs, portion.end, digest)
            wire = self.peer.send(self.move.name, piece, content)
            done += portion.size
            self._moved = time.monotonic()
            sent, wire = self.status.sent + portion.size, self.status.wire + wire
            self._note(sent=sent, wire=wire, left=max(0, left - done), note="")
        if done:
            self._rate = done / max(0.001, time.monotonic() - begin)

    # The end.

    def _copied(self) -> None:
        """Let the copy be the destination's; nothing changes here."""
        self.peer.activate(self.move.name, self.move.id)
        self._let_go()
        LOG.info("VM %s was copied to host %s as %s", self.move.vm, self.move.host, self.move.name)

    def _hand_over(self) -> None:
        """Hold the VM, send the rest, and give it to the destination."""
        begin = time.monotonic()
        self._record(replace(self.move, round=self.move.round + 1))
        (*_, kept) = self._held().values()
        with self._quiet() as instance:
            standing = self.try_offer()
            self._send(standing, self._changed(instance, kept), instance)
            self.peer.complete(self.move.name, self.move.id, standing.attempt)
            with self._deciding:
                self._check_wanted()
                self._record(replace(self.move, handed=True))
        self._note(state="handed")
        self._activate()
        self._note(pause=time.monotonic() - begin)
        LOG.info(
            "VM %s moved to host %s; it was held for %.3f s",
            self.move.vm, self.move.host, self.status.pause,
        )  # fmt: skip

    @contextmanager
    def _quiet(self) -> Iterator[Instance]:
        """Hold the VM, and let it go on if what is done meanwhile fails."""
        before = self.move
        instance = self.suspension.suspend(before.vm)
        try:
            yield instance
        except Exception:
            # Whatever became of the file: before the VM goes on it must say whose it is.
            self._record(before)
            self.suspension.resume(before.vm)
            raise

    def _activate(self) -> None:
        try:
            self.peer.activate(self.move.name, self.move.id)
        except (MoveUnknown, InstanceExists):
            LOG.info("VM %s has been on host %s and is gone", self.move.vm, self.move.host)

    def _give_up(self) -> None:
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

    def _let_go(self) -> None:
        """Forget the snapshots at the ends of rounds, and then the move."""
        for one in self._held().values():
            self.stores.delete(one)
        self.records.forget(self.move)

    def _check_wanted(self) -> None:
        if self._cancelled.is_set():
            raise MoveCancelled(f"VM {self.move.vm} shall not go to host {self.move.host}")

    def _record(self, move: Move) -> None:
        self.records.put(move)
        self.move = move
        self._note(move=move)

    def _note(self, **changed: object) -> None:
        self.status = replace(self.status, **changed)  # type: ignore[arg-type]
