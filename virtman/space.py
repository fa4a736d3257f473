"""How much room there is for what VMs write, and how much of it is promised."""

from __future__ import annotations

import os
import threading

from virtman.chains import Instance, Inventory, Store
from virtman.errors import NoSpace
from virtman.record import Records
from virtman.volume import Volume, full_size


class Space:
    """The file system of the exception stores.

    :param overcommit: how often the space may be promised
    :ivar promising: held from the check on until what was promised is written down, so that
        nothing is promised twice
    """

    def __init__(self, records: Records, overcommit: float) -> None:
        self.records = records
        self.overcommit = overcommit
        self.promising = threading.RLock()

    def free(self) -> int:
        """Return the bytes that nobody has."""
        stat = os.statvfs(self.records.stores)
        return stat.f_bavail * stat.f_frsize

    def check(self, size: int, quota: int = 0) -> None:
        """Raise NoSpace if one more store for an image of ``size`` bytes does not fit."""
        inventory = self.records.inventory()
        need = _limit(size, quota)
        promised = sum(_promise(inventory, one) for one in inventory.stores.values())
        free = int(self.free() * self.overcommit)
        if free - promised < need:
            raise NoSpace(
                f"the exception store needs {need} bytes, but {self.records.stores} has {free} "
                f"free of which {promised} are promised to other VMs; free some space, give the "
                "VM a smaller quota, or raise [store] overcommit"
            )


def allocated(inventory: Inventory, top: str) -> int:
    """Return the bytes that the stores of a VM or snapshot take, reserved ones too."""
    return sum(Volume(one.path).allocated() for one in inventory.chain(top))


def _promise(inventory: Inventory, store: Store) -> int:
    """Bytes that a store may still take."""
    if inventory.is_frozen(store):
        return 0
    own = Volume(store.path).allocated()
    owner = next((one for one in inventory.instances.values() if one.store == store.name), None)
    if owner is None or not owner.quota:
        return max(0, full_size(store.size) - own)
    return max(0, _quota_left(inventory, owner))


def _quota_left(inventory: Inventory, vm: Instance) -> int:
    return _limit(vm.size, vm.quota) - allocated(inventory, vm.store)


def _limit(size: int, quota: int) -> int:
    return min(full_size(size), quota or full_size(size))
