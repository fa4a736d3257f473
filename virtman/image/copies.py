"""Which copies of whole images this node has, or makes: on record, and where their bytes are.

For each image a record in the agent's own folder, and two files in a folder that an operator may
choose::

    copies/<image>.json      what is copied, how fast, and whether all of it is there
    attached.json            beside that folder: since when which images are here, copied or not
    <folder>/<image>.copy    the bytes, as ``copying.Layout`` says
    <folder>/<image>.held    which pieces of them are on the disk: written after these are

The record comes first and goes first: a file that no record names is garbage.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from virtman import atomic_file
from virtman.coordinator.interface import ImageInfo
from virtman.errors import NoSpace
from virtman.model import planner
from virtman.model.copying import Copy, Held

_ATTACHED = "attached.json"
_HELD = ".held"
_SUFFIXES = (".copy", _HELD)


class Space(Protocol):
    """What is promised of this node's disks, to whomever.

    :ivar promising: held from the check on until what was promised is written down
    :ivar claims: returns what is promised to others than the exception stores
    """

    promising: threading.RLock
    claims: Callable[[], Iterable[tuple[Path, int]]]

    def spare(self, folder: Path) -> int:
        """Return the bytes of a folder that are free, not promised, and not reserved."""

    def reserved(self, folder: Path) -> int:
        """Return the bytes of a folder's file system that VMs may need at any time."""


class Copies:
    """Those of this node.

    :param records: folder of the records; survives a reboot
    :param folder: of what is copied from now on; what was before stays where it is
    """

    def __init__(self, records: Path, folder: Path, space: Space) -> None:
        self.records = records
        self.folder = folder
        self.space = space
        self._lock = threading.Lock()
        self._copies: dict[str, Copy] = {}
        self._arrivals: dict[str, float] = {}
        space.claims = self.claims

    def prepare(self) -> None:
        """Make the folders, read and mend the records, and remove what these do not name."""
        atomic_file.prepare(self.records)
        atomic_file.prepare(self.folder)
        found = (Copy(**json.loads(one.read_text())) for one in self.records.glob("*.json"))
        self._copies = {one.image: one for one in found}
        with contextlib.suppress(FileNotFoundError):
            self._arrivals = json.loads(self.records.with_name(_ATTACHED).read_text())
        named = {str(file) for one in self._copies.values() for file in _files(one)}
        for file in self.folder.iterdir():
            if file.suffix in _SUFFIXES and str(file) not in named:
                file.unlink()
        for one in self.all():
            self._measured(one)

    def all(self) -> list[Copy]:
        """Return all copies, by name of the image."""
        with self._lock:
            return sorted(self._copies.values(), key=lambda one: one.image)

    def get(self, image: str) -> Copy | None:
        """Return the copy of an image; None if there is none."""
        return self._copies.get(image)

    def path(self, image: str) -> str:
        """Return the file of an image's copy; empty if there is none."""
        found = self.get(image)
        return found.path if found else ""

    def of(self, info: ImageInfo) -> tuple[str, bool]:
        """Return the file of an image's copy, empty for none, and whether all of it is there.

        One of an earlier image of this name is none.
        """
        found = self.get(info.name)
        if found is None or not _is_of(found, info):
            return "", False
        return found.path, found.whole and _has_its_length(found)

    def arrivals(self, here: Collection[str], now: float) -> Mapping[str, float]:
        """Write down which images are here; return since when each is, in seconds since 1970.

        :param now: a clock that was set back makes no image come later than that
        """
        found = {image: min(self._arrivals.get(image, now), now) for image in sorted(here)}
        if found != self._arrivals:
            self._arrivals = found
            if found:
                atomic_file.write(self.records.with_name(_ATTACHED), json.dumps(found).encode())
            else:
                atomic_file.remove(self.records.with_name(_ATTACHED))
        return found

    def begin(self, info: ImageInfo, rate: int) -> Copy:
        """Write down that an image is to be copied, or how fast from now on.

        :raises NoSpace: if not even the leaves of its hash tree fit
        """
        found = self.mended(info)
        if found is not None:
            return self.change(found, rate=rate)
        mark = planner.mark(info.size, info.identity)
        path = str(self.folder / f"{info.name}.copy")
        copy = Copy(info.name, mark, info.size, path, rate)
        self._check(copy, copy.layout.leaves)
        return self.change(copy)

    def mended(self, info: ImageInfo) -> Copy | None:
        """Return the copy of an image, with a record that is true; None if there is none.

        One of an earlier image of this name goes; nothing lies on it any more.
        """
        found = self.get(info.name)
        if found is None:
            return None
        if not _is_of(found, info):
            self.forget(found)
            return None
        return self._measured(found)

    def _measured(self, copy: Copy) -> Copy:
        """Return a copy with a true record; nothing of a file counts that was cut, or has gone."""
        if _has_its_length(copy):
            return copy
        forget_held(copy)
        return self.change(copy, whole=False) if copy.whole else copy

    def promise(self, copy: Copy, needs: int) -> Copy:
        """Promise a copy the bytes that it takes in all; return it as it is written down then.

        :raises NoSpace: if they do not fit
        """
        with self.space.promising:
            self._check(copy, needs)
            return self.change(copy, needs=needs)

    def room(self) -> int:
        """Return how many bytes copies could still take that are made from now on."""
        return max(0, self.space.spare(self.folder))

    def claims(self) -> list[tuple[Path, int]]:
        """Return the bytes that copies may still take, and in which folders."""
        return [
            (Path(one.path).parent, max(0, one.needs - _taken(one)))
            for one in self.all()
            if not one.whole
        ]

    def change(self, copy: Copy, **news: Any) -> Copy:
        """Write down what is new of a copy, or a new one; return it as it is now.

        :param news: fields that change; others are as whoever wrote last left them
        """
        with self._lock:
            now = replace(self._copies.get(copy.image, copy), **news)
            atomic_file.write(self._record(now), json.dumps(asdict(now)).encode())
            self._copies[now.image] = now
        return now

    def forget(self, copy: Copy) -> None:
        """Forget a copy, and remove its files; nothing lies on them any more."""
        with self._lock:
            atomic_file.remove(self._record(copy))
            self._copies.pop(copy.image, None)
        for file in _files(copy):
            file.unlink(missing_ok=True)

    def check_reserve(self, copy: Copy) -> None:
        """Raise NoSpace if a copy that goes on would take what VMs may need."""
        folder = Path(copy.path).parent
        free, reserved = _free(folder), self.space.reserved(folder)
        if free <= reserved:
            raise NoSpace(
                f"the copy of image {copy.image} stops: {folder} has {free} bytes left, of which "
                f"{reserved} are for exception stores of VMs; free some space"
            )

    def _check(self, copy: Copy, needs: int) -> None:
        folder = Path(copy.path).parent
        lacking = needs - _taken(copy) - self.space.spare(folder)
        if lacking > 0:
            raise NoSpace(
                f"the copy of image {copy.image} needs {needs} bytes in {folder}: {lacking} more "
                "than are free and promised to nobody; free some space, or set [whole] folder to "
                "one with more"
            )

    def _record(self, copy: Copy) -> Path:
        return self.records / f"{copy.image}.json"


def held(copy: Copy) -> Held:
    """Return which pieces of a copy are on the disk, as far as that is written down."""
    bits = b""
    with contextlib.suppress(FileNotFoundError):
        bits = _held_file(copy).read_bytes()
    return Held(copy.layout.count, bits)


def write_held(copy: Copy, now: Held) -> None:
    """Write down which pieces are on the disk; they must be."""
    atomic_file.write(_held_file(copy), now.encoded())


def forget_held(copy: Copy) -> None:
    """Count no piece of a copy as there any more."""
    atomic_file.remove(_held_file(copy))


def _held_file(copy: Copy) -> Path:
    return Path(copy.path).with_suffix(_HELD)


def _files(copy: Copy) -> tuple[Path, Path]:
    return Path(copy.path), _held_file(copy)


def _taken(copy: Copy) -> int:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(copy.path).st_blocks * 512
    return 0


def _is_of(copy: Copy, info: ImageInfo) -> bool:
    return copy.mark == planner.mark(info.size, info.identity)


def _has_its_length(copy: Copy) -> bool:
    """Tell whether the file is there, and was not cut."""
    with contextlib.suppress(OSError):
        return os.stat(copy.path).st_size == copy.layout.length
    return False


def _free(folder: Path) -> int:
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize
