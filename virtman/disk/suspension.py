"""When a VM's I/O is held back, who may touch its devices meanwhile, and when it goes on.

A VM's device is suspended, or what lies below it, for one of three reasons::

    reason      begun by        begins            ends
    ======      ========        ======            ====
    space       suspend_soon    once all that     resume_unless_needed, once there is space; not
                                is on its way     while a verb has the image's lock, nor while
                                has ended         the VM is handed over
    hand-over   suspend         within ten        resume, if the VM stays; seal, once another
                                seconds, or not   host owns it
    swap        suspended       within ten        by itself
                                seconds, or not

An agent that died in a swap or hand-over leaves VMs suspended: the next one has them go on, when
it starts (``Stack.wake``) and when it goes on with the move. One that waits for space waits on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator

from virtman.disk.devices import Devices
from virtman.disk.records import Records
from virtman.errors import InstanceNotServed, NoSpace, VirtmanError
from virtman.model.chain import Instance, Store
from virtman.stack.layers.instance import holding
from virtman.stack.mapped import PATIENCE

LOG = logging.getLogger(__name__)

# Seconds that a verb has to end when the agent does: it may hold VMs back, each step for PATIENCE.
_LAST = 30.0


class Suspension:
    """Suspends VMs' disks, and has them go on."""

    def __init__(self, devices: Devices, records: Records) -> None:
        self.devices = devices
        self.records = records
        # One an image; guards its stores and their devices. Never held while a store is copied or
        # emptied, nor across the network.
        self._locks: dict[str, threading.RLock] = {}
        # The two below change under the lock of their image only.
        self._handing_over: set[str] = set()
        self._swapped: set[str] = set()
        # VMs that were told to wait: only they may have something on its way that does not end.
        self._begun: set[str] = set()

    # The lock.

    @contextlib.contextmanager
    def locked_image(self, image: str) -> Iterator[None]:
        """Let nobody else change an image's stores, or their devices, meanwhile."""
        with self._lock(image):
            yield

    @contextlib.contextmanager
    def locked(self, vm: str) -> Iterator[Instance]:
        """Let nobody else change the stores of a VM's image meanwhile; give the VM as it is then.

        :raises InstanceUnknown: if there is no such VM
        """
        with self._lock(self.records.get(vm).image):
            yield self.records.get(vm)

    def _lock(self, image: str) -> threading.RLock:
        # not a defaultdict: RLock is a Python function, so two threads could get one each
        return self._locks.setdefault(image, threading.RLock())

    def stop(self) -> None:
        """Let the verbs end that have begun, for they may hold VMs back; none begins any more."""
        end = time.monotonic() + _LAST
        for image, lock in list(self._locks.items()):
            if not lock.acquire(timeout=max(0.0, end - time.monotonic())):
                LOG.warning("image %s: a verb goes on; VMs that wait go on with the agent", image)

    # What a VM's device is now.

    def is_suspended(self, instance: Instance) -> bool | None:
        """Tell whether a VM's I/O is held back; None if it has no device with its data."""
        if self.records.arrival(instance.vm) is not None:
            return None
        return self.devices.vm(instance).waits()

    def beginning(self, instances: Iterable[Instance]) -> set[str]:
        """Return the VMs whose I/O waits, although the kernel does not call them suspended yet.

        What they had on its way before has no end. The kernel's part is asked only if there may be
        such VMs.
        """
        told = {
            self.devices.vm(one).name: one.vm
            for one in instances
            if one.vm in self._begun and self.is_suspended(one) is False
        }
        if not told:
            return set()
        found = {told[name] for name in holding() & told.keys()}
        self._begun -= set(told.values()) - found
        return found

    def is_served(self, instance: Instance) -> bool:
        """Tell whether a VM's device is there."""
        return self.is_suspended(instance) is not None

    def check_served(self, instance: Instance) -> None:
        """Raise InstanceNotServed if a VM's device is not there."""
        if not self.is_served(instance):
            raise InstanceNotServed(
                f"the device of VM {instance.vm} is not there yet: the agent tries to bring it "
                "back, its log says what it waits for"
            )

    # For space. These two do not wait for the lock, for space may be short.

    def suspend_soon(self, instance: Instance) -> bool:
        """Begin to let a VM wait; tell whether that was still to begin.

        A swap of tables at the same moment lets it go on, until the next look at its stores.
        """
        begins = self.devices.vm(instance).hold()
        self._begun.add(instance.vm)
        return begins

    def resume_unless_needed(self, instance: Instance) -> bool:
        """Let a VM go on, unless it is suspended for something else; tell whether it does."""
        lock = self._lock(instance.image)
        if not lock.acquire(blocking=False):
            return False
        try:
            if self.is_handing_over(instance.vm):
                return False
            self.devices.vm(instance).resume()
            self._begun.discard(instance.vm)
            return True
        finally:
            lock.release()

    # For a hand-over.

    def is_handing_over(self, vm: str) -> bool:
        """Tell whether the tables of a VM's devices must stay as they are."""
        move = self.records.move(vm)
        return vm in self._handing_over or (move is not None and move.handed)

    def suspend(self, vm: str) -> Instance:
        """Suspend a VM for being handed over: nothing moves in its stores from now on.

        :returns: the VM as it is then
        :raises NoSpace: if it waits already, for space
        :raises DevicePending: if what is on its way does not end; the VM goes on then
        """
        with self.locked(vm) as instance:
            self.check_served(instance)
            if self.is_suspended(instance):
                raise NoSpace(f"VM {vm} waits for space: give it some first")
            self._handing_over.add(vm)
            try:
                self.devices.vm(instance).suspend()
            except VirtmanError:
                self.resume(vm)
                raise
        return instance

    def resume(self, vm: str) -> None:
        """Let a VM go on after all; one that goes on already is left alone."""
        with self.locked(vm) as instance:
            self._handing_over.discard(vm)
            if self.is_suspended(instance):
                self.devices.vm(instance).resume()

    def seal(self, vm: str) -> None:
        """Have a VM that was handed over neither read nor write here any more.

        :raises InstanceUnknown: if it has gone
        """
        self._handing_over.discard(vm)  # the record of its move says so from the hand-over on
        with self.locked(vm) as instance:
            self.devices.vm(instance).seal()

    # For a swap.

    @contextlib.contextmanager
    def suspended(self, store: Store) -> Iterator[None]:
        """Suspend all that lies on a store, so that it can be led to the one below; repeatable.

        For that the kernel waits until nothing is on its way through a store that is being merged
        into that one, and nothing ends this wait. Here it is ended.

        :raises DevicePending: if what is on its way does not end; all goes on then
        """
        with self._lock(store.image), contextlib.ExitStack() as stack:
            if store.name not in self._swapped:
                stack.callback(self._swapped.discard, store.name)
                self._swapped.add(store.name)
                layers, end = self.devices.on(store), time.monotonic() + PATIENCE
                for one in layers:
                    stack.callback(one.resume)
                    one.suspend(max(0.0, end - time.monotonic()))
            yield
