"""Compares what the kernel has, what is written down and what Volt says; mends what differs.

What is written down says which VMs there shall be. From these, and from the images that are
attached, follows all that the kernel shall have, and where Volt shall have placed this host.
What the kernel has beyond that is an orphan, if its name says that it is ours; what is anybody
else's is not even looked at.

Verbs go on meanwhile, and what one of them is about to make or to take away is no difference. So
only what is still so at a second look counts, and each repair is a verb of its own, which finds
out for itself what there is to do.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from virtman import atomic_file, sysfs
from virtman.errors import (
    CoordinatorUnreachable,
    ImageUnknown,
    InstanceUnknown,
    StoreInvalid,
    VirtmanError,
)
from virtman.image.attachment import LONG_WAIT, Attachment, look_closely
from virtman.model.chain import LONGEST, Store
from virtman.model.naming import Device
from virtman.node.agent import Agent
from virtman.stack import orphans
from virtman.stack.transport import transport

LOG = logging.getLogger(__name__)

_BETWEEN = 0.5

KINDS = {
    "vm.absent": ("a VM has no device", "the device is created again"),
    "vm.moved": ("a VM's device uses another store than its record says",
                 "the device is put on the right store"),
    "vm.orphan": ("VM device without a record", "it is removed, unless it is open"),
    "vm.remade": ("a VM belongs to an earlier image of the same name",
                  "none: see virtman.image.remade"),
    "vm.unmerged": ("a VM has more than three stores, and none is being merged",
                    "the merge is tried again: the log says what prevents it"),
    "store.lost": ("the kernel gave up a store: its data is lost",
                   "none: roll back to a snapshot, or destroy the VM"),
    "store.missing": ("the file or device of a store is missing",
                      "none: bring it back, or destroy the VM"),
    "store.unused": ("a store that no VM and no snapshot needs", "it is removed, with its device"),
    "store.unknown": ("store file without a record",
                      "it is moved to folder lost: it may hold a VM's data"),
    "store.orphan": ("store device without a record", "it is removed"),
    "image.orphan": ("devices of an image that is not attached",
                     "they are taken over, and removed after the keep time"),
    "image.incomplete": ("an attached image lacks a device", "the device is created again"),
    "image.waits": ("VMs wait for what they read of an image: none of its parents answers",
                    "none: bring back a parent, or the source"),
    "path.failed": ("a path to a parent or to the cache does not work", "it is tried again"),
    "path.orphan": ("a path to a host that is not a parent", "it is removed"),
    "session.orphan": ("an iSCSI session that nothing uses", "it is logged out"),
    "export.orphan": ("an export of an image that is not attached", "it is removed"),
    "loop.orphan": ("a loop device that nothing uses", "it is detached"),
    "file.orphan": ("a file that nothing needs", "it is removed"),
    "cache.absent": ("an attached image runs without its cache",
                     "the cache is put back in front of it"),
    "volume.absent": ("a cached volume has no device, or no cache", "both are created again"),
    "volt.silent": ("Volt does not answer: its view is not known", "none: start Volt"),
    "volt.unplaced": ("Volt has no place for this host in an attached image",
                      "the host joins again"),
    "volt.stale": ("Volt placed this host anew, or does not know which place it uses",
                   "the new place is used"),
    "volt.orphan": ("Volt has a place for this host in an image that is not attached",
                    "the place is given up"),
    "volt.held": ("Volt keeps an image for disks of this host, of which there are none",
                  "Volt keeps it for them no longer"),
    "volt.gone": ("Volt does not know an attached image, or knows another one of its name",
                  "none: destroy its VMs, or add the image again"),
}  # fmt: skip
"""What each code means, and what repair does about it."""


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it should be.

    :ivar code: stable, see ``KINDS``
    :ivar what: device, file, VM or image
    """

    code: str
    what: str
    repair: Callable[[], object] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Outcome:
    """What a check found, and what is left of it after repair."""

    found: tuple[Difference, ...]
    left: tuple[Difference, ...]


class Check:
    """Looks at one node.

    :param pause: between two looks
    """

    def __init__(self, agent: Agent, pause: Callable[[float], object] = time.sleep) -> None:
        self.agent = agent
        self.stack = agent.stack
        self.stores = agent.stores
        self.pause = pause

    def look(self) -> tuple[Difference, ...]:
        """Return what differs."""
        before = set(self._look())
        if not before:
            return ()
        self.pause(_BETWEEN)
        return tuple(one for one in self._look() if one in before)

    def repair(self) -> Outcome:
        """Mend what differs."""
        found = left = self.look()
        before: tuple[Difference, ...] = ()
        # what lies below an orphan can go, and may be found, only once that has gone
        while left != before and any(one.repair for one in left):
            for one in left:
                if one.repair is not None:
                    self._mend(one)
            before, left = left, self.look()
            found += tuple(one for one in left if one not in found)
        return Outcome(found, left)

    @staticmethod
    def _mend(one: Difference) -> None:
        assert one.repair is not None
        try:
            one.repair()
        except (VirtmanError, OSError, ExceptionGroup) as err:
            LOG.warning("repairing %s, %s: %s", one.code, one.what, err)
        else:
            LOG.info("repaired %s: %s", one.code, one.what)

    def _look(self) -> list[Difference]:
        attached = {one.info.name: one for one in self.agent.images.attachments()}
        known = attached.keys() | self.agent.images.moving()
        found = [*self._vms(), *self._stores()]
        found += self._orphans(known)
        seen = look_closely(attached.values())
        for one in attached.values():
            found += [Difference(code, str(device), one.restore)
                      for code, device in one.faults(seen)]  # fmt: skip
            if one.waiting >= LONG_WAIT:
                found.append(Difference("image.waits", one.info.name))
        found += [
            Difference("volume.absent", one.volume.path, self.agent.cached.recover)
            for one in self.agent.cached.list()
            if one.state in ("absent", "uncached") and Path(one.volume.path).exists()
        ]
        return [*found, *self._volt(attached)]

    def _let_go(self, image: str) -> None:
        if image not in self.agent.images.needs():  # a VM of it may have come since
            self.agent.coordinator.release(image)

    # What is written down, and the kernel.

    def _vms(self) -> Iterator[Difference]:
        unmerged = self._unmerged()
        for vm in self.agent.settled():
            with contextlib.suppress(InstanceUnknown):
                instance = self.agent.records.get(vm)
                if not self.stores.origins.fits(instance):
                    yield Difference("vm.remade", vm)
                elif not self.stores.suspension.is_served(instance):
                    yield Difference("vm.absent", vm, partial(self._resume, vm))
                elif not self.stores.devices.is_right(instance):
                    yield Difference("vm.moved", vm, partial(self._resume, vm))
                elif vm in unmerged:
                    yield Difference("vm.unmerged", vm, self.stores.changed.set)

    def _resume(self, vm: str) -> None:
        with contextlib.suppress(InstanceUnknown):
            self.agent.resume(self.agent.records.get(vm))

    def _unmerged(self) -> set[str]:
        """Return the VMs with long chains; none while there is a merge, for which others wait."""
        inventory = self.agent.records.inventory()
        if self.stores.kept() or any(one.merging for one in inventory.stores.values()):
            return set()
        return {
            one.vm
            for one in inventory.instances.values()
            if not self.stores.suspension.is_handing_over(one.vm)
            and len(inventory.chain(one.store)) > LONGEST
        }

    def _stores(self) -> Iterator[Difference]:
        inventory = self.agent.records.inventory()
        garbage = {one.name for one in inventory.garbage()} - self.stores.kept()
        served = inventory.served()
        for store in inventory.stores.values():
            if store.name in garbage:
                tidy = partial(self.stores.tidy, store.image)
                yield Difference("store.unused", store.path, tidy)
            elif not Path(store.path).exists():
                yield Difference("store.missing", store.path)
            elif store.name in served and self._is_lost(store):
                yield Difference("store.lost", store.path)

    def _is_lost(self, store: Store) -> bool:
        layer = self.stores.layer(store)
        try:
            if layer.exists():
                layer.usage()
        except StoreInvalid:
            return True
        return False

    # What the kernel has beyond that.

    def _orphans(self, known: set[str]) -> Iterator[Difference]:
        images = known | self.agent.images.written()
        for image, devices in self.stack.present().items():
            for device in sorted(devices, key=lambda one: one.role, reverse=True):
                if self._is_orphan(device):
                    remove = partial(orphans.remove, str(device))
                    yield Difference(f"{device.role}.orphan", str(device), remove)
            mine = [one for one in devices if one.role not in ("vm", "store")]
            if mine and image not in images:
                yield Difference("image.orphan", image, self.agent.images.adopt)
        yield from self._strays(known)
        yield from self._files(images)

    def _strays(self, known: set[str]) -> Iterator[Difference]:
        for portal in transport.idle():
            if portal.image not in known:
                yield Difference("session.orphan", portal.name, partial(transport.log_out, portal))
        host = self.agent.host.name
        for name, image in transport.exports().items():
            if image not in known:
                withdraw = partial(transport.withdraw, name, host, image)
                yield Difference("export.orphan", name, withdraw)
        if not self.agent.images.moving() and not self.agent.busy():  # else one may be for a moment
            for path, offset in orphans.idle_loops(str(self.agent.records.stores.parent)):
                yield Difference("loop.orphan", path, partial(orphans.detach, path, offset))

    def _is_orphan(self, device: Device) -> bool:
        inventory = self.agent.records.inventory()
        match device.role:
            case "vm":
                return (
                    device.argument not in inventory.instances
                    and device.argument not in self.agent.busy()
                )
            case "store":
                return device.argument not in inventory.stores
        return False

    def _files(self, images: set[str]) -> Iterator[Difference]:
        stores = self.agent.records.stores
        paths = {one.path for one in self.agent.records.inventory().stores.values()}
        for file in stores.glob("*.cow"):
            if str(file) not in paths and sysfs.loop_of(str(file)) is None:
                yield Difference("store.unknown", str(file), partial(_set_aside, file))
        for file in self.stack.folder.iterdir():
            if file.suffix == ".superblock":  # by which the next VM finds its image cached
                continue
            name = Path(atomic_file.final_name(file.name))
            mine = name.name.partition("_")[0] in images or name.stem in images
            if not mine and sysfs.loop_of(str(file)) is None:
                yield Difference("file.orphan", str(file), partial(file.unlink, missing_ok=True))

    # Volt's view.

    def _volt(self, attached: dict[str, Attachment]) -> Iterator[Difference]:
        coordinator = self.agent.coordinator
        try:
            found = coordinator.placements("", 0)
            held = coordinator.holds()
        except VirtmanError as err:
            LOG.warning("check: %s", err)
            yield Difference("volt.silent", coordinator.url)
            return
        places = {one.image: one for one in found.placements} if found else {}
        for image in places.keys() - self.agent.images.names():
            yield Difference("volt.orphan", image, partial(coordinator.remove, image))
        for image in held.keys() - self.agent.images.needs().keys():
            yield Difference("volt.held", image, partial(self._let_go, image))
        for image, one in attached.items():
            try:
                info = coordinator.image(image)
            except CoordinatorUnreachable:
                yield Difference("volt.silent", coordinator.url)
                return
            except ImageUnknown:
                yield Difference("volt.gone", image)
                continue
            if info.identity != one.info.identity:
                yield Difference("volt.gone", image)
            elif image not in places:
                yield Difference("volt.unplaced", image, one.rejoin_now)
            elif places[image].generation != one.generation:
                yield Difference("volt.stale", image, partial(one.use, places[image]))


def _set_aside(file: Path) -> None:
    lost = file.parent.parent / "lost"
    lost.mkdir(exist_ok=True)
    file.rename(lost / f"{time.time_ns()}-{file.name}")
