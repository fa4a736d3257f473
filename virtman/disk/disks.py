"""What VMs wrote: exception stores are made, stacked and given back.

Each verb is ordered so that the agent may die between any two of its steps::

    create     store, VM, devices
    snapshot   store, its device, VM, the VM's device moves to the new store, snapshot
    rollback   store, the VM's device goes, VM, its device comes over the new store
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
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from virtman.disk.capacity import Space, volume
from virtman.disk.records import Records
from virtman.disk.volumes import full_size
from virtman.disk.volumes.device import Given, measured
from virtman.errors import (
    DevicePending,
    ImageRemade,
    InstanceNotServed,
    NoSpace,
    SnapshotMismatch,
    StoreUnusable,
    VirtmanError,
)
from virtman.model import plan
from virtman.model.chain import Instance, Inventory, Snapshot, Store
from virtman.stack.builder import Stack
from virtman.stack.layers.instance import Instance as InstanceLayer
from virtman.stack.layers.store import Store as StoreLayer
from virtman.stack.layers.store import Usage, usages
from virtman.stack.mapped import PATIENCE, Mapped

LOG = logging.getLogger(__name__)

# Seconds that a verb has to end when the agent does: it may hold VMs back, each step for PATIENCE.
_LAST = 30.0
# Long flushes at a time: each takes a thread of the root verbs, which are few.
_SYNCS = 4


@dataclass(frozen=True)
class Room:
    """Bytes that the stores of a VM's chain take, each, the one on the image first.

    :ivar ahead: disk space that is there for what the VM will write; infinite if it is enough
        for all of it
    """

    each: tuple[int, ...]
    ahead: float

    @property
    def taken(self) -> int:
        """What they take in all."""
        return sum(self.each)


class Stores:
    """The exception stores of this node.

    :ivar locks: one an image; guards its stores and their devices. Never held while a store is
        copied or emptied, nor across the network
    :ivar kept: names of stores that are no garbage, although nobody refers to them yet
    :ivar changed: set when there may be something to merge
    :ivar still: VMs that are being handed over to other hosts
    :ivar origins: of the images that have these names now; no store of an earlier one is put
        on them
    """

    def __init__(self, stack: Stack, records: Records, space: Space) -> None:
        self.stack = stack
        self.records = records
        self.space = space
        self.locks: dict[str, threading.RLock] = defaultdict(threading.RLock)
        self.kept: set[str] = set()
        self.changed = threading.Event()
        self.still: set[str] = set()
        self._paused: set[str] = set()
        # So that nobody who has just found a VM waiting lets it go on a moment later.
        self._stilling = threading.Lock()
        self.origins: dict[str, str] = {}
        self._syncs = threading.BoundedSemaphore(_SYNCS)

    def create(self, wanted: Instance, snapshot: str = "", path: str = "") -> Instance:
        """Give a VM an empty store over the image, or over a snapshot, and its device.

        :param wanted: the VM, still without a store
        :param snapshot: name; empty for none
        :param path: of a block device for the store; empty for one of the configured backing
        :raises StoreUnusable: if that device is somebody's, or too short
        """
        vm, image, size = wanted.vm, wanted.image, wanted.size
        with self.locks[image]:
            lower = self._start(snapshot, wanted)
            try:
                with self.space.promising:
                    self._check(wanted, path)
                    instance = replace(wanted, store=self._make(image, size, lower, path))
                    self.records.put(instance)
                self.resume(vm)
            except BaseException:
                self._device(wanted).down()
                self.records.forget(wanted)
                self.tidy_up(image)
                raise
        return instance

    def receive(self, wanted: Instance) -> Instance:
        """Give a VM that is on its way here an empty store; its own device comes later.

        :param wanted: the VM, still without a store; it is written down that it arrives
        """
        with self.locks[wanted.image]:
            try:
                with self.space.promising:
                    self._check(wanted, "")
                    store = self._make(wanted.image, wanted.size, "")
                    instance = replace(wanted, store=store)
                    self.records.put(instance)
                self.resume(wanted.vm)
            except BaseException:
                self.records.forget(wanted)
                self.tidy_up(wanted.image)
                raise
        return instance

    def resume(self, vm: str) -> None:
        """Bring the devices of a VM into the state that its record says.

        :raises ImageRemade: if the VM is of an earlier image of this name
        """
        with self.held(vm) as instance, contextlib.ExitStack() as pauses:
            if self.is_still(vm):
                return
            self._check_origin(instance)
            for store in self._emptied(instance):
                pauses.enter_context(self.paused(store))
            steps = plan.instance(instance, self._chain(instance))
            arrival = self.records.arrival(vm)
            self._up(steps if arrival is None else steps[:-1])
            if arrival is not None and arrival.live:
                self._device(instance).stand_in()
            if not instance.origin and instance.image in self.origins:
                # it was written down by a version that did not know this
                self.records.put(replace(instance, origin=self.origins[instance.image]))

    def land(self, vm: str) -> None:
        """Forget that a VM was on its way here, and give it its device.

        Where one stands in, it has the data before: whoever started the VM there lets it go on
        once it is not on its way any more.
        """
        with self.held(vm) as instance:
            arrival = self.records.arrival(vm)
            assert arrival is not None
            if arrival.live:
                self._check_origin(instance)
                self._up(plan.instance(instance, self._chain(instance)))
            self.records.forget(arrival)
            self.resume(vm)

    def destroy(self, vm: str) -> None:
        """Take a VM's device away, and the stores that nobody else needs.

        :raises DeviceBusy: while the device is open; nothing is changed then
        """
        with self.held(vm) as instance:
            self._device(instance).down()
            rest = self.records.inventory()
            del rest.instances[vm]
            self._retire(rest, instance.image)
            self.records.forget(instance)
            self.tidy_up(instance.image)
        self.changed.set()

    def snapshot(self, vm: str, name: str) -> Snapshot:
        """Keep a VM's data as of now; its device goes on over a new store.

        :raises SnapshotExists: if there is a snapshot of this name
        """
        # what the swap has on the disk: most of it now, while the VM and all others go on
        with self._syncs:
            for store in _written(self.records.inventory().chain(self.records.get(vm).store)):
                self.layer(store).sync()
        with self.held(vm) as instance:
            self.records.check_snapshot(name)
            made = self._next(instance, instance.store)
            try:
                steps = plan.instance(made, self._chain(made))
                self._up(steps[:-1])
                self.records.put(made)
                begin = time.monotonic()
                self._up(steps[-2:])
                pause = time.monotonic() - begin
            except BaseException:
                # Once the VM may have written to the new store it cannot go back.
                if self._device(instance).lies_on(plan.device(instance).below[0].node):
                    self.records.put(instance)
                    self.tidy_up(instance.image)
                raise
            kept = Snapshot(
                name, vm, instance.image, instance.size, instance.store, time.time(),
                instance.origin,
            )  # fmt: skip
            self.records.put(kept)
        self.changed.set()
        LOG.info("VM %s: snapshot %s; the VM waited for less than %.3f s", vm, name, pause)
        return kept

    def rollback(self, vm: str, snapshot: str) -> None:
        """Have a VM's device begin anew at one of its snapshots.

        :raises DeviceBusy: while the device is open; nothing is changed then
        """
        with self.held(vm) as instance:
            whose = self.records.snapshot(snapshot).vm
            if whose != vm:
                raise SnapshotMismatch(
                    f"snapshot {snapshot} is of VM {whose}, not of {vm}; create a new VM from it "
                    "instead"
                )
            self._check_origin(instance)
            made = self._next(instance, self._start(snapshot, instance))
            try:
                self._device(instance).down()
                self.records.put(made)
                self.resume(vm)
            except BaseException:
                # nothing was written to the new store: the VM's device has been away
                self.records.put(instance)
                self.resume(vm)
                self.tidy_up(instance.image)
                raise
            self.tidy_up(instance.image)
        self.changed.set()
        LOG.info("VM %s is as in snapshot %s again", vm, snapshot)

    def delete(self, snapshot: Snapshot) -> None:
        """Forget a snapshot; what only it needs goes."""
        with self.locks[snapshot.image]:
            self.records.forget(snapshot)
            self.tidy_up(snapshot.image)
        self.changed.set()

    # How much room a VM has.

    def room(self, chain: tuple[Store, ...]) -> Room:
        """Return how full the stores of a VM are."""
        each = tuple(self.layer(one).usage().taken for one in chain)
        return Room(each, _ahead(chain, each))

    def states(
        self, chains: Mapping[Instance, tuple[Store, ...]]
    ) -> dict[Instance, tuple[str, int | None]]:
        """Return how VMs' devices are, each in a word, and the bytes that their stores take.

        The kernel is asked once for all. A store that went meanwhile takes nothing.
        """
        found = usages(plan.store(store) for chain in chains.values() for store in chain)
        there = {device.argument: usage for device, usage in found.items()}
        return {
            instance: self._state(
                instance, [there[store.name] for store in chain if store.name in there]
            )
            for instance, chain in chains.items()
        }

    def reserve(self, chain: tuple[Store, ...], room: Room, ahead: int) -> Room:
        """Have disk space for what a VM will write; return how much there is then.

        :raises NoSpace: if there is too little
        """
        for store, taken in zip(chain, room.each, strict=True):
            if store in _written(chain):
                self.space.afford(0)
                volume(store).reserve(taken + ahead)
        return Room(room.each, _ahead(chain, room.each))

    def limit(self, vm: str, quota: int) -> None:
        """Give a VM another quota."""
        with self.held(vm) as instance:
            self.records.put(replace(instance, quota=quota))

    def is_served(self, instance: Instance) -> bool:
        """Tell whether a VM's device is there."""
        return self.waits(instance) is not None

    def is_right(self, instance: Instance) -> bool:
        """Tell whether a VM's device, which is there, lies on the store of its record."""
        return self._device(instance).lies_on(plan.device(instance).below[0].node)

    def fits(self, one: Instance | Snapshot) -> bool:
        """Tell whether a VM or snapshot is of the image that has its image's name now."""
        return not one.origin or self.origins.get(one.image, one.origin) == one.origin

    def waits(self, instance: Instance) -> bool | None:
        """Tell whether a VM's I/O is held back; None if it has no device with its data."""
        if self.records.arrival(instance.vm) is not None:
            return None
        return self._device(instance).waits()

    # These two do not wait for the lock, for space may be short.

    def hold(self, instance: Instance) -> bool:
        """Begin to let a VM wait; tell whether that was still to begin.

        A swap of tables at the same moment lets it go on, until the next look at its stores.
        """
        return self._device(instance).hold()

    def release(self, instance: Instance) -> bool:
        """Let a VM go on, unless it is held for something else; tell whether it does.

        That is a verb of its image, or that it is being handed over, or was.
        """
        lock = self.locks[instance.image]
        if not lock.acquire(blocking=False):
            return False
        try:
            with self._stilling:
                if self.is_still(instance.vm):
                    return False
                self._device(instance).resume()
                return True
        finally:
            lock.release()

    def is_still(self, vm: str) -> bool:
        """Tell whether the tables of a VM's devices must stay as they are."""
        move = self.records.move(vm)
        return vm in self.still or (move is not None and move.handed)

    def quiet(self, vm: str) -> Instance:
        """Hold a VM for being handed over: nothing moves in its stores from now on.

        :returns: the VM as it is then
        :raises NoSpace: if it waits already, for space
        """
        with self.held(vm) as instance:
            self._must_be_served(instance)
            if self.waits(instance):
                raise NoSpace(f"VM {vm} waits for space: give it some first")
            with self._stilling:
                self.still.add(vm)
            try:
                self._device(instance).suspend()
            except VirtmanError:
                self.unquiet(vm)
                raise
        return instance

    def unquiet(self, vm: str) -> None:
        """Let a VM go on after all; one that goes on already is left alone."""
        with self.held(vm) as instance, self._stilling:
            self.still.discard(vm)
            if self.waits(instance):
                self._device(instance).resume()

    def seal(self, vm: str) -> None:
        """Have a VM that was handed over neither read nor write here any more."""
        with self.held(vm) as instance:
            self._device(instance).seal()

    @contextlib.contextmanager
    def paused(self, store: Store) -> Iterator[None]:
        """Hold back all that lies on a store, so that it can be led to the one below.

        For that the kernel waits until nothing is on its way through a store that is being merged
        into that one, and nothing ends this wait. Here it is ended.

        :raises DevicePending: if what is on its way does not end; all goes on then
        """
        with self.locks[store.image], contextlib.ExitStack() as stack:
            if store.name not in self._paused:
                stack.callback(self._paused.discard, store.name)
                self._paused.add(store.name)
                layers, end = self._on(store), time.monotonic() + PATIENCE
                for one in layers:
                    stack.callback(one.resume)
                    one.suspend(max(0.0, end - time.monotonic()))
            yield

    def mend(self, image: str) -> None:
        """Bring the devices of all VMs of an image into the state that the records say.

        A VM whose devices cannot be brought up keeps nobody else from that.

        :raises DevicePending: if what is on its way through one does not end
        """
        with self.locks[image]:
            for one in self.records.all():
                if one.image != image or not self.fits(one):
                    continue
                try:
                    self.resume(one.vm)
                except DevicePending:
                    raise
                except (VirtmanError, OSError) as err:
                    LOG.warning("VM %s: %s", one.vm, err)
            self.tidy(image)

    def tidy(self, image: str) -> None:
        """Take away what no VM is made of any more, and the stores that nobody needs."""
        with self.locks[image]:
            inventory = self.records.inventory()
            self._retire(inventory, image)
            for store in inventory.garbage():
                if store.image == image and store.name not in self.kept:
                    volume(store).remove()
                    self.records.forget(store)

    def tidy_up(self, image: str) -> None:
        """Tidy; what fails is tried again after the next verb, or by the next agent."""
        try:
            self.tidy(image)
        except (VirtmanError, OSError) as err:
            LOG.warning("image %s: %s", image, err)

    def stop(self) -> None:
        """Let the verbs end that have begun, for they may hold VMs back; none begins any more."""
        end = time.monotonic() + _LAST
        for image, lock in list(self.locks.items()):
            if not lock.acquire(timeout=max(0.0, end - time.monotonic())):
                LOG.warning("image %s: a verb goes on; VMs that wait go on with the agent", image)

    @contextlib.contextmanager
    def held(self, vm: str) -> Iterator[Instance]:
        """Hold an image's stores still; give a VM of it as it is then."""
        with self.locks[self.records.get(vm).image]:
            yield self.records.get(vm)

    def add(self, image: str, size: int, lower: str, path: str = "") -> Store:
        """Write a new store down."""
        if path:
            return self.records.add_store(image, size, lower, lambda _: path, *measured(path))
        return self.records.add_store(image, size, lower, self.space.backing.path)

    def layer(self, store: Store) -> StoreLayer:
        """Return what makes the device of a store."""
        layer = self.stack.layer(plan.store(store))
        assert isinstance(layer, StoreLayer)
        return layer

    # The rest is inside.

    def _retire(self, inventory: Inventory, image: str) -> None:
        """Take down the devices of stores of which no VM consists, upper ones first."""
        served = inventory.served()
        for store in inventory.descending():
            if store.image == image and store.name not in served:
                self.layer(store).down()

    def _emptied(self, instance: Instance) -> list[Store]:
        """Return the stores past which a VM is to be led: merges whose end was begun."""
        inventory, image = self.records.inventory(), instance.image
        chain = inventory.chain(instance.store)
        left = [one for one in inventory.left() if one.image == image and one not in chain]
        own = self._layers(chain, [instance])
        return [one for one in left if _on(one, own)]

    def _on(self, store: Store) -> list[Mapped]:
        """Return the devices that lie on a store's, whatever the records say."""
        inventory, image = self.records.inventory(), store.image
        layers = self._layers(
            (one for one in inventory.stores.values() if one.image == image),
            (one for one in inventory.instances.values() if one.image == image),
        )
        return _on(store, layers)

    def _layers(self, stores: Iterable[Store], vms: Iterable[Instance]) -> list[Mapped]:
        return [*(self.layer(one) for one in stores), *(self._device(one) for one in vms)]

    def _state(self, instance: Instance, stores: Sequence[Usage | None]) -> tuple[str, int | None]:
        waits = self.waits(instance)
        if waits is None:
            return "absent", None
        if None in stores:
            return "lost", None
        taken = sum(store.taken for store in stores if store)
        if waits:
            return "waits", taken
        low = 0 < instance.quota * self.space.limits.warning <= taken
        return ("low" if low else "ready"), taken

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
        self._must_be_served(instance)
        self.resume(instance.vm)  # a merge may have been ended half way
        with self.space.promising:
            self.space.check(instance.size, instance.quota, instance.store)
            return replace(instance, store=self._make(instance.image, instance.size, lower))

    def _start(self, snapshot: str, vm: Instance) -> str:
        """Return the store on which a snapshot has a VM begin; that is the image without one."""
        if not snapshot:
            return ""
        found = self.records.snapshot(snapshot)
        if (found.image, found.size) != (vm.image, vm.size):
            raise SnapshotMismatch(
                f"snapshot {snapshot} is of image {found.image} of {found.size} bytes, not of "
                f"{vm.image} of {vm.size} bytes"
            )
        self._check_origin(found)
        return found.store

    def _check_origin(self, one: Instance | Snapshot) -> None:
        if self.fits(one):
            return
        what = f"VM {one.vm}" if isinstance(one, Instance) else f"snapshot {one.name}"
        raise ImageRemade(
            f"{what} is of an image {one.image} that was deleted; another one has that name now. "
            "What was written is kept: give the earlier image its name back in Volt, or destroy "
            f"{what}"
        )

    def _must_be_served(self, instance: Instance) -> None:
        if not self.is_served(instance):
            raise InstanceNotServed(
                f"the device of VM {instance.vm} is not there yet: the agent tries to bring it "
                "back, its log says what it waits for"
            )

    def _chain(self, instance: Instance) -> tuple[Store, ...]:
        """Return the stores of a VM, for their devices to be brought up.

        :raises StoreUnusable: if another device has the path of one of them
        """
        chain = self.records.inventory().chain(instance.store)
        for store in chain:
            volume(store).check()
        return chain

    def _up(self, steps: plan.Plan) -> None:
        """Bring devices up; what the first one lies on is there."""
        self.stack.up(steps, {below: below.node for below in steps[0].below})

    def _device(self, instance: Instance) -> InstanceLayer:
        layer = self.stack.layer(plan.device(instance))
        assert isinstance(layer, InstanceLayer)
        return layer


def _on(store: Store, layers: Iterable[Mapped]) -> list[Mapped]:
    """Return which of these devices lie on a store's."""
    return [one for one in layers if one.lies_on(plan.store(store).device.node)]


def _written(chain: tuple[Store, ...]) -> tuple[Store, ...]:
    """Return the stores that take what a VM writes: one that is being merged passes some down."""
    *_, top = chain
    return chain[-2:] if top.merging else chain[-1:]


def _ahead(chain: tuple[Store, ...], each: tuple[int, ...]) -> float:
    """Return the disk space that is there for what a VM will write."""
    written = _written(chain)
    return min(
        volume(one).ahead(taken) for one, taken in zip(chain, each, strict=True) if one in written
    )
