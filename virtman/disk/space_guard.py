"""Lets a VM wait before what it writes would be lost, or would take what is others'.

A store that cannot be written any more is lost, and with it all that the VM ever wrote. So
the file system of the stores never becomes full by them::

    free >= 2 * reserve    plenty: stores take what they need
    free <  2 * reserve    each store gets disk space ahead of its use, and a warning is logged
    free <      reserve    no more of that: a VM that has used up half of it waits

A VM waits by its device being suspended: its I/O is held back, none fails. It goes on once
there is space again. So does one that has used up its quota, once that is raised.
"""

from __future__ import annotations

import contextlib
import logging
import time

from virtman.disk.capacity import Limits
from virtman.disk.disks import Stores
from virtman.disk.room import Room
from virtman.errors import NoSpace, VirtmanError
from virtman.model.chain import Instance, Store
from virtman.periodic import Periodic

LOG = logging.getLogger(__name__)

_CALM, _TIGHT = 2.0, 0.2


def must_wait(room: Room, quota: int, free: float, limits: Limits) -> str:
    """Say why a VM must wait; empty if it need not."""
    if quota and room.taken >= quota:
        return f"its stores take {room.taken} bytes of its quota of {quota}: raise it"
    if free < limits.reserve and room.ahead < limits.ahead // 2:
        return (
            f"the file system of the stores has {free} bytes left, less than [store] reserve: "
            "free some space"
        )
    return ""


class Supply:
    """Looks at all VMs again and again."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.suspension = stores.suspension
        self.limits = stores.space.limits
        self._warned: set[str] = set()
        self._rounds = Periodic("supply", self.look, _CALM)

    def start(self) -> None:
        """Begin."""
        self._rounds.start()

    def stop(self) -> None:
        """Look no more; VMs that wait go on waiting, for the next agent."""
        self._rounds.stop()

    def look(self) -> float:
        """Look once at all VMs; return the seconds until the next look."""
        begin = time.monotonic()
        free = self.stores.space.left()
        tight = free < 2 * self.limits.reserve
        self._warn("", tight, f"the file system of the stores has only {free} bytes left")
        inventory = self.stores.records.inventory()
        for instance in inventory.instances.values():
            waits = self.suspension.is_suspended(instance)
            if waits or (waits is not None and (tight or instance.quota)):
                try:
                    self._supply(instance, inventory.chain(instance.store), tight=tight)
                except (VirtmanError, OSError) as err:
                    LOG.warning("store of VM %s: %s", instance.vm, err)
        self._warned &= {"", *inventory.instances}
        return max(_TIGHT if tight else _CALM, time.monotonic() - begin)

    def _supply(self, instance: Instance, chain: tuple[Store, ...], *, tight: bool) -> None:
        room = self.stores.rooms.room(chain)
        if tight and room.ahead < self.limits.ahead:
            with contextlib.suppress(NoSpace):
                room = self.stores.rooms.reserve(chain, room, self.limits.ahead)
        quota = instance.quota
        self._warn(
            instance.vm,
            0 < quota * self.limits.warning <= room.taken,
            f"VM {instance.vm} has taken {room.taken} bytes of its quota of {quota}; it will "
            "have to wait once that is used up",
        )
        reason = must_wait(room, quota, self.stores.space.left(), self.limits)
        waits = self.suspension.is_suspended(instance)
        if reason and not waits:
            # begun at an earlier look if its I/O that is on its way takes long to end
            if self.suspension.suspend_soon(instance):
                LOG.error("VM %s waits: %s", instance.vm, reason)
        elif waits and not reason and self.suspension.resume_unless_needed(instance):
            LOG.info("VM %s goes on", instance.vm)

    def _warn(self, what: str, low: bool, text: str) -> None:
        """Log a warning when something becomes low, once."""
        if low and what not in self._warned:
            LOG.warning("%s", text)
        if low:
            self._warned.add(what)
        else:
            self._warned.discard(what)
