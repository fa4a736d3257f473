"""Which VMs and snapshots there are here, and what belongs to each: the little to be written down.

One JSON file a VM, a snapshot and an exception store. The kernel is the truth about devices;
the records say whose which store is, so that it outlives the agent and the node.

Each file changes at once or not at all. What takes several changes is ordered so that an agent
may die between any two: a store that nobody refers to is garbage, whatever it holds.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from virtman.chains import Instance, Inventory, Snapshot, Store
from virtman.errors import InstanceExists, InstanceUnknown, SnapshotExists, SnapshotUnknown

Record = Store | Instance | Snapshot


class Records:
    """The records of this node.

    :param folder: survives a reboot
    """

    def __init__(self, folder: Path) -> None:
        self.stores = folder / "stores"
        self.instances = folder / "instances"
        self.snapshots = folder / "snapshots"
        # two stores made side by side must not get one name
        self._naming = threading.Lock()

    def prepare(self) -> None:
        """Make the folders, and bring records of earlier versions into today's form."""
        for folder in (self.stores, self.instances, self.snapshots):
            folder.mkdir(parents=True, exist_ok=True)
        for file in self.instances.glob("*.json"):
            old = json.loads(file.read_text())
            if "store_size" in old:
                vm, image, size = old["vm"], old["image"], old["size"]
                self.put(Store(vm, image, size, old["store"]))
                self.put(Instance(vm, image, size, vm))

    def inventory(self) -> Inventory:
        """Return all that is written down."""
        return Inventory(
            (Store(**one) for one in _all(self.stores)),
            (Instance(**one) for one in _all(self.instances)),
            (Snapshot(**one) for one in _all(self.snapshots)),
        )

    def all(self) -> list[Instance]:
        """Return all VMs, by name."""
        return [Instance(**one) for one in _all(self.instances)]

    def get(self, vm: str) -> Instance:
        """Return a VM's record.

        :raises InstanceUnknown: if there is none
        """
        try:
            return Instance(**json.loads((self.instances / f"{vm}.json").read_text()))
        except FileNotFoundError as err:
            raise InstanceUnknown(f"there is no VM {vm} on this node") from err

    def snapshot(self, name: str) -> Snapshot:
        """Return a snapshot's record.

        :raises SnapshotUnknown: if there is none
        """
        try:
            return Snapshot(**json.loads((self.snapshots / f"{name}.json").read_text()))
        except FileNotFoundError as err:
            raise SnapshotUnknown(f"there is no snapshot {name} on this node") from err

    def check_vm(self, vm: str) -> None:
        """Raise InstanceExists if there is a VM of this name."""
        if (self.instances / f"{vm}.json").exists():
            raise InstanceExists(
                f"VM {vm} has a device on this node already; destroy it first or choose "
                "another name"
            )

    def check_snapshot(self, name: str) -> None:
        """Raise SnapshotExists if there is a snapshot of this name."""
        if (self.snapshots / f"{name}.json").exists():
            raise SnapshotExists(
                f"there is a snapshot {name} on this node already; delete it first or choose "
                "another name"
            )

    def add_store(self, image: str, size: int, lower: str) -> Store:
        """Write a store down, under a new name; there is no file of it yet."""
        with self._naming:
            taken = {file.stem for file in self.stores.glob("*.json")}
            name = next(f"s{n}" for n in itertools.count(1) if f"s{n}" not in taken)
            store = Store(name, image, size, str(self.stores / f"{name}.cow"), lower)
            self.put(store)
        return store

    def put(self, record: Record) -> None:
        """Write a record down, in place of that of the same name."""
        file = self._file(record)
        # one of several threads may write the same record
        part = file.with_suffix(f".{threading.get_ident()}.part")
        with open(part, "w", encoding="utf-8") as text:
            json.dump(asdict(record), text)
            text.flush()
            os.fsync(text.fileno())
        part.rename(file)
        _keep(file.parent)

    def forget(self, record: Record) -> None:
        """Remove a record; that there is none is fine."""
        self._file(record).unlink(missing_ok=True)

    def _file(self, record: Record) -> Path:
        match record:
            case Store():
                return self.stores / f"{record.name}.json"
            case Instance():
                return self.instances / f"{record.vm}.json"
            case Snapshot():
                return self.snapshots / f"{record.name}.json"


def _keep(folder: Path) -> None:
    """Have a folder's entries on disk: what a VM writes next may rely on them."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _all(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("*.json")):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            yield json.loads(file.read_text())
