"""Which layers this node has made, or makes: on record, and where their bytes are.

For each layer, in the agent's own folder::

    <name>.json      what is committed, and how far that is
    <name>.layer     the bytes, as ``layer_format`` says: there once all of them are on the disk;
                     those that are written already can be read before
    <name>.hashes/   its hash tree
    <name>.memory    of a VM that is being suspended, until all of it is in the layer

The record comes first and goes first: a file that no record names is garbage.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from virtman import atomic_file
from virtman.disk.capacity import Space
from virtman.errors import CommitCancelled, LayerComing, LayerExists, LayerUnknown, NoSpace
from virtman.kept_tree import KeptTree
from virtman.model import hashtree, layer_format, suspended
from virtman.model.layer_format import Description
from virtman.model.suspended import Suspended

_HASHES = ".hashes"
_BYTES = ".layer"
_MEMORY = ".memory"


class Phase(StrEnum):
    """How far the commit of a VM is, as it is written down."""

    MAKING = "making"
    KEPT = "kept"
    UNDOING = "undoing"
    LEAVING = "leaving"  # others have it


@dataclass(frozen=True)
class Commit:
    """What a VM wrote, on its way to be a layer, or as one.

    :ivar name: of the layer
    :ivar vm: whose data they were; empty for a layer that came in a file
    :ivar image: its parent; while the data are not copied yet, the VM's image
    :ivar origin: tells that image from others of its name
    :ivar disk_size: bytes of the VM's disk
    :ivar secret: that hosts must prove to know
    :ivar created_at: seconds since 1970
    :ivar final: whether the VM goes once the layer is kept
    :ivar checkpoint: its number, if it is a checkpoint; 0 if it is none
    :ivar has_copy: whether there may be the VM that has the data of the moment; any other VM of its
        name is somebody's
    :ivar since: an earlier checkpoint, if only what has changed since then is read
    :ivar qmp: socket of the VM's QEMU, which is being saved: it has to go on; empty for others
    :ivar suspended: what makes it a suspended image, once its memory is in the file
    """

    name: str
    vm: str
    image: str
    origin: str
    disk_size: int
    secret: str
    created_at: float
    final: bool = False
    phase: Phase = Phase.MAKING
    checkpoint: int = 0
    since: str = ""
    has_copy: bool = True
    qmp: str = ""
    suspended: Suspended | None = None

    @property
    def is_kept(self) -> bool:
        """Whether Volt knows it, and it stays."""
        return self.phase is Phase.KEPT

    @property
    def lasts(self) -> bool:
        """Whether it is a layer, or is to be one."""
        return self.phase in (Phase.MAKING, Phase.KEPT)

    @property
    def held(self) -> str:
        """Name of the hidden snapshot of which the next checkpoint has what changed since."""
        return f"{self.name}_held"

    @property
    def copy(self) -> str:
        """Name of the VM that has the data of the moment until the layer is kept."""
        return f"{self.name}.now"


@dataclass
class _Growing:
    """A file that is being written from its beginning to its end; both in bytes."""

    length: int
    done: int = 0


class Layers:
    """Those of this node.

    :param folder: survives a reboot
    """

    def __init__(self, folder: Path, space: Space) -> None:
        self.folder = folder
        self.space = space
        self._lock = threading.Lock()
        self._commits: dict[str, Commit] = {}
        self._growing: dict[str, _Growing] = {}
        self._grown = threading.Condition()  # told of each change of these

    def prepare(self) -> None:
        """Make the folder, read the records, and remove what these do not name."""
        atomic_file.prepare(self.folder)
        for file in self.folder.glob("*.json"):
            found = json.loads(file.read_text())
            self._commits[found["name"]] = _commit(found)
        named = {path for name in self._commits for path in self._paths(name)}
        for path in self.folder.iterdir():
            if path.suffix in (_BYTES, _HASHES, _MEMORY) and path not in named:
                _remove(path)

    def all(self) -> list[Commit]:
        """Return all commits, by name of the layer."""
        with self._lock:
            return sorted(self._commits.values(), key=lambda one: one.name)

    def get(self, name: str) -> Commit:
        """Return what is on record of a layer.

        :raises LayerUnknown: if nothing is
        """
        found = self.find(name)
        if found is None:
            raise LayerUnknown(f"this node has made no layer {name}")
        return found

    def find(self, name: str) -> Commit | None:
        """Return what is on record of a layer, if anything is."""
        return self._commits.get(name)

    def add(self, commit: Commit) -> None:
        """Write a new commit down.

        :raises LayerExists: if there is one of this name
        """
        with self._lock:
            if commit.name in self._commits:
                raise LayerExists(
                    f"this node has a layer {commit.name}, or is about to have it no more: choose "
                    "another name, or try again"
                )
            self._put(commit)

    def change(self, name: str, **changed: Any) -> Commit:
        """Write some of a commit's fields down, and return all of it.

        :raises LayerUnknown: if there is none of this name
        """
        with self._lock:
            commit = replace(self.get(name), **changed)
            self._put(commit)
        return commit

    def advance(self, commit: Commit) -> None:
        """Write down how far a commit is.

        :raises CommitCancelled: if it is not wanted any more
        """
        with self._lock:
            self.wanted(commit.name)
            self._put(commit)

    def wanted(self, name: str) -> Commit:
        """Return what is on record of a layer that stays, or is to.

        :raises CommitCancelled: if it is not wanted any more
        """
        commit = self.get(name)
        if not commit.lasts:
            raise CommitCancelled(f"VM {commit.vm} shall not become layer {name}")
        return commit

    def forget(self, commit: Commit) -> None:
        """Forget a commit, and remove its files; nobody is served from them any more."""
        record, *files = self._paths(commit.name)
        with self._lock:
            atomic_file.remove(record)
            self._commits.pop(commit.name, None)
        self._tell()
        for path in files:
            _remove(path)

    def checkpoints(self, vm: str | None = None) -> list[Commit]:
        """Return the checkpoints, the earliest of each VM first; also those that are being made.

        :param vm: whose these are; None for all, as they are at one moment
        """
        found = [one for one in self.all() if one.checkpoint and vm in (None, one.vm)]
        return sorted(found, key=lambda one: one.checkpoint)

    def file(self, name: str) -> Path:
        """Return the file of a layer's bytes."""
        return self.folder / f"{name}{_BYTES}"

    def description(self, name: str) -> Description:
        """Return what a layer says of itself, which may have come in a file."""
        with open(self.file(name), "rb") as file:
            said = layer_format.describe(lambda at, size: os.pread(file.fileno(), size, at))
        assert said is not None  # it was written here, or checked when it was unpacked
        return said

    def memory(self, name: str) -> Path:
        """Return the file of a VM's memory, and its device state, that are to be in a layer."""
        return self.folder / f"{name}{_MEMORY}"

    def check_room(self, name: str, length: int) -> None:
        """See that so many bytes more fit beside what is promised to others.

        :raises NoSpace: if they do not
        """
        lacking = length - self.space.spare(self.folder)
        if lacking > 0:
            raise NoSpace(
                f"layer {name} needs {lacking} bytes more in {self.folder} than are "
                "free and promised to nobody: free some space"
            )

    def tree(self, name: str) -> KeptTree:
        """Return the hash tree of a layer."""
        return KeptTree(self.folder / f"{name}{_HASHES}")

    @contextmanager
    def making(self, name: str, length: int) -> Iterator[int]:
        """Give the descriptor of a file of zeros that becomes a layer's, if all goes well.

        :raises NoSpace: if it does not fit, with its hash tree, beside what is promised to others
        """
        with self._showing(name, length), atomic_file.making(self.file(name)) as part:
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with self.space.promising:
                    self.check_room(name, length + hashtree.leaves(length))
                    os.posix_fallocate(descriptor, 0, length)
                yield descriptor
            finally:
                os.close(descriptor)

    @contextmanager
    def _showing(self, name: str, length: int) -> Iterator[None]:
        self._growing[name] = _Growing(length)
        try:
            yield
        finally:
            del self._growing[name]
            self._tell()

    def grew(self, name: str, done: int) -> None:
        """Let others read that many bytes of a layer that is being made."""
        self._growing[name].done = done
        self._tell()

    def _tell(self) -> None:
        with self._grown:
            self._grown.notify_all()

    def size(self, name: str) -> int:
        """Return the bytes of a layer, also of one that is being made; 0 if that is not known."""
        growing = self._growing.get(name)
        if growing is not None:
            return growing.length
        file = self.file(name)
        return file.stat().st_size if file.exists() else 0

    def length(self, name: str, patience: float) -> int:
        """Return the bytes of a layer, also of one that is being made.

        :param patience: seconds to wait until that is known
        :raises LayerUnknown: if there is none, or no more
        :raises LayerComing: if it is not known then
        """
        return self._awaited(name, partial(self.size, name), patience)

    def part(self, name: str, at: int, size: int, patience: float) -> bytes:
        """Return so many bytes of a layer, or fewer at its end; also of one that is being made.

        :param patience: seconds to wait until they are there
        :raises LayerUnknown: if there is none, or no more
        :raises LayerComing: if they are not there then
        """

        def there() -> bool:
            growing = self._growing.get(name)
            if growing is not None:
                return growing.done >= min(at + size, growing.length)
            return self.file(name).exists()

        self._awaited(name, there, patience)
        for file in (atomic_file.part_of(self.file(name)), self.file(name)):
            with suppress(FileNotFoundError), open(file, "rb", buffering=0) as opened:
                return os.pread(opened.fileno(), size, at)
        raise _coming(name)  # it failed just now, and is tried again

    def _awaited(self, name: str, look: Callable[[], int], patience: float) -> int:
        """Return what a look finds that is not 0."""

        def found() -> int:
            if not self.get(name).lasts:
                raise LayerUnknown(f"layer {name} is about to be gone from this node")
            return look()

        with self._grown:
            result = self._grown.wait_for(found, patience)
        if not result:
            raise _coming(name)
        return result

    def _put(self, commit: Commit) -> None:
        record, *_ = self._paths(commit.name)
        atomic_file.write(record, json.dumps(asdict(commit)).encode())  # has a secret
        self._commits[commit.name] = commit

    def _paths(self, name: str) -> tuple[Path, Path, Path, Path]:
        record = self.folder / f"{name}.json"
        return record, self.file(name), self.tree(name).folder, self.memory(name)


def _coming(name: str) -> LayerComing:
    return LayerComing(f"layer {name} is being made, and has not come so far yet: wait")


def _commit(found: dict[str, Any]) -> Commit:
    saved = found.get("suspended")
    read = {"phase": Phase(found["phase"]), "suspended": saved and suspended.parse(saved)}
    return Commit(**found | read)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
