"""VMs on their way from this node to others: begun, shown, cancelled, and taken up again."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Sequence

from virtman.errors import InstanceNotServed, InvalidRequest, MoveUnknown, VirtmanError
from virtman.migration.journey import Journey
from virtman.migration.peer_client import Peers
from virtman.migration.phases import Status
from virtman.model import naming
from virtman.model.handover import Move
from virtman.node.agent import Agent

LOG = logging.getLogger(__name__)

_REMEMBERED = 100
_LAST = 10.0


class Moves:
    """The source's side of moves: a thread each.

    :param patience: seconds without any progress after which a move is given up
    """

    def __init__(self, agent: Agent, peers: Peers, patience: float) -> None:
        self.agent = agent
        self.peers = peers
        self.patience = patience
        self.records = agent.records
        # Guards the two below; held for moments only.
        self._lock = threading.Lock()
        self._journeys: dict[str, Journey] = {}
        self._stopped = False

    def start(self) -> None:
        """Go on with what an earlier agent began."""
        for move in self.records.moving():
            if not move.handed:
                self._let_go_on(move.vm)
            self._begin(Journey(self.agent, self.peers, self.patience, move))

    def stop(self) -> None:
        """Send nothing any more; the next agent goes on. A VM that is held goes on before."""
        self._stopped = True
        journeys, end = self._known(), time.monotonic() + _LAST
        for journey in journeys:
            journey.stop()
        for journey in journeys:
            try:
                journey.join(max(0.0, end - time.monotonic()))
            except (VirtmanError, OSError) as err:
                LOG.warning("VM %s: %s", journey.move.vm, err)

    def clone(self, vm: str, host: str, name: str) -> Status:
        """Begin to copy a VM to another host, as of now, while it runs here.

        :param name: of the copy
        :raises PeerUnknown: if Volt knows of no agent of that host that listens
        """
        return self._depart(vm, host, name, keeps=True)

    def migrate(self, vm: str, host: str, *, live: bool = False) -> Status:
        """Begin to move a VM to another host; it runs here until all is there.

        :param live: until ``finish`` is called, too; its device is there from now on
        :raises PeerUnknown: if Volt knows of no agent of that host that listens
        """
        return self._depart(vm, host, vm, keeps=False, live=live)

    def finish(self, vm: str) -> Status:
        """Have a VM that moves live handed over, as soon as that can be; repeatable.

        :raises MoveUnknown: if it does not move
        :raises InvalidRequest: if it moves by itself
        """
        move = self.records.move(naming.check("VM", vm))
        if move is None:
            raise MoveUnknown(f"VM {vm} is not on its way")
        if not move.live:
            raise InvalidRequest(f"VM {vm} does not move live: it is handed over by itself")
        with self._lock:
            journey = self._journeys[vm]
        journey.finish()
        return journey.status

    def show(self, vm: str) -> Status:
        """Return how far a VM is on its way, or how that has ended since this agent started.

        :raises MoveUnknown: if there is nothing to tell
        """
        naming.check("VM", vm)
        with self._lock:
            journey = self._journeys.get(vm)
        if journey is None:
            raise MoveUnknown(f"VM {vm} is not on its way, nor has it been of late")
        return journey.status

    def all(self) -> Sequence[Status]:
        """Return all moves from this node, those that have ended too."""
        return [one.status for one in self._known()]

    def cancel(self, vm: str) -> None:
        """Have a VM stay, or its copy given up.

        :raises MoveUnknown: if it is not on its way
        :raises MoveHanded: if the destination owns it already
        """
        move = self.records.move(naming.check("VM", vm))
        if move is None:
            raise MoveUnknown(f"VM {vm} is not on its way")
        with self._lock:
            journey = self._journeys[vm]
        journey.cancel()

    def knows(self, move: str) -> bool:
        """Tell whether a move has begun here and not ended."""
        return any(one.id == move for one in self.records.moving())

    def _depart(self, vm: str, host: str, name: str, *, keeps: bool, live: bool = False) -> Status:
        naming.check("VM", vm)
        naming.check("host", host)
        naming.check("VM", name)
        if host == self.agent.host.name:
            raise InvalidRequest(f"VM {vm} is on host {host} already: name another one")
        self.peers.credentials.client()
        self.peers.check_known(host)
        with self.agent.claim(vm):
            instance = self.records.get(vm)
            self.records.check_stays(vm)
            if not self.agent.stores.suspension.is_served(instance):
                raise InstanceNotServed(f"the device of VM {vm} is not there yet: try again")
            move = Move(vm, uuid.uuid4().hex, host, name, keeps, live=live)
            journey = Journey(self.agent, self.peers, self.patience, move)
            journey.sender.try_offer(begins=True)
            try:
                self.records.put(move)
            except Exception:
                journey.sender.withdraw()
                raise
        self._begin(journey)
        return journey.status

    def _let_go_on(self, vm: str) -> None:
        """Let a VM go on that is still held, because that agent died in the hand-over."""
        try:
            self.agent.stores.suspension.resume(vm)
        except VirtmanError as err:  # the next snapshot does it too
            LOG.warning("VM %s: %s", vm, err)

    def _begin(self, journey: Journey) -> None:
        with self._lock:
            if self._stopped:
                return
            ended = [vm for vm, one in self._journeys.items() if one.has_ended]
            for vm in ended[:-_REMEMBERED]:
                del self._journeys[vm]
            self._journeys[journey.move.vm] = journey
            journey.start()

    def _known(self) -> list[Journey]:
        with self._lock:
            return list(self._journeys.values())
