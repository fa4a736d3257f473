"""What is written down about a bed, so that any process can find it and end it.

    /run/virtman-lab/<bed>/state.json    nodes, and every process with its start time
    /var/tmp/virtman-lab/<bed>/<node>/   disks, console and share of a node

The file is the truth: nothing about a process is kept in memory, so that a bed
may be used from several processes at once.
"""

import dataclasses
import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import BedExists, LabError, NoSuchBed, NoSuchNode
from lab.processes import Process

RUN = Path("/run/virtman-lab")
# Not in /run, which is memory on most hosts: the disks of a bed may grow to gigabytes.
DISKS = Path("/var/tmp/virtman-lab")  # noqa: S108


@dataclass(frozen=True)
class Disk:
    """An image that a node sees as a disk: read-only, or with its writes kept apart."""

    image: Path
    readonly: bool = False


@dataclass(frozen=True)
class NodeRecord:
    """How a node was started; `process` is None between a power cut and a restart."""

    name: str
    index: int
    memory: str
    cache: str
    disks: tuple[Disk, ...]
    process: Process | None = None


@dataclass(frozen=True)
class BedRecord:
    """A bed: its settings, nodes and other processes.

    :ivar poisoned: whether its kernels overwrite memory that they give back: they do not survive it
        then if something uses that still
    :ivar kernel: see ``lab.kernel.Kernel.command``
    """

    name: str
    link_rate: str | None
    image: Path
    source: Path
    poisoned: bool = False
    kernel: tuple[str, ...] = ("linux.uml",)
    nodes: tuple[NodeRecord, ...] = ()
    processes: tuple[Process, ...] = ()

    def node(self, name: str) -> NodeRecord:
        """Return a node by its name."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise NoSuchNode(f"bed {self.name} has no node {name}")

    def with_node(self, node: NodeRecord) -> "BedRecord":
        """Return the bed with a node added, or replaced by its new record."""
        others = [other for other in self.nodes if other.name != node.name]
        nodes = tuple(sorted([*others, node], key=lambda node: node.index))
        return dataclasses.replace(self, nodes=nodes)

    def with_process(self, process: Process) -> "BedRecord":
        """Return the bed with one more process outside its nodes."""
        return dataclasses.replace(self, processes=(*self.processes, process))

    def everything(self) -> list[Process]:
        """Return all processes, nodes first."""
        nodes = [node.process for node in self.nodes if node.process is not None]
        return [*nodes, *self.processes]


def to_json(record: BedRecord) -> str:
    """Write a record as text."""
    return json.dumps(dataclasses.asdict(record), default=str, indent=1)


def from_json(text: str) -> BedRecord:
    """Read a record that to_json wrote."""
    data = json.loads(text)
    return BedRecord(
        **{
            **data,
            "image": Path(data["image"]),
            "source": Path(data["source"]),
            "kernel": tuple(data["kernel"]),
            "nodes": tuple(_node(node) for node in data["nodes"]),
            "processes": tuple(Process(**process) for process in data["processes"]),
        }
    )


def _node(data: dict[str, Any]) -> NodeRecord:
    disks = tuple(Disk(Path(disk["image"]), disk["readonly"]) for disk in data["disks"])
    process = Process(**data["process"]) if data["process"] else None
    return NodeRecord(**{**data, "disks": disks, "process": process})


class State:
    """A bed's folders and its record in them."""

    def __init__(self, name: str):
        self.name = name
        self.folder = RUN / name
        self.disks = DISKS / name
        self._file = self.folder / "state.json"

    def create(self, record: BedRecord) -> None:
        """Make the folders; the name must be free."""
        RUN.mkdir(parents=True, exist_ok=True)
        try:
            self.folder.mkdir()
        except FileExistsError:
            raise BedExists(self.name) from None
        self._write(record)
        self.disks.mkdir(parents=True, exist_ok=True)

    def read(self) -> BedRecord:
        """Return the record as it is now."""
        try:
            return from_json(self._file.read_text())
        except FileNotFoundError:
            raise NoSuchBed(f"there is no bed {self.name}") from None

    def change(self, change: Callable[[BedRecord], BedRecord]) -> BedRecord:
        """Replace the record by what `change` makes of it, one caller at a time."""
        with self._lock():
            record = change(self.read())
            self._write(record)
        return record

    def remove(self) -> None:
        """Remove all that is kept about the bed."""
        for folder in (self.disks, self.folder):
            shutil.rmtree(folder, ignore_errors=True)

    def _write(self, record: BedRecord) -> None:
        temp = self._file.with_suffix(".new")
        temp.write_text(to_json(record))
        temp.rename(self._file)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the bed's file lock: between processes, and between threads too."""
        if not self.folder.exists():
            raise NoSuchBed(f"there is no bed {self.name}")
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def recorded_beds() -> list[str]:
    """Return the names of the beds that are up, or were never brought down."""
    return sorted(path.name for path in RUN.glob("*") if path.is_dir())


def free_index(record: BedRecord, limit: int) -> int:
    """Return the lowest node number that is not taken, from 1 to `limit`."""
    taken = {node.index for node in record.nodes}
    for index in range(1, limit + 1):
        if index not in taken:
            return index
    raise LabError(f"bed {record.name} has {limit} nodes, and no room for more")
