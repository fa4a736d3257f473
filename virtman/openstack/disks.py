"""The root disks of a compute node's servers: what nova asks of the agent.

A server's disk is a VM of the agent that has the server's id as its name, over an image named
after what it is made of (see golden and wanted). It is made while the server is built and never
later: whoever wants it after that must find it, as an empty one in its place would be a loss of
data nobody notices. It is on one node at each moment. When its server goes to another one, the
agents move it there, and that is where it has to be found from then on.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from virtman.api.answers import MoveAnswer
from virtman.api.client import Client
from virtman.errors import (
    AgentUnreachable,
    ImageUnknown,
    InstanceExists,
    InstanceNotServed,
    InstanceUnknown,
    MoveHanded,
    MoveUnknown,
    VirtmanError,
)
from virtman.openstack.cinder import VolumeFailed
from virtman.openstack.golden import pause_after

LOG = logging.getLogger(__name__)

ARRIVING = "arriving"
"""State of a disk that is on its way here."""

_LOST, _HANDED, _LEAVING = "lost", "handed", "leaving"
_NOT_YET = frozenset({"absent", ARRIVING, _LEAVING})
_ON_ITS_WAY = frozenset({ARRIVING, _LEAVING})
_PAUSE = 0.5
_SOON = 10.0
_CERTAIN = 3600.0
"""Seconds after which a sweep compares what is held with what is needed, whatever is known: who
takes hold for this node, of a disk that then does not come, may not be able to tell it."""
_GIB = 1024**3


class DiskLost(InstanceUnknown):
    """A server's disk is not on this node any more."""

    code = "virtman.openstack.disk_lost"


class Images(Protocol):
    """Where the images of disks come from, and what keeps one there while a node needs it."""

    def hold(self, image: str, volume: int) -> None:
        """Have an image that stays until this node lets go of it. Repeatable.

        :param volume: GiB of the volume that it is made in, if it is made in one
        """

    def share(self, image: str, host: str) -> None:
        """Have another node hold what this node holds: a disk over it goes there. Repeatable."""

    def release(self, image: str) -> None:
        """Let go of an image. Repeatable."""

    def held(self) -> Sequence[str]:
        """Return the images that this node holds."""


class Disks:
    """The disks of one node.

    :param served_timeout: seconds that the keeper may take to serve an image
    :param ready_timeout: seconds that the agent may take to bring a disk back after a reboot
    """

    def __init__(
        self,
        agent: Client,
        images: Images,
        served_timeout: float,
        ready_timeout: float,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.agent = agent
        self.images = images
        self.served_timeout = served_timeout
        self.ready_timeout = ready_timeout
        self.now = now
        self.pause = pause
        # Guards the two below; held for moments only.
        self._guard = threading.Lock()
        # One an image. Held while it is taken hold of, so that nobody lets go of the image
        # between a new server's "it is held" and its disk.
        self._locks: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)
        self._builds: collections.Counter[str] = collections.Counter()
        # When Cinder last failed to make the golden volume of an image, and how; under its lock.
        self._failed: dict[str, tuple[float, VolumeFailed]] = {}
        # Until when this node holds nothing that it does not need, as far as it knows.
        self._certain = -math.inf
        # When the agent last said how much there is, and how much of it disks have; in GiB.
        self._space = (-math.inf, 0, 0)

    def create(self, server: str, image: str, volume: int = 0, *, size: int | None = None) -> str:
        """Make a server's disk; return its path. If that fails, nothing stays.

        :param volume: GiB of the volume that the image is made in, if it is made in one
        :param size: bytes of the disk; None for those of the image
        :raises InstanceExists: if the server has one; it is left alone
        """
        self._refuse_second(server)
        began = self.now()
        with self._lock(image):
            if not self._needed(image):
                self._hold(image, volume, began)
            self._builds[image] += 1
        try:
            device = self._create(server, image, size)
        except BaseException:
            with self._lock(image):
                self._builds[image] -= 1
            self._let_go(image)
            raise
        with self._lock(image):
            self._builds[image] -= 1
        return device

    def path(self, server: str) -> str:
        """Return the path of a disk that exists; wait for it while the node comes up.

        One that is on its way to another node stays: whoever sent it died over that, or it
        would not be wanted here.

        :raises DiskLost: if the agent does not know it, has given it up, or its data are gone
        """
        deadline = self.now() + self.ready_timeout
        while True:
            try:
                return self._path(server)
            except (AgentUnreachable, InstanceNotServed):
                if self.now() > deadline:
                    raise
            self.pause(_PAUSE)

    def exists(self, server: str) -> bool:
        """Tell whether a server has a disk on this node.

        :raises AgentUnreachable: if nobody can tell
        """
        try:
            self.agent.show(server)
        except InstanceUnknown:
            return False
        return True

    def size(self, server: str) -> int:
        """Return the bytes of a server's disk."""
        return self.agent.show(server)["size"]

    def grow(self, server: str, size: int) -> None:
        """Make a server's disk so many bytes long, unless it is longer: it never gets shorter."""
        if size > self.size(server):
            self.agent.resize(server, size)

    @contextlib.contextmanager
    def snapshot(self, server: str) -> Iterator[str]:
        """Give the path of a copy of a server's disk as of now, which goes on meanwhile.

        Should nobody be left to take the copy away, it goes by itself, as nobody reads it.
        """
        copy = f"{server}-copy"
        with contextlib.suppress(InstanceUnknown):
            self.agent.destroy(copy)
        device = self.agent.create(copy, original=server, temporary=True)["device"]
        try:
            yield device
        finally:
            try:
                self.agent.destroy(copy)
            except VirtmanError as err:
                LOG.warning("the copy of the disk of server %s is left to go: %s", server, err)

    def move(self, server: str, host: str) -> None:
        """Have another node own a server's disk, which nobody writes to meanwhile.

        If that fails, this node still owns it, unless the error says that the agent is silent.

        :param host: what nova calls the other node, and its agent too
        :raises VirtmanError: if the disk stays
        """
        image = self.agent.show(server)["image"]
        self.images.share(image, host)
        self.agent.migrate(server, host)
        self._await(server)
        self.gone(server, image, host)

    def gone(self, server: str, image: str, host: str) -> None:
        """Let go of what a disk needed that is another node's now."""
        LOG.info("the disk of server %s is on host %s now", server, host)
        try:
            # The other node may have let go while it did not know of the disk: see sweep.
            self.images.share(image, host)
        except Exception as err:  # the disk has gone, whatever becomes of the holds
            LOG.warning("image %s is still held by this node: %s", image, err)
            self.doubt()
        else:
            self._let_go(image)

    def doubt(self) -> None:
        """Have the next sweep let go of images that this node does not need."""
        self._certain = -math.inf

    def space(self) -> int:
        """Return how many GiB of disks this node can have in all, those that are there included.

        The agent promises each disk what it can ever need, with [store] overcommit. One that is
        just being started anew still has what it had.

        :raises AgentUnreachable: if the agent has been silent for longer
        """
        return self._measured()[1]

    def used(self) -> int:
        """Return how many GiB the disks of this node have in all.

        :raises AgentUnreachable: if the agent has been silent for longer
        """
        return self._measured()[2]

    def destroy(self, server: str) -> None:
        """Take a server's disk away for good; the last one lets go of the image.

        Repeatable: a server that has none is fine.
        """
        try:
            found = self.agent.show(server)
            if found["state"] == _LEAVING:
                self._keep(server)
            self.agent.destroy(server)
        except InstanceUnknown:
            return
        self._let_go(found["image"])

    def sweep(self, is_deleted: Callable[[str], bool]) -> None:
        """Take away what servers left that were deleted while this node was down.

        What cannot be taken away now is logged, and left to the next sweep.

        :param is_deleted: whether nova had a server of this id and deleted it
        """
        disks = self.agent.list()
        for server in [one["vm"] for one in disks if is_deleted(one["vm"])]:
            try:
                self.destroy(server)
            except VirtmanError as err:
                LOG.warning("server %s was deleted, its disk is still there: %s", server, err)
            else:
                LOG.info("server %s was deleted meanwhile: its disk is gone", server)
        if self.now() >= self._certain:
            held = self.images.held()
            # A disk on its way is needed, and may yet turn out not to be this node's.
            if not any(one["state"] in _ON_ITS_WAY for one in disks):
                self._certain = self.now() + _CERTAIN
            for image in held:
                self._let_go(image)

    def _measured(self) -> tuple[float, int, int]:
        try:
            # Nova changes nothing on the node while it asks.
            agent = self.agent.within(_SOON)
            found = agent.space()
            room = max(0, found["free"] - found["promised"]) * 100 // 101  # see volumes.full_size
            used = sum(-(-one["size"] // _GIB) for one in agent.list())
            self._space = (self.now(), used + room // _GIB, used)
        except AgentUnreachable:
            if self.now() - self._space[0] > self.ready_timeout:
                raise
        return self._space

    def _path(self, server: str) -> str:
        try:
            found = self.agent.show(server)
            if found["state"] == _LEAVING:
                self._keep(server)
                found = self.agent.show(server)
        except InstanceUnknown as err:
            raise DiskLost(
                f"server {server} has no disk on this node; look for it with 'virtman list' on "
                "the nodes where it has been, and bring it here with 'virtman migrate'"
            ) from err
        if found["state"] == _LOST:
            raise DiskLost(f"the kernel gave up the store of server {server}: its data are lost")
        if found["state"] == _HANDED:
            raise DiskLost(
                f"the disk of server {server} is another node's now, which 'virtman move list' "
                "names; bring it back from there with 'virtman migrate'"
            )
        if found["state"] in _NOT_YET:
            raise InstanceNotServed(f"server {server}: its disk is not there yet")
        return found["device"]

    def _await(self, server: str) -> None:
        """Wait until a disk is another node's; the agent may be started again meanwhile."""
        heard = self.now()

        def hear(move: MoveAnswer) -> None:
            nonlocal heard
            heard = self.now()

        while True:
            try:
                self.agent.await_move(server, hear)
                return
            except MoveUnknown:
                # It has ended while the agent was down.
                if not any(one["vm"] == server for one in self.agent.list()):
                    return
                raise
            except AgentUnreachable:
                if self.now() - heard > self.ready_timeout:
                    raise
            self.pause(_PAUSE)

    def _keep(self, server: str) -> None:
        """Have a disk stay; if it is too late for that, its state says so."""
        LOG.warning("the disk of server %s was on its way to another node: it stays", server)
        with contextlib.suppress(MoveHanded, MoveUnknown):
            self.agent.cancel_move(server)

    def _refuse_second(self, server: str) -> None:
        with contextlib.suppress(InstanceUnknown):
            self.agent.show(server)
            raise InstanceExists(f"server {server} has a disk on this node already")

    def _create(self, server: str, image: str, size: int | None) -> str:
        began = self.now()
        while True:
            try:
                return self.agent.create(server, image, size=size)["device"]
            except ImageUnknown:
                waited = self.now() - began
                if waited >= self.served_timeout:
                    raise
            except AgentUnreachable:
                # It may have made the disk nonetheless; if it stays silent, the sweep is left.
                with contextlib.suppress(VirtmanError):
                    self.agent.destroy(server)
                raise
            self.pause(min(pause_after(waited), self.served_timeout - waited))

    def _hold(self, image: str, volume: int, began: float) -> None:
        """Take hold of an image; who waited while Cinder failed to make it fails as well.

        Else each of many servers would have an image downloaded that does not fit.
        """
        when, failure = self._failed.get(image, (-math.inf, None))
        if failure and when > began:
            raise VolumeFailed(str(failure)) from failure
        try:
            self.images.hold(image, volume)
        except VolumeFailed as err:
            self._failed[image] = self.now(), err
            raise
        self._failed.pop(image, None)

    def _needed(self, image: str) -> bool:
        # What another node owns already, that one holds.
        here = (one for one in self.agent.list() if one["state"] != _HANDED)
        return bool(self._builds[image]) or any(one["image"] == image for one in here)

    def _let_go(self, image: str) -> None:
        """Let go of an image if nothing here needs it; the sweep repeats what fails."""
        with self._lock(image):
            try:
                if not self._needed(image):
                    self.images.release(image)
            except Exception as err:
                LOG.warning("image %s is still held by this node: %s", image, err)
                self.doubt()

    def _lock(self, image: str) -> threading.Lock:
        with self._guard:
            return self._locks[image]
