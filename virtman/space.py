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
    :param quota: bytes that the stores of a VM may take if nothing else is said; 0 for no limit
    :ivar promising: held from the check on until what was promised is written down, so that
        nothing is promised twice
    """

    def __init__(self, records: Records, overcommit: float, quota: int = 0) -> None:
        self.records = records
        self.overcommit = overcommit
        self.quota = quota
        self.promising = threading.RLock()

    def free(self) -> int:
        """Return the bytes that nobody has."""
        stat = os.statvfs(self.records.stores)
        return stat.f_bavail * stat.f_frsize

    def check(self, size: int, quota: int = 0) -> None:
        """Raise NoSpace if one more store for an image of ``size`` bytes does not fit."""
        need = _limit(size, quota)
        promised = _promised(self.records.inventory())
        free = int(self.free() * self.overcommit)
        if free - promised < need:
            raise NoSpace(
                f"the exception store needs {need} bytes, but {self.records.stores} has {free} "
                f"free of which {promised} are promised to other VMs; free some space, give the "
                "VM a smaller quota, or raise [store] overcommit"
            )


def _promised(inventory: Inventory) -> int:
    """Bytes that stores may still take."""
    frozen = inventory.frozen()
    owners = {one.store: one for one in inventory.instances.values()}
    return sum(
        max(0, _limit(one.size, _quota(owners.get(name))) - _allocated(inventory, one, owners))
        for name, one in inventory.stores.items()
        if name not in frozen
    )


def _allocated(inventory: Inventory, store: Store, owners: dict[str, Instance]) -> int:
    """Bytes that count against what a store may take: with a quota, those below it too."""
    counted = inventory.chain(store.name) if _quota(owners.get(store.name)) else (store,)
    return sum(Volume(one.path).allocated() for one in counted)


def _quota(owner: Instance | None) -> int:
    return owner.quota if owner else 0


def _limit(size: int, quota: int) -> int:
    return min(full_size(size), quota or full_size(size))
