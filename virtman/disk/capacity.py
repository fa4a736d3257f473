"""How much room there is for what VMs write, and how much of it is promised."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from virtman.disk.records import Records
from virtman.disk.volumes import Backing, StoreVolume, full_size
from virtman.disk.volumes.device import Given
from virtman.disk.volumes.file import Folder, StoreFile
from virtman.disk.volumes.lvm import Logical, is_logical
from virtman.errors import NoSpace
from virtman.model.chain import Instance, Inventory, Store


@dataclass(frozen=True)
class Limits:
    """What stores may take; bytes.

    :ivar overcommit: how often the space may be promised
    :ivar quota: what the stores of a VM may take if nothing else is said; 0 for no limit
    :ivar reserve: free space that is left to others
    :ivar ahead: space that a store gets ahead of its use once there is little
    :ivar warning: share of a quota from which on a VM is warned of
    """

    overcommit: float = 1.0
    quota: int = 0
    reserve: int = 0
    ahead: int = 0
    warning: float = 1.0


@dataclass(frozen=True)
class Room:
    """What there is for new stores; bytes.

    :ivar free: times the overcommit
    :ivar promised: what stores that are there may still take of it
    """

    free: int
    promised: int


class Space:
    """Where the exception stores of this node are.

    :param backing: what new ones are made of
    :ivar promising: held from the check on until what was promised is written down, so that
        nothing is promised twice
    :ivar claims: returns what is promised to others than the stores: folders, and bytes
    """

    def __init__(self, records: Records, backing: Backing, limits: Limits) -> None:
        self.records = records
        self.backing = backing
        self.limits = limits
        self.promising = threading.RLock()
        self.claims: Callable[[], Iterable[tuple[Path, int]]] = lambda: ()

    def left(self) -> float:
        """Return the bytes that there are for what VMs write."""
        return self.backing.left()

    def room(self, inventory: Inventory | None = None, but: str = "") -> Room:
        """Return what there is for new stores.

        :param but: name of a store which will take no more
        """
        promised = _promised(inventory or self.records.inventory(), but)
        promised += sum(size for folder, size in self.claims() if self.backing.shares(folder))
        return Room(int(self.backing.free() * self.limits.overcommit), promised)

    def spare(self, folder: Path) -> int:
        """Return the bytes of a folder that are free, not promised, and not reserved."""
        here = Folder(folder)
        if self.backing.shares(folder):
            room = self.room()
            return min(here.free() - self.reserved(folder), room.free - room.promised)
        return here.free() - sum(size for other, size in self.claims() if here.shares(other))

    def reserved(self, folder: Path) -> int:
        """Return the bytes of a folder's file system that VMs may need at any time.

        With twice the reserve left, no VM waits, and no store gets disk space ahead of its use.
        """
        return 2 * self.limits.reserve if self.backing.shares(folder) else 0

    def check(self, size: int, quota: int = 0, instead: str = "") -> None:
        """Raise NoSpace if one more store for an image of ``size`` bytes does not fit.

        :param quota: of its VM
        :param instead: name of the VM's present store, which will take no more
        """
        inventory = self.records.inventory()
        need = _limit(size, quota)
        if quota and instead:
            need = max(0, need - _allocated(inventory, instead))
        room = self.room(inventory, instead)
        if room.free - room.promised < need:
            raise _lacking(need, room)

    def check_more(self, instance: Instance, size: int) -> None:
        """Raise NoSpace if what a VM may write does not fit once its disk has ``size`` bytes."""
        more = _limit(size, instance.quota) - _limit(instance.size, instance.quota)
        room = self.room()
        if room.free - room.promised < more:
            raise _lacking(more, room)

    def afford(self, size: int) -> None:
        """Raise NoSpace if taking so many bytes would touch the reserve."""
        left = self.left()
        if left - size < self.limits.reserve:
            raise NoSpace(
                f"{size} bytes are needed for exception stores, but there are {left} free and "
                f"[store] reserve is {self.limits.reserve}: free some space"
            )


def _lacking(need: int, room: Room) -> NoSpace:
    return NoSpace(
        f"the exception store needs {need} bytes, but there are {room.free} "
        f"free, of which {room.promised} are promised to other VMs; free some space, give "
        "the VM a smaller quota, or raise [store] overcommit"
    )


def volume(store: Store) -> StoreVolume:
    """Return the volume that a store is in."""
    if not store.path.startswith("/dev/"):
        return StoreFile(store.path)
    if is_logical(store.path):
        return Logical(store.path)
    return Given(store.path, store.identity, store.length)


def _promised(inventory: Inventory, but: str) -> int:
    """Bytes that stores may still take, all but one of them."""
    frozen = inventory.frozen()
    quotas = {one.store: one.quota for one in inventory.instances.values()}
    promised = 0
    for name, store in inventory.stores.items():
        if name == but or name in frozen:
            continue
        if quota := quotas.get(name, 0):
            taken = _allocated(inventory, name)
        else:
            taken = volume(store).allocated()
        promised += max(0, _limit(store.size, quota) - taken)
    return promised


def _allocated(inventory: Inventory, top: str) -> int:
    """Bytes of a whole chain."""
    return sum(volume(one).allocated() for one in inventory.chain(top))


def _limit(size: int, quota: int) -> int:
    return min(full_size(size), quota or full_size(size))
