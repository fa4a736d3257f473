"""Keeps the VMs' chains of exception stores short: two stores become one, and again."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import replace

from virtman.disk.capacity import volume
from virtman.disk.disks import Stores
from virtman.disk.volumes import full_size
from virtman.errors import DevicePending, VirtmanError
from virtman.model.chain import Instance, Merge, Store
from virtman.periodic import Periodic

LOG = logging.getLogger(__name__)

_LOOK = 0.5
_AGAIN = 30.0
_PENDING = 600.0
_SLACK = 1024 * 1024


class Merger:
    """Looks for merges again and again. What it begins the kernel ends, or the next agent.

    A merge has three steps, each of which can be repeated. The upper store is marked and its
    device empties it into the one below; all who lie on it are held back and led past it, first
    in the records; then it is garbage.
    """

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.records = stores.records
        self.suspension = stores.suspension
        self.rounds = Periodic(
            "merger", self._merge_all, _AGAIN, first=_AGAIN, woken=stores.changed
        )
        # Until when the chains over an image are left alone.
        self._later: dict[str, float] = {}

    def start(self) -> None:
        """Begin."""
        self.rounds.start()

    def stop(self) -> None:
        """Begin nothing any more."""
        self.rounds.stop()

    def merge(self, vm: str) -> None:
        """Merge what there is to merge in a VM's chain."""
        while not self.rounds.is_stopped:
            found = self._find(vm)
            if found is None:
                return
            upper = self._begin(found)
            if upper is None or not self._await(upper):
                return

    def _merge_all(self) -> None:
        for one in self.records.all():
            if time.monotonic() < self._later.get(one.image, 0):
                continue
            try:
                self.merge(one.vm)
            except DevicePending as err:
                # A swap holds VMs back for as long as it waits, and those of an image may
                # have stores in common.
                self._later[one.image] = time.monotonic() + _PENDING
                LOG.warning("merging stores of VM %s, later: %s", one.vm, err)
            except (VirtmanError, OSError) as err:
                LOG.warning("merging stores of VM %s: %s", one.vm, err)
            except Exception:
                LOG.exception("merging stores of VM %s", one.vm)

    def _find(self, vm: str) -> Merge | None:
        """Return what there is to merge in a VM's chain, or is being merged."""
        inventory = self.records.inventory()
        if vm in inventory.instances:
            image = inventory.instances[vm].image
            # a store that nobody needs may still lie under a device: a merge ended half way
            if any(one.image == image for one in inventory.garbage()):
                self.stores.mend(image)
        return self.records.inventory().merge(vm)

    def _begin(self, merge: Merge) -> Store | None:
        """Let the kernel empty a store into the one below; None if that must not be, or not now.

        :raises NoSpace: if the one below has no room for it
        """
        if not merge.copy:
            return self._empty(merge, merge.lower)
        image, lower = merge.lower.image, merge.lower
        with self.suspension.locked_image(image):
            if self._is_handing_over(self.records.inventory().on(merge.upper)):
                return None
            size = max(lower.size, merge.upper.size)
            copy = self.stores.add(image, size, lower.lower)
            self.stores.keep(copy)
        try:
            self._copy(lower, copy)
            return self._empty(merge, copy)
        finally:
            self.stores.let_go(copy)

    def _empty(self, merge: Merge, into: Store) -> Store | None:
        with self.suspension.locked_image(into.image):
            inventory = self.records.inventory()
            users = inventory.on(merge.upper)
            pair = (inventory.stores.get(one.name) for one in (merge.upper, merge.lower))
            if not users or tuple(pair) != (merge.upper, merge.lower):
                return None  # it is another merge by now
            if self._is_handing_over(users):
                return None
            if merge.upper.merging:  # perhaps it was ended too, but for some records or devices
                self.stores.mend(into.image)
                return merge.upper
            if into == merge.lower and not inventory.may_take(into, merge.upper):
                return None
            upper = replace(merge.upper, lower=into.name, merging=True)
            # once begun there is no way back, so no room is found out now
            more = self._taken(merge.upper) + _SLACK
            self.stores.space.afford(more)
            self.stores.lengthen(into, merge.upper.size)
            volume(into).reserve(self._taken(merge.lower) + more)
            self.records.put(upper)
            for one in users:
                self.stores.bring_up(one.vm)
            return upper

    def _copy(self, lower: Store, copy: Store) -> None:
        taken = self._taken(lower)
        self.stores.space.afford(taken)
        volume(copy).make(full_size(copy.size))
        volume(copy).reserve(taken)
        volume(copy).copy(lower.path, taken)

    def _await(self, store: Store) -> bool:
        """Wait until a store is empty and end the merge; tell whether that came about."""
        while not self.stores.layer(store).usage().is_empty:
            if self.rounds.sleep(_LOOK) or not self.records.inventory().on(store):
                return False
        return self._end(store)

    def _end(self, store: Store) -> bool:
        """Lead all past an emptied store, and give it back; tell whether that could be."""
        with self.suspension.locked_image(store.image):
            inventory = self.records.inventory()
            users = inventory.on(store)
            if store.name not in inventory.stores or self._is_handing_over(users):
                return False
            with self.suspension.suspended(store):
                for changed in inventory.without(store):
                    self.records.put(changed)
                for one in users:
                    self.stores.bring_up(one.vm)
            self.stores.tidy(store.image)
        LOG.info("image %s: store %s became one with %s", store.image, store.name, store.lower)
        return True

    def _is_handing_over(self, users: Iterable[Instance]) -> bool:
        """Tell whether a VM is being handed over: a new table would let it go on."""
        return any(self.suspension.is_handing_over(one.vm) for one in users)

    def _taken(self, store: Store) -> int:
        return self.stores.layer(store).usage().taken
