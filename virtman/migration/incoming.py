"""VMs on their way to this node: what comes is checked, written, and counted once it is on disk.

See ``virtman.model.handover`` for who owns a VM's data when. Each verb can be repeated, and the
agent may die in any::

    offer      arrival, VM with its store, the store's device
    piece      the store's device; now and then the arrival
    settle     arrival
    complete   arrival
    activate   the arrival goes, the VM's device comes
    drop       the VM goes, with its store; the arrival goes
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, replace

import zstandard

from virtman.errors import (
    ImageDiffers,
    InstanceExists,
    InvalidRequest,
    MoveGarbled,
    MoveHanded,
    MoveStale,
    MoveUnknown,
    PeerUntrusted,
    VersionDiffers,
    VirtmanError,
)
from virtman.migration.peer_client import Peers
from virtman.model import dirty, naming
from virtman.model.chain import Instance
from virtman.model.handover import VERSION, Arrival, Offer, Piece, Standing
from virtman.node.agent import Agent
from virtman.periodic import Periodic
from virtman.stack.layers.store import StoreLayer

LOG = logging.getLogger(__name__)

_KEEP = 32 * 1024 * 1024
"""Bytes after which what came is had on the disk, and need not come again."""

_QUIET = 15.0
"""Seconds after which a source that says nothing is asked whether it still sends."""


@dataclass
class _Coming:
    """What is in memory of an arrival: who may write, and what is not yet on the disk."""

    attempt: int
    heard: float
    end: int
    unkept: int = 0


class Arrivals:
    """The destination's side of moves."""

    def __init__(self, agent: Agent, peers: Peers) -> None:
        self.agent = agent
        self.peers = peers
        self.records = agent.records
        self.stores = agent.stores
        # One request at a time for each VM.
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._coming: dict[str, _Coming] = {}
        self._attempts = itertools.count(time.time_ns())
        self._rounds = Periodic("arrivals", self.look, _QUIET / 2, first=_QUIET / 2)

    def start(self) -> None:
        """Begin to look for arrivals that nobody sends any more."""
        self._rounds.start()

    def stop(self) -> None:
        """Look no more."""
        self._rounds.stop()

    def offer(self, host: str, vm: str, offer: Offer) -> Standing:
        """Begin a round of a VM that a host wants to send; its image is attached for the first.

        :raises InstanceExists: if there is another VM of this name
        :raises MoveUnknown: if what was sent before is not there any more
        :raises ImageDiffers: if the image of that name is not the same on both hosts
        :raises NoSpace: if the VM's store does not fit
        """
        naming.check("VM", vm)
        naming.check("image", offer.image)
        if offer.version != VERSION:
            raise VersionDiffers(
                f"the agents of both hosts must be of versions that speak version {VERSION} to "
                f"each other, not {offer.version}: upgrade the older one"
            )
        self.peers.check_known(host)
        with self._locks[vm]:
            arrival = self.records.arrival(vm)
            if arrival is not None and vm not in self.records.inventory().instances:
                self.records.forget(arrival)  # died before there was anything to write to
                arrival = None
            if arrival is not None and (arrival.host, arrival.id) != (host, offer.id):
                raise InstanceExists(f"VM {vm} is on its way here from host {arrival.host} already")
            if arrival is None:
                if self._is_there(vm, offer.id):
                    return Standing(0, 0, True)
                if not offer.begins:
                    raise MoveUnknown(f"VM {vm} is not taken: what was sent of it is gone")
                arrival = self._begin(host, vm, offer)
            else:
                self.agent.bring_back(vm)
            if arrival.round != offer.round:
                arrival = replace(arrival, round=offer.round, done=0, complete=False)
                self.records.put(arrival)
            coming = _Coming(next(self._attempts), time.monotonic(), arrival.done)
            self._coming[vm] = coming
            return Standing(coming.attempt, arrival.done, False)

    def take(self, host: str, vm: str, piece: Piece, packed: bytes) -> None:
        """Write part of a round.

        :raises MoveStale: if it is of an earlier attempt
        :raises MoveGarbled: if it is not what was sent
        """
        with self._locks[vm]:
            self._known(host, vm, piece.id)
            coming = self._current(vm, piece.attempt)
            instance = self.records.get(vm)
            content = _unpacked(piece, packed, instance.size)
            self.stores.space.afford(len(content))
            self._store(instance).write(piece.runs, content)
            coming.end = piece.end
            coming.unkept += len(content)
            if coming.unkept >= _KEEP:
                self._keep(vm, complete=False)

    def settle(self, host: str, vm: str, move: str, attempt: int) -> None:
        """Have what came so far on the disk, at the end of a round: it does not come again."""
        self._settle(host, vm, move, attempt, complete=False)

    def complete(self, host: str, vm: str, move: str, attempt: int) -> None:
        """Have all that came on the disk, and say so in the record."""
        self._settle(host, vm, move, attempt, complete=True)

    def activate(self, host: str, vm: str, move: str) -> None:
        """Make a VM that is complete this node's own, and give it its device."""
        with self._locks[vm]:
            there = self._is_there(vm, move)
            if not there and not self._known(host, vm, move).complete:
                raise MoveStale(f"VM {vm} is not complete yet")
            self._coming.pop(vm, None)
            self.agent.bring_back(vm)
            if not there:
                self.stores.land(vm)
                LOG.info("VM %s has come from host %s", vm, host)

    def drop(self, host: str, vm: str, move: str) -> None:
        """Forget what was sent; that there is nothing is fine."""
        with self._locks[vm]:
            arrival = self.records.arrival(vm)
            if arrival is not None and (arrival.host, arrival.id) == (host, move):
                self._drop(arrival)

    def give_up(self, vm: str) -> None:
        """Drop an arrival on the word of this node's user.

        :raises MoveUnknown: if there is none
        :raises MoveHanded: if the source may have given the VM up already
        """
        with self._locks[vm]:
            arrival = self.records.arrival(vm)
            if arrival is None:
                raise MoveUnknown(f"VM {vm} is not on its way")
            if arrival.complete:
                raise MoveHanded(
                    f"all of VM {vm} is here, and only host {arrival.host} knows who owns it: "
                    "cancel the move there"
                )
            self._drop(arrival)

    def look(self) -> None:
        """Drop what died halfway, and what its source does not send any more."""
        for arrival in self.records.arriving():
            coming = self._coming.get(arrival.vm)
            if coming is not None and time.monotonic() - coming.heard < _QUIET:
                continue
            source = self.peers.peer(arrival.host)
            try:
                if source.sends(arrival.id):
                    continue
                self._drop_silent(arrival, coming)
            except (VirtmanError, OSError) as err:
                LOG.warning("VM %s, which is on its way here: %s", arrival.vm, err)
            finally:
                source.close()

    # The rest is inside.

    def _settle(self, host: str, vm: str, move: str, attempt: int, *, complete: bool) -> None:
        with self._locks[vm]:
            self._known(host, vm, move)
            self._current(vm, attempt)
            self._keep(vm, complete=complete)

    def _begin(self, host: str, vm: str, offer: Offer) -> Arrival:
        info = self.agent.coordinator.image(offer.image)
        if info.origin != offer.origin or offer.size < info.disk_size:
            raise ImageDiffers(
                f"image {offer.image} was made anew in Volt after VM {vm} was created over the "
                "earlier one: it cannot leave its host"
            )
        arrival = Arrival(vm, offer.id, host, live=offer.live)
        wanted = Instance(vm, offer.image, offer.size, "", offer.quota, offer.id, info.origin)
        self.agent.receive(wanted, arrival)
        LOG.info("VM %s is on its way here from host %s", vm, host)
        return arrival

    def _is_there(self, vm: str, move: str) -> bool:
        """Tell whether a move has ended with the VM here; another VM's name is taken."""
        found = self.records.inventory().instances.get(vm)
        if found is None or self.records.arrival(vm) is not None:
            return False
        if found.move != move:
            self.records.check_vm(vm)
        return True

    def _known(self, host: str, vm: str, move: str) -> Arrival:
        arrival = self.records.arrival(vm)
        if arrival is None or arrival.id != move:
            raise MoveUnknown(f"VM {vm} is not on its way here by that move")
        if arrival.host != host:
            raise PeerUntrusted(f"VM {vm} is on its way from another host than {host}")
        return arrival

    def _current(self, vm: str, attempt: int) -> _Coming:
        coming = self._coming.get(vm)
        if coming is None or coming.attempt != attempt:
            raise MoveStale(f"VM {vm}: it was offered anew, or this agent has restarted")
        coming.heard = time.monotonic()
        return coming

    def _keep(self, vm: str, *, complete: bool) -> None:
        arrival, coming = self.records.arrival(vm), self._coming[vm]
        assert arrival is not None
        self._store(self.records.get(vm)).settle()
        self.records.put(replace(arrival, done=coming.end, complete=complete))
        coming.unkept = 0

    def _drop(self, arrival: Arrival) -> None:
        self._coming.pop(arrival.vm, None)
        if arrival.vm in self.records.inventory().instances:
            self.agent.remove(arrival.vm)
        self.records.forget(arrival)
        LOG.info("VM %s does not come from host %s after all", arrival.vm, arrival.host)

    def _drop_silent(self, arrival: Arrival, coming: _Coming | None) -> None:
        """Drop what its source does not send, unless that has offered it just now.

        A source that still waits for the answer to its first offer does not know of a move yet.
        """
        with self._locks[arrival.vm]:
            known = self.records.arrival(arrival.vm)
            if known is not None and self._coming.get(arrival.vm) is coming:
                LOG.info("host %s does not send VM %s any more", arrival.host, arrival.vm)
                self._drop(known)

    def _store(self, instance: Instance) -> StoreLayer:
        return self.stores.layer(self.records.inventory().stores[instance.store])


def _unpacked(piece: Piece, packed: bytes, size: int) -> bytes:
    """Return a piece's bytes.

    :raises InvalidRequest: if its runs are none of a device of ``size`` bytes
    """
    length = sum(run for _, run in piece.runs)
    if not 0 < length <= dirty.PORTION or any(
        run <= 0 or run % 512 or at % dirty.CHUNK or at < 0 or at + run > size
        for at, run in piece.runs
    ):
        raise InvalidRequest(f"runs {piece.runs}: not of a device of {size} bytes")
    try:
        # the frame says what it grows to, and is taken at its word
        if zstandard.frame_content_size(packed) != length:
            raise MoveGarbled("a piece is not as long as was said")
        content = zstandard.ZstdDecompressor().decompress(packed, max_output_size=length)
    except zstandard.ZstdError as err:
        raise MoveGarbled(f"a piece cannot be unpacked: {err}") from err
    if len(content) != length or hashlib.sha256(content).hexdigest() != piece.digest:
        raise MoveGarbled("a piece is not what was sent")
    return content
