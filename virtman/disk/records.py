"""Which VMs and snapshots there are here, and what belongs to each: the little to be written down.

One JSON file a VM, a snapshot, an exception store and a VM on its way. The kernel is the truth
about devices; the records say whose which store is, so that it outlives the agent and the node.

Each file changes at once or not at all. What takes several changes is ordered so that an agent
may die between any two: a store that nobody refers to is garbage, whatever it holds.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from virtman import atomic_file
from virtman.errors import (
    InstanceExists,
    MoveInProgress,
    SnapshotExists,
    SnapshotUnknown,
)
from virtman.model.chain import Instance, Inventory, Snapshot, Store
from virtman.model.handover import Arrival, Move

Record = Store | Instance | Snapshot | Move | Arrival


class Records:
    """The records of this node.

    :param folder: survives a reboot
    """

    def __init__(self, folder: Path) -> None:
        self.stores = folder / "stores"
        self.instances = folder / "instances"
        self.snapshots = folder / "snapshots"
        self.moves = folder / "moves"
        self.arrivals = folder / "arrivals"
        # No name of a store comes twice: who waits while stores change still means the old one.
        self._numbers = itertools.count(1)
        # What the files say, and what two stores made side by side must not share: a name.
        self._lock = threading.RLock()
        self._written = Inventory((), (), ())
        self._moves: dict[str, Move] = {}
        self._arrivals: dict[str, Arrival] = {}

    def prepare(self) -> None:
        """Make the folders and read the records, those of earlier versions too."""
        for folder in (self.stores, self.instances, self.snapshots, self.moves, self.arrivals):
            atomic_file.prepare(folder)
        vms = []
        for one in _all(self.instances):
            if "store_size" in one:
                self.put(Store(one["vm"], one["image"], one["size"], one["store"]))
                self.put(Instance(one["vm"], one["image"], one["size"], one["vm"]))
            else:
                vms.append(Instance(**one))
        stores = (Store(**one) for one in _all(self.stores))
        snapshots = (Snapshot(**one) for one in _all(self.snapshots))
        old = self._written.instances.values()
        self._written = Inventory(stores, (*vms, *old), snapshots)
        self._moves = {one["vm"]: Move(**one) for one in _all(self.moves)}
        self._arrivals = {one["vm"]: Arrival(**one) for one in _all(self.arrivals)}

    def inventory(self) -> Inventory:
        """Return all that is written down, as of now."""
        with self._lock:
            written = self._written
            return Inventory(
                written.stores.values(), written.instances.values(), written.snapshots.values()
            )

    def all(self) -> list[Instance]:
        """Return all VMs, by name."""
        return sorted(self.inventory().instances.values(), key=lambda one: one.vm)

    def get(self, vm: str) -> Instance:
        """Return a VM's record.

        :raises InstanceUnknown: if there is none
        """
        return self._written.instance(vm)

    def snapshot(self, name: str) -> Snapshot:
        """Return a snapshot's record.

        :raises SnapshotUnknown: if there is none
        """
        found = self._written.snapshots.get(name)
        if found is None:
            raise SnapshotUnknown(f"there is no snapshot {name} on this node")
        return found

    def move(self, vm: str) -> Move | None:
        """Return how a VM leaves this node, if it does."""
        return self._moves.get(vm)

    def moving(self) -> list[Move]:
        """Return all VMs on their way from here."""
        with self._lock:
            return list(self._moves.values())

    def arrival(self, vm: str) -> Arrival | None:
        """Return how a VM comes to this node, if it does."""
        return self._arrivals.get(vm)

    def arriving(self) -> list[Arrival]:
        """Return all VMs on their way to here."""
        with self._lock:
            return list(self._arrivals.values())

    def check_stays(self, vm: str) -> None:
        """Raise MoveInProgress if a VM is on its way."""
        self.check_left(vm)
        arrival = self.arrival(vm)
        if arrival is not None:
            raise MoveInProgress(f"VM {vm} is still on its way here from host {arrival.host}")

    def check_left(self, vm: str) -> None:
        """Raise MoveInProgress if a VM is on its way from here, or has been and is not yet gone."""
        move = self.move(vm)
        if move is not None:
            what = "is being copied" if move.keeps else "is moving"
            raise MoveInProgress(
                f"VM {vm} {what} to host {move.host}: wait until that has ended, or cancel it"
            )

    def check_vm(self, vm: str) -> None:
        """Raise InstanceExists if there is a VM of this name."""
        if vm in self._written.instances:
            raise InstanceExists(
                f"VM {vm} has a device on this node already; destroy it first or choose "
                "another name"
            )

    def check_snapshot(self, name: str) -> None:
        """Raise SnapshotExists if there is a snapshot of this name."""
        if name in self._written.snapshots:
            raise SnapshotExists(
                f"there is a snapshot {name} on this node already; delete it first or choose "
                "another name"
            )

    def add_store(
        self,
        image: str,
        size: int,
        lower: str,
        path: Callable[[str], str],
        identity: str = "",
        length: int = 0,
    ) -> Store:
        """Write a store down, under a new name; there is no volume of it yet.

        :param path: where the volume of a store of some name is
        :param identity: of the device there, if somebody else connects it; as is ``length``
        """
        with self._lock:
            name = next(f"s{n}" for n in self._numbers if f"s{n}" not in self._written.stores)
            store = Store(name, image, size, path(name), lower, identity=identity, length=length)
            self.put(store)
        return store

    def put(self, record: Record) -> None:
        """Write a record down, in place of that of the same name."""
        file, name = self._file(record), _name(record)
        with self._lock:
            # what a VM writes next, or another node, relies on it
            atomic_file.write(file, json.dumps(asdict(record)).encode())
            self._table(record)[name] = record

    def forget(self, record: Record) -> None:
        """Remove a record, for good once this returns; that there is none is fine."""
        file = self._file(record)
        with self._lock:
            atomic_file.remove(file)
            self._table(record).pop(_name(record), None)

    def _table(self, record: Record) -> dict[str, Any]:
        match record:
            case Store():
                return self._written.stores
            case Instance():
                return self._written.instances
            case Snapshot():
                return self._written.snapshots
            case Move():
                return self._moves
            case Arrival():
                return self._arrivals

    def _file(self, record: Record) -> Path:
        match record:
            case Store():
                folder = self.stores
            case Instance():
                folder = self.instances
            case Snapshot():
                folder = self.snapshots
            case Move():
                folder = self.moves
            case Arrival():
                folder = self.arrivals
        return folder / f"{_name(record)}.json"


def _name(record: Record) -> str:
    return record.name if isinstance(record, Store | Snapshot) else record.vm


def _all(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("*.json")):
        yield json.loads(file.read_text())
