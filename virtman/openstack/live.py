"""Root disks of servers that migrate live: what nova-compute on both nodes asks, and when.

::

    source                                      destination
    ======                                      ===========
    begin: its data go, and what it writes
                                                device: what QEMU opens, still without data
    await_ready: little is left to send
    [libvirt sends the memory]
    is_ready, again and again; else stop that
    [the guest has ended; its last write is on the disk]
                                                [the guest is there, and paused]
    hand_over: the rest goes
                                                await_disk: it is this node's
                                                [the guest goes on]

The disk is the source's until ``hand_over`` has returned; before that ``keep`` has it stay there.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from virtman.api.answers import MoveAnswer
from virtman.errors import (
    AgentUnreachable,
    InstanceNotServed,
    InstanceUnknown,
    MoveUnknown,
    VirtmanError,
    from_code,
)
from virtman.openstack.disks import ARRIVING, DiskLost, Disks

LOG = logging.getLogger(__name__)

_LOOK = 0.2
_PAUSE = 0.5
_SOON = 5.0


class LiveMigrations:
    """The disks of one node, while their servers leave or come without being stopped."""

    def __init__(self, disks: Disks) -> None:
        self.disks = disks
        self.agent = disks.agent

    def begin(self, server: str, host: str) -> None:
        """Begin to send a server's disk; there is a device for it on the other node then.

        One that is still on its way stays first: whoever sent it died over that.

        :param host: what nova calls the other node, and its agent too
        :raises VirtmanError: if the disk cannot go there; nothing is changed
        """
        self.disks.path(server)
        image = self.agent.show(server)["image"]
        self.agent.migrate(server, host, live=True)
        try:
            # Not before: there nobody would know of a hold for a disk that was refused. Until the
            # disk is handed over, which takes the word, what it needs is held by this node.
            self.disks.images.share(image, host)
        except BaseException:
            with contextlib.suppress(VirtmanError):
                self.keep(server)
            raise

    def await_ready(self, server: str, is_wanted: Callable[[], bool]) -> None:
        """Wait until little is left to send, or nobody wants it any more.

        :raises VirtmanError: if the disk stays
        """
        heard = self.disks.now()
        while is_wanted():
            try:
                move = self.agent.move(server)
                heard = self.disks.now()
            except AgentUnreachable:
                if self.disks.now() - heard > self.disks.ready_timeout:
                    raise
            else:
                if move["state"] == "ready":
                    return
                _raise_failed(move)
            self.disks.pause(_PAUSE)

    def is_ready(self, server: str) -> bool:
        """Tell whether a disk can be handed over now: little is left, and the other agent answers.

        It takes moments. Without a yes a server's memory must not leave.
        """
        try:
            return self.agent.within(_SOON).move(server)["state"] == "ready"
        except VirtmanError as err:
            LOG.warning("the disk of server %s cannot leave: %s", server, err)
            return False

    def hand_over(self, server: str, host: str) -> None:
        """Have the other node own a disk that nobody here uses any more; wait for that.

        While the agent is silent it waits on: nobody else knows whose the disk is.

        :raises VirtmanError: if the disk stays
        """
        image = ""
        while True:
            try:
                image = image or self.agent.show(server)["image"]
                self.agent.finish_move(server)
                # An agent that is started anew waits for the word again.
                if self.agent.await_move(server, ready=True)["state"] != "ready":
                    break
            except InstanceUnknown:  # It has ended while the agent was down.
                break
            except MoveUnknown:
                if any(one["vm"] == server for one in self.agent.list()):
                    raise
                break
            except AgentUnreachable as err:
                LOG.warning("server %s waits for its disk: %s", server, err)
            self.disks.pause(_PAUSE)
        if image:
            self.disks.gone(server, image, host)
        else:
            self.disks.doubt()

    def take_up(self, server: str, host: str, *, has_left: bool) -> bool:
        """Go on with a disk whose sender died; tell whether it is the other node's in the end.

        :param has_left: its guest is on the other node, as far as this one knows
        """
        if has_left or not self._stays(server):
            try:
                self.hand_over(server, host)
            except VirtmanError as err:
                LOG.warning("the disk of server %s cannot leave: %s", server, err)
            else:
                return True
        return False

    def keep(self, server: str) -> bool:
        """Have a disk stay; tell whether there is one.

        :raises VirtmanError: if nobody can tell
        """
        try:
            self.disks.path(server)
        except DiskLost as err:
            LOG.error("server %s did not leave, but there is no disk for it: %s", server, err)
            return False
        return True

    def device(self, server: str) -> str:
        """Return the path of a disk that is on its way here.

        If there is none, the next sweep lets go of what the source took hold of for it.

        :raises VirtmanError: if there is none
        """
        try:
            found = self.agent.show(server)
            if found["state"] != ARRIVING:
                raise InstanceNotServed(f"the disk of server {server} is not on its way here")
        except VirtmanError:
            self.disks.doubt()
            raise
        return found["device"]

    def await_disk(self, server: str) -> bool:
        """Wait until a disk that is on its way here is this node's; tell whether it came.

        If not, the next sweep lets go of what the source took hold of for it.
        """
        heard = self.disks.now()
        while True:
            try:
                if self.agent.show(server)["state"] != ARRIVING:
                    return True
                heard = self.disks.now()
            except InstanceUnknown:
                self.disks.doubt()
                return False
            except AgentUnreachable:
                if self.disks.now() - heard > self.disks.ready_timeout:
                    self.disks.doubt()
                    return False
            self.disks.pause(_LOOK)

    def _stays(self, server: str) -> bool:
        try:
            return self.keep(server)
        except VirtmanError:  # unless somebody told the agent to hand it over, it does
            return True


def _raise_failed(move: MoveAnswer) -> None:
    if move["state"] == "failed":
        raise from_code(move["code"], move["note"])
