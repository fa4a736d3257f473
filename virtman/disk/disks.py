"""What VMs wrote: exception stores are made, stacked and given back.

Each verb is ordered so that the agent may die between any two of its steps::

    create     store, VM, devices
    snapshot   store, its device, VM, the VM's device moves to the new store, snapshot
    copy       the same, but for the snapshot; then as for create, over the VM's earlier store
    rollback   store, the VM's device goes, VM, its device comes over the new store
    resize     the file of the store becomes longer, store, VM, its device becomes longer
    delete     snapshot
    destroy    devices, VM

A store is written down before there is a file of it, so no file is ever forgotten; and before
anybody refers to it: until then it is garbage, which ``tidy`` takes away.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import replace

from virtman.disk.capacity import Space, volume
from virtman.disk.devices import Devices
from virtman.disk.origins import Origins
from virtman.disk.records import Records
from virtman.disk.room import Rooms, written
from virtman.disk.suspension import Suspension
from virtman.disk.volumes import full_size
from virtman.disk.volumes.device import Given, measured
from virtman.errors import (
    DevicePending,
    InstanceSize,
    NoSpace,
    SnapshotMismatch,
    StoreUnusable,
    VirtmanError,
)
from virtman.model.chain import Instance, Snapshot, Store
from virtman.stack.builder import Stack
from virtman.stack.layers.store import StoreLayer

LOG = logging.getLogger(__name__)

# Long flushes at a time: each takes a thread of the root verbs, which are few.
_SYNCS = 4


class Stores:
    """The exception stores of this node.

    :ivar changed: set when there may be something to merge
    """

    def __init__(self, stack: Stack, records: Records, space: Space) -> None:
        self.records = records
        self.space = space
        self.devices = Devices(stack, records)
        self.suspension = Suspension(self.devices, records)
        self.rooms = Rooms(self.suspension, space)
        self.origins = Origins()
        self.changed = threading.Event()
        # Names of stores that are no garbage, although nobody refers to them yet.
        self._kept: set[str] = set()
        self._syncs = threading.BoundedSemaphore(_SYNCS)

    def create(self, wanted: Instance, snapshot: str = "", path: str = "") -> Instance:
        """Give a VM an empty store over the image, or over a snapshot, and its device.

        :param wanted: the VM, still without a store
        :param snapshot: name; empty for none
        :param path: of a block device for the store; empty for one of the configured backing
        :raises StoreUnusable: if that device is somebody's, or too short
        """
        with self.suspension.locked_image(wanted.image):
            return self._create(wanted, self._start(snapshot, wanted), path)

    def receive(self, wanted: Instance) -> Instance:
        """Give a VM that is on its way here an empty store; its own device comes later.

        :param wanted: the VM, still without a store; it is written down that it arrives
        """
        with self.suspension.locked_image(wanted.image):
            try:
                with self.space.promising:
                    self._check(wanted, "")
                    store = self._make(wanted.image, wanted.size, "")
                    instance = replace(wanted, store=store)
                    self.records.put(instance)
                self.bring_up(wanted.vm)
            except BaseException:
                self.records.forget(wanted)
                self.tidy_up(wanted.image)
                raise
        return instance

    def bring_up(self, vm: str) -> None:
        """Bring the devices of a VM into the state that its record says.

        :raises ImageRemade: if the VM is of an earlier image of this name
        """
        with self.suspension.locked(vm) as instance, contextlib.ExitStack() as pauses:
            if self.suspension.is_handing_over(vm):
                return
            self.origins.check(instance)
            for store in self.devices.emptied(instance):
                pauses.enter_context(self.suspension.suspended(store))
            steps = self.devices.steps(instance)
            arrival = self.records.arrival(vm)
            self.devices.up(steps if arrival is None else steps[:-1])
            if arrival is not None and arrival.live:
                self.devices.vm(instance).stand_in()
            origin = self.origins.of(instance.image)
            if origin and not instance.origin:
                # it was written down by a version that did not know this
                self.records.put(replace(instance, origin=origin))

    def land(self, vm: str) -> None:
        """Forget that a VM was on its way here, and give it its device.

        Where one stands in, it has the data before: whoever started the VM there lets it go on
        once it is not on its way any more.
        """
        with self.suspension.locked(vm) as instance:
            arrival = self.records.arrival(vm)
            assert arrival is not None
            if arrival.live:
                self.origins.check(instance)
                self.devices.up(self.devices.steps(instance))
            self.records.forget(arrival)
            self.bring_up(vm)

    def destroy(self, vm: str) -> None:
        """Take a VM's device away, and the stores that nobody else needs.

        :raises DeviceBusy: while the device is open; nothing is changed then
        """
        with self.suspension.locked(vm) as instance:
            self.devices.vm(instance).down()
            rest = self.records.inventory()
            del rest.instances[vm]
            self.devices.retire(rest, instance.image)
            self.records.forget(instance)
            self.tidy_up(instance.image)
        self.changed.set()

    def snapshot(self, vm: str, name: str) -> Snapshot:
        """Keep a VM's data as of now; its device goes on over a new store.

        :raises SnapshotExists: if there is a snapshot of this name
        """
        self._flush_most(vm)
        with self.suspension.locked(vm) as instance:
            self.records.check_snapshot(name)
            pause = self._freeze(instance)
            kept = Snapshot(
                name, vm, instance.image, instance.size, instance.store, time.time(),
                instance.origin,
            )  # fmt: skip
            self.records.put(kept)
        self.changed.set()
        LOG.info("VM %s: snapshot %s; the VM waited for less than %.3f s", vm, name, pause)
        return kept

    def copy(self, vm: str, wanted: Instance, path: str = "") -> Instance:
        """Give another VM what a VM has now; that one's device goes on over a new store.

        :param wanted: the other VM, still without a store
        :param path: as for ``create``
        """
        self._flush_most(vm)
        with self.suspension.locked(vm) as instance:
            pause = self._freeze(instance)
            made = self._create(wanted, instance.store, path)
        self.changed.set()
        LOG.info("VM %s: copied as %s; it waited for less than %.3f s", vm, wanted.vm, pause)
        return made

    def rollback(self, vm: str, snapshot: str) -> None:
        """Have a VM's device begin anew at one of its snapshots.

        :raises DeviceBusy: while the device is open; nothing is changed then
        """
        with self.suspension.locked(vm) as instance:
            whose = self.records.snapshot(snapshot).vm
            if whose != vm:
                raise SnapshotMismatch(
                    f"snapshot {snapshot} is of VM {whose}, not of {vm}; create a new VM from it "
                    "instead"
                )
            self.origins.check(instance)
            made = self._next(instance, self._start(snapshot, instance))
            try:
                self.devices.vm(instance).down()
                self.records.put(made)
                self.bring_up(vm)
            except BaseException:
                # nothing was written to the new store: the VM's device has been away
                self.records.put(instance)
                self.bring_up(vm)
                self.tidy_up(instance.image)
                raise
            self.tidy_up(instance.image)
        self.changed.set()
        LOG.info("VM %s is as in snapshot %s again", vm, snapshot)

    def delete(self, snapshot: Snapshot) -> None:
        """Forget a snapshot; what only it needs goes."""
        with self.suspension.locked_image(snapshot.image):
            self.records.forget(snapshot)
            self.tidy_up(snapshot.image)
        self.changed.set()

    def limit(self, vm: str, quota: int) -> None:
        """Give a VM another quota."""
        with self.suspension.locked(vm) as instance:
            self.records.put(replace(instance, quota=quota))

    def resize(self, vm: str, size: int) -> None:
        """Make a VM's disk longer, while it runs; what is new reads as zeros.

        First there is room in its store, then the records say so, then its device is longer: so
        an agent that dies between any two leaves a VM that goes on, and another call ends it.

        :raises InstanceSize: if it would become shorter
        :raises NoSpace: if what the VM may write does not fit any more
        :raises StoreUnusable: if its store is on a device that is too short
        """
        with self.suspension.locked(vm) as instance:
            if size < instance.size:
                raise InstanceSize(
                    f"VM {vm} has a disk of {instance.size} bytes; it can become longer, not "
                    f"{size} bytes long"
                )
            self.suspension.check_served(instance)
            chain = self.records.inventory().chain(instance.store)
            given = [store for store in chain if isinstance(volume(store), Given)]
            taking = written(chain)
            with self.space.promising:
                if not all(store in given for store in taking):
                    self.space.check_more(instance, size)
                # what a merge will empty into a device has to fit too
                for store in dict.fromkeys((*given, *taking)):
                    self.lengthen(store, size)
                self.records.put(replace(instance, size=size))
            self.bring_up(vm)

    def lengthen(self, store: Store, size: int) -> None:
        """Have room in a store for all of a disk of so many bytes; the caller has locked its image.

        Its loop device follows when it is brought up.
        """
        if store.size < size:
            volume(store).lengthen(full_size(size))
            self.records.put(replace(store, size=size))

    def mend(self, image: str) -> None:
        """Bring the devices of all VMs of an image into the state that the records say.

        A VM whose devices cannot be brought up keeps nobody else from that.

        :raises DevicePending: if what is on its way through one does not end
        """
        with self.suspension.locked_image(image):
            for one in self.records.all():
                if one.image != image or not self.origins.fits(one):
                    continue
                try:
                    self.bring_up(one.vm)
                except DevicePending:
                    raise
                except (VirtmanError, OSError) as err:
                    LOG.warning("VM %s: %s", one.vm, err)
            self.tidy(image)

    def tidy(self, image: str) -> None:
        """Take away what no VM is made of any more, and the stores that nobody needs."""
        with self.suspension.locked_image(image):
            inventory = self.records.inventory()
            self.devices.retire(inventory, image)
            for store in inventory.garbage():
                if store.image == image and store.name not in self._kept:
                    volume(store).remove()
                    self.records.forget(store)

    def tidy_up(self, image: str) -> None:
        """Tidy; what fails is tried again after the next verb, or by the next agent."""
        try:
            self.tidy(image)
        except (VirtmanError, OSError) as err:
            LOG.warning("image %s: %s", image, err)

    def add(self, image: str, size: int, lower: str, path: str = "") -> Store:
        """Write a new store down."""
        if path:
            return self.records.add_store(image, size, lower, lambda _: path, *measured(path))
        return self.records.add_store(image, size, lower, self.space.backing.path)

    def layer(self, store: Store) -> StoreLayer:
        """Return what makes the device of a store."""
        return self.devices.store(store)

    def keep(self, store: Store) -> None:
        """Take a store for no garbage although nobody refers to it yet."""
        self._kept.add(store.name)

    def let_go(self, store: Store) -> None:
        """Take away a store that was kept, if nobody refers to it by now."""
        self._kept.discard(store.name)
        self.tidy_up(store.image)

    def kept(self) -> set[str]:
        """Return the names of the stores that are kept."""
        return set(self._kept)

    # The rest is inside.

    def _create(self, wanted: Instance, lower: str, path: str = "") -> Instance:
        """Give a VM an empty store over another one, or over the image, and its device."""
        image = wanted.image
        try:
            with self.space.promising:
                self._check(wanted, path)
                instance = replace(wanted, store=self._make(image, wanted.size, lower, path))
                self.records.put(instance)
            self.bring_up(wanted.vm)
        except BaseException:
            self.devices.vm(wanted).down()
            self.records.forget(wanted)
            self.tidy_up(image)
            raise
        return instance

    def _flush_most(self, vm: str) -> None:
        """Have on the disk what a swap will have there, while the VM and all others go on."""
        with self._syncs:
            for store in written(self.records.inventory().chain(self.records.get(vm).store)):
                self.devices.store(store).sync()

    def _freeze(self, instance: Instance) -> float:
        """Have a VM go on over a new store; return for how many seconds at most it waited."""
        made = self._next(instance, instance.store)
        try:
            steps = self.devices.steps(made)
            self.devices.up(steps[:-1])
            self.records.put(made)
            begin = time.monotonic()
            self.devices.up(steps[-2:])
            return time.monotonic() - begin
        except BaseException:
            # Once the VM may have written to the new store it cannot go back.
            if self.devices.is_right(instance):
                self.records.put(instance)
                self.tidy_up(instance.image)
            raise

    def _check(self, wanted: Instance, path: str) -> None:
        """See that there is room for a VM's first store.

        A device is looked at before it is written down: what is written down is cleared.
        """
        if not path:
            self.space.check(wanted.size, wanted.quota)
        elif any(one.path == path for one in self.records.inventory().stores.values()):
            raise StoreUnusable(f"{path} is the exception store of another VM or snapshot")
        else:
            Given(path).claim(full_size(wanted.size))

    def _make(self, image: str, size: int, lower: str, path: str = "") -> str:
        """Make an empty store; return its name."""
        store = self.add(image, size, lower, path)
        try:
            volume(store).make(full_size(size))
        except NoSpace:
            self.records.forget(store)
            raise
        return store.name

    def _next(self, instance: Instance, lower: str) -> Instance:
        """Return a VM as it will be over a new store of its own."""
        self.suspension.check_served(instance)
        self.bring_up(instance.vm)  # a merge may have been ended half way
        with self.space.promising:
            self.space.check(instance.size, instance.quota, instance.store)
            return replace(instance, store=self._make(instance.image, instance.size, lower))

    def _start(self, snapshot: str, vm: Instance) -> str:
        """Return the store on which a snapshot has a VM begin; that is the image without one."""
        if not snapshot:
            return ""
        found = self.records.snapshot(snapshot)
        if found.image != vm.image:
            raise SnapshotMismatch(
                f"snapshot {snapshot} is of image {found.image}, not of {vm.image}"
            )
        if found.size > vm.size:
            raise InstanceSize(
                f"snapshot {snapshot} has {found.size} bytes: a VM of it cannot have a disk of "
                f"{vm.size} bytes"
            )
        self.origins.check(found)
        return found.store
