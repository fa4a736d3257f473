"""Which VMs have devices here, and what belongs to each: the little that must be written down.

One JSON file a VM. The kernel is the truth about devices; a record says which exception
store is whose, so that it outlives the agent and the node.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from virtman.errors import InstanceExists, InstanceUnknown, NoSpace

_SLACK = 1024 * 1024


@dataclass(frozen=True)
class Instance:
    """A VM's device: sizes in bytes, ``store`` is the path of its exception store."""

    vm: str
    image: str
    size: int
    store: str
    store_size: int


def store_size(size: int) -> int:
    """Bytes within which a store cannot fill, whatever the VM writes.

    dm-snapshot keeps 16 bytes for each chunk of 8 KiB: 0.2 %.
    """
    return size + size // 100 + _SLACK


class Records:
    """The records of this node.

    :param folder: survives a reboot
    :param overcommit: how often the space may be promised
    """

    def __init__(self, folder: Path, overcommit: float) -> None:
        self.folder = folder / "instances"
        self.stores = folder / "stores"
        self.overcommit = overcommit
        # Space that is promised must not be promised twice by callers side by side.
        self._promising = threading.Lock()

    def prepare(self) -> None:
        """Make the folders."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.stores.mkdir(parents=True, exist_ok=True)

    def add(self, vm: str, image: str, size: int) -> Instance:
        """Write a VM down and make its empty exception store.

        :raises InstanceExists: if there is a VM of this name
        :raises NoSpace: if the store might not fit one day
        """
        instance = Instance(vm, image, size, str(self.stores / f"{vm}.cow"), store_size(size))
        with self._promising:
            self.check_name(vm)
            self.check_space(size)
            # The store comes first: a record without one could never be served. One that an
            # agent which died left behind is nobody's.
            try:
                with open(instance.store, "wb") as store:
                    store.truncate(instance.store_size)
                self._write(instance)
            except OSError:
                self.remove(instance)
                raise
        return instance

    def check_name(self, vm: str) -> None:
        """Raise InstanceExists if there is a VM of this name."""
        if self._file(vm).exists():
            raise InstanceExists(
                f"VM {vm} has a device on this node already; destroy it first or choose "
                "another name"
            )

    def check_space(self, size: int) -> None:
        """Raise NoSpace if a VM of an image of ``size`` bytes does not fit."""
        stat = os.statvfs(self.stores)
        free = stat.f_bavail * stat.f_frsize * self.overcommit
        promised = sum(max(0, one.store_size - _allocated(one.store)) for one in self.all())
        need = store_size(size)
        if free - promised < need:
            raise NoSpace(
                f"the exception store needs {need} bytes, but {self.stores} has {int(free)} "
                f"free of which {promised} are promised to other VMs; free some space or raise "
                "[store] overcommit"
            )

    def get(self, vm: str) -> Instance:
        """Return a VM's record.

        :raises InstanceUnknown: if there is none
        """
        try:
            return Instance(**json.loads(self._file(vm).read_text()))
        except FileNotFoundError as err:
            raise InstanceUnknown(f"there is no VM {vm} on this node") from err

    def all(self) -> list[Instance]:
        """Return all records, by name."""
        found = []
        for file in sorted(self.folder.glob("*.json")):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                found.append(Instance(**json.loads(file.read_text())))
        return found

    def remove(self, instance: Instance) -> None:
        """Forget a VM and everything that it wrote."""
        Path(instance.store).unlink(missing_ok=True)
        self._file(instance.vm).unlink(missing_ok=True)

    def _file(self, vm: str) -> Path:
        return self.folder / f"{vm}.json"

    def _write(self, instance: Instance) -> None:
        part = self.folder / f"{instance.vm}.part"
        with open(part, "w", encoding="utf-8") as file:
            json.dump(asdict(instance), file)
            file.flush()
            os.fsync(file.fileno())
        part.rename(self._file(instance.vm))


def _allocated(path: str) -> int:
    try:
        return os.stat(path).st_blocks * 512
    except FileNotFoundError:
        return 0
