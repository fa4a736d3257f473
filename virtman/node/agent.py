"""The six verbs of a node: what happens when a VM's device is wanted, and when it is not."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from virtman.coordinator.interface import ImageInfo
from virtman.disk.disks import Stores
from virtman.disk.volumes import device
from virtman.errors import (
    DevicePending,
    InstanceExists,
    InstanceSize,
    InstanceUnknown,
    VirtmanError,
)
from virtman.image.attachment import Attachment
from virtman.model import naming, planner, sizes
from virtman.model.chain import Instance, Inventory, Snapshot, Store
from virtman.model.handover import Arrival
from virtman.node.cached_volumes import CachedVolumes
from virtman.node.images import Images
from virtman.stack.builder import check_modules

LOG = logging.getLogger(__name__)

_PATIENCE = 10.0  # seconds for who changes the same VM; it may be this agent, just after its start


@dataclass(frozen=True)
class Shown:
    """A VM and what belongs to it.

    :ivar chain: its stores, the one on the image first
    :ivar state: "ready"; "low" when its quota is nearly used up; "waits" while its I/O is held
        back; "absent" while there is no device; "lost" if the kernel gave up a store;
        "arriving", "leaving" or "handed" while it moves from one host to another
    :ivar taken: bytes of its stores that are in use; None while that cannot be told
    :ivar snapshots: names of those that were taken of it, the oldest first
    """

    instance: Instance
    chain: tuple[Store, ...]
    state: str
    taken: int | None
    snapshots: tuple[str, ...]


@dataclass(frozen=True)
class Kept:
    """A snapshot and its stores, the one on the image first."""

    snapshot: Snapshot
    chain: tuple[Store, ...]


class Agent:
    """Creates and destroys VM devices, over images that it has brought up for them."""

    def __init__(self, images: Images, stores: Stores) -> None:
        self.images = images
        self.stores = stores
        self.host = images.host
        self.stack = images.stack
        self.coordinator = images.coordinator
        self.records = stores.records
        self.cached = CachedVolumes(self.stack.group, self.records.stores.parent / "cached")
        # Guards the one below; held for moments only.
        self._given_back = threading.Condition()
        self._busy: set[str] = set()

    def create(
        self,
        vm: str,
        image: str = "",
        snapshot: str = "",
        original: str = "",
        size: int | None = None,
        quota: int | None = None,
        store: str = "",
        temporary: bool = False,
    ) -> Instance:
        """Give a VM its device over an image, which is attached first if need be.

        :param image: name; may be left out where there is a snapshot or an original
        :param snapshot: name of one at which the VM begins
        :param original: a VM that goes on, whose data of now the VM begins with
        :param size: bytes of the VM's disk, which has zeros behind what it begins with; None for as
            many as that has
        :param quota: bytes that the VM's stores may take, 0 for all that they can need; None
            for what is configured
        :param store: path of a block device that takes what the VM writes; empty for a file or
            volume as configured
        :param temporary: the VM goes by itself once nobody has had its device open for a while
        :raises InstanceExists: if there is a VM of this name
        :raises InstanceUnknown: if there is no such original
        :raises MoveInProgress: if one of this name has moved away, and is still being given up
        :raises ImageUnknown: if Volt does not have the image
        :raises SnapshotUnknown: if there is no such snapshot
        :raises ImageRemade: if that is of an earlier image of this name
        :raises InstanceSize: if the disk would be smaller than what it begins with
        :raises NoSpace: if its exception store does not fit
        :raises StoreUnusable: if the device cannot be the store
        """
        naming.check("VM", vm)
        if store:
            device.check(store)
        if snapshot:
            found = self.records.snapshot(naming.check("snapshot", snapshot))
            image = image or found.image
            size = found.size if size is None else size
        if original:
            self.records.check_vm(vm)  # else one that is its own original would wait for itself
            image = self.records.get(naming.check("VM", original)).image
        naming.check("image", image)
        with self.claim(vm), self.claim(original) if original else contextlib.nullcontext():
            self.records.check_vm(vm)
            self.records.check_left(vm)
            if original:
                self.records.check_stays(original)
                size = _copied(size, self.records.get(original))
            check_modules(self.stack.modules)
            attachment = self.images.find(image)
            size = _fitting(size, attachment.info)
            quota = self.stores.space.limits.quota if quota is None else quota
            if not store:
                self.stores.space.check(size, quota)
            attachment.acquire(vm)
            try:
                wanted = Instance(
                    vm, image, size, "", quota, origin=attachment.info.origin, temporary=temporary
                )
                with self.images.telling(image):
                    if original:
                        instance = self.stores.copy(original, wanted, store)
                    else:
                        instance = self.stores.create(wanted, snapshot, store)
            except BaseException:
                attachment.release(vm)
                raise
        LOG.info("VM %s has %s", vm, device_path(instance))
        return instance

    def destroy(self, vm: str) -> None:
        """Take a VM's device away, and everything that it wrote but for its snapshots.

        :raises InstanceUnknown: if there is none
        :raises DeviceBusy: while the device is open; nothing is changed then
        """
        naming.check("VM", vm)
        with self.claim(vm):
            self.records.check_stays(vm)
            self.remove(vm)

    def remove(self, vm: str) -> None:
        """Take all of a VM away but for its snapshots, whoever has claimed it."""
        instance = self.records.get(vm)
        with self.images.telling(instance.image):
            self.stores.destroy(vm)
        self.images.release(instance.image, vm)
        LOG.info("VM %s is gone", vm)

    def receive(self, wanted: Instance, arrival: Arrival) -> None:
        """Prepare a store for a VM that comes from another host, over its image.

        :raises InstanceExists: if there is a VM of this name
        :raises MoveInProgress: if one of this name has moved away, and is still being given up
        :raises NoSpace: if its exception store does not fit
        """
        with self.claim(wanted.vm):
            self.records.check_vm(wanted.vm)
            self.records.check_left(wanted.vm)
            check_modules(self.stack.modules)
            attachment = self.images.find(wanted.image)
            self.stores.space.check(wanted.size, wanted.quota)
            attachment.acquire(wanted.vm)
            try:
                self.records.put(arrival)
                with self.images.telling(wanted.image):
                    self.stores.receive(wanted)
            except BaseException:
                self.records.forget(arrival)
                attachment.release(wanted.vm)
                raise

    def bring_back(self, vm: str) -> None:
        """Have a VM's devices, whatever happened to them.

        :raises InstanceUnknown: if there is no such VM
        """
        self._serve(self.images.find(self.records.get(vm).image), vm)

    def limit(self, vm: str, quota: int) -> None:
        """Give a VM another quota; one that waits for it goes on soon.

        :param quota: bytes that the VM's stores may take; 0 for all that they can need
        :raises InstanceUnknown: if there is no such VM
        """
        naming.check("VM", vm)
        with self.claim(vm):
            self.records.check_stays(vm)
            self.stores.limit(vm, quota)

    def resize(self, vm: str, size: int) -> None:
        """Make a VM's disk longer, while it runs; what is new reads as zeros.

        :param size: bytes
        :raises InstanceUnknown: if there is no such VM
        :raises InstanceSize: if it would become shorter
        :raises NoSpace: if what the VM may write does not fit any more
        """
        naming.check("VM", vm)
        with self.claim(vm):
            self.records.check_stays(vm)
            self.stores.resize(vm, _possible(size))

    def snapshot(self, vm: str, name: str) -> Snapshot:
        """Keep a VM's data as of now, while it runs.

        :raises InstanceUnknown: if there is no such VM
        :raises SnapshotExists: if there is a snapshot of this name
        :raises NoSpace: if one more exception store does not fit
        """
        naming.check("VM", vm)
        naming.check("snapshot", name)
        with self.claim(vm):
            self.records.check_stays(vm)
            return self.stores.snapshot(vm, name)

    def rollback(self, vm: str, name: str) -> None:
        """Have a VM begin anew at a snapshot of its own; what it wrote since then is gone.

        :raises InstanceUnknown: if there is no such VM
        :raises SnapshotUnknown: if there is no such snapshot
        :raises SnapshotMismatch: if it is of another VM
        :raises DeviceBusy: while the device is open; nothing is changed then
        """
        naming.check("VM", vm)
        naming.check("snapshot", name)
        with self.claim(vm):
            self.records.check_stays(vm)
            self.stores.rollback(vm, name)

    def delete_snapshot(self, name: str) -> None:
        """Forget a snapshot.

        :raises SnapshotUnknown: if there is none
        """
        found = self.records.snapshot(naming.check("snapshot", name))
        with self.images.telling(found.image):
            self.stores.delete(found)

    def list(self) -> Sequence[Shown]:
        """Return the VMs of this node, by name."""
        inventory = self.records.inventory()
        vms = sorted(inventory.instances.values(), key=lambda one: one.vm)
        return self._shown(vms, inventory)

    def show(self, vm: str) -> Shown:
        """Return one VM.

        :raises InstanceUnknown: if there is none
        """
        inventory = self.records.inventory()
        (found,) = self._shown([inventory.instance(naming.check("VM", vm))], inventory)
        return found

    def snapshots(self) -> Sequence[Kept]:
        """Return the snapshots on this node, the oldest first."""
        inventory = self.records.inventory()
        shown = [one for one in inventory.snapshots.values() if not one.is_hidden]
        found = sorted(shown, key=lambda one: one.created_at)
        return [Kept(one, inventory.chain(one.store)) for one in found]

    def show_snapshot(self, name: str) -> Kept:
        """Return one snapshot.

        :raises SnapshotUnknown: if there is none
        """
        found = self.records.snapshot(naming.check("snapshot", name))
        return Kept(found, self.records.inventory().chain(found.store))

    def busy(self) -> set[str]:
        """Return the VMs that a verb is about just now."""
        with self._given_back:
            return set(self._busy)

    def settled(self) -> Sequence[str]:
        """Return the VMs that are written down and that no verb is about just now."""
        busy = self.busy()
        return [one.vm for one in self.records.all() if one.vm not in busy]

    @contextlib.contextmanager
    def claim(self, vm: str) -> Iterator[None]:
        """Let nobody else change a VM meanwhile, after who does so already.

        :raises InstanceExists: if that one takes long
        """
        with self._given_back:
            if not self._given_back.wait_for(lambda: vm not in self._busy, _PATIENCE):
                raise InstanceExists(f"VM {vm} is being changed by another request: try again")
            self._busy.add(vm)
        try:
            yield
        finally:
            with self._given_back:
                self._busy.discard(vm)
                self._given_back.notify_all()

    def recover(self) -> Sequence[str]:
        """Take over what an earlier agent left, or build it again after a reboot.

        :returns: names of VMs and images that could not be served yet; call again for these
        """
        check_modules(self.stack.modules)
        failed = []
        for image in {store.image for store in self.records.inventory().stores.values()}:
            self.stores.tidy_up(image)
        for instance in self.records.all():
            try:
                self.resume(instance)
            except (VirtmanError, OSError) as err:
                LOG.warning("VM %s: %s", instance.vm, err)
                failed.append(instance.vm)
        return [*failed, *self.images.adopt(), *self.cached.recover()]

    def resume(self, instance: Instance) -> None:
        """Have a VM's device as its record says, and the image below it."""
        with self.claim(instance.vm):
            self.records.get(instance.vm)  # unknown if it was destroyed meanwhile
            attachment = self.images.find(instance.image)
            served = self._is_served(instance) and self.stores.devices.is_right(instance)
            if instance.vm not in attachment.users or not served:
                try:
                    self._serve(attachment, instance.vm)
                except DevicePending as err:
                    is_used = instance.vm in attachment.users
                    if not (is_used and self._is_served(instance)):
                        raise
                    # tried again by the merger, which does not hold it back so often
                    LOG.warning("VM %s goes on as it was: %s", instance.vm, err)
                self.stores.changed.set()

    def _serve(self, attachment: Attachment, vm: str) -> None:
        attachment.acquire(vm)
        try:
            self.stores.bring_up(vm)
        except InstanceUnknown:  # it was destroyed, or handed over, meanwhile
            attachment.release(vm)
            raise

    def _is_served(self, instance: Instance) -> bool:
        return self.stores.suspension.is_served(instance)

    def _shown(self, instances: Sequence[Instance], inventory: Inventory) -> Sequence[Shown]:
        snapshots = sorted(inventory.snapshots.values(), key=lambda one: one.created_at)
        names = defaultdict(list)
        for one in snapshots:
            if not one.is_hidden:
                names[one.vm].append(one.name)
        chains = {one: inventory.chain(one.store) for one in instances}
        return [
            Shown(one, chains[one], self._on_its_way(one.vm) or state, taken, tuple(names[one.vm]))
            for one, (state, taken) in self.stores.rooms.states(chains).items()
        ]

    def _on_its_way(self, vm: str) -> str:
        """Return how a VM that comes or leaves is, in a word; empty for others."""
        move = self.records.move(vm)
        if self.records.arrival(vm) is not None:
            return "arriving"
        if move is None or move.keeps:
            return ""
        return "handed" if move.handed else "leaving"


def _fitting(size: int | None, info: ImageInfo) -> int:
    """Return the bytes of a disk over an image."""
    if size is None:
        return info.disk_size
    if size < info.disk_size:
        raise InstanceSize(
            f"image {info.name} has {info.disk_size} bytes: a VM of it cannot have a disk of {size}"
        )
    return _possible(size)


def _copied(size: int | None, original: Instance) -> int:
    """Return the bytes of a disk that begins as another VM's."""
    if size is not None and size < original.size:
        raise InstanceSize(
            f"VM {original.vm} has a disk of {original.size} bytes: a copy cannot have {size}"
        )
    return size or original.size


def _possible(size: int) -> int:
    """Return a size that a disk can have; see InstanceSize and InvalidSize."""
    sizes.sectors(size)
    if size > sizes.SPAN:
        raise InstanceSize(f"a disk can have {sizes.SPAN} bytes at most, not {size}")
    return size


def device_path(instance: Instance) -> str:
    """Path of the device that a VM boots from."""
    return planner.device(instance).device.node
