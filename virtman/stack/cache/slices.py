"""A cache of its own for each image, on a slice of the SSD group.

::

    cached (dm-cache, flashcache)
       ├── cachedata, cachemeta     dm-linear: extents of the SSD group
       └── shim (dm-snapshot)       keeps writes off the image
              └── stripe            what is cached

A block that has rotted is healed by writing the right one over it: dm-cache then holds that one,
flashcache none. It goes into the shim, too, from where it may be cached again later.

An image's slice is as large as the image, or what is left. A cache of its own means that
an image whose parents hang, or which comes or goes, holds up no other, and that its space
is free once it has left. One cache over all images would have to be suspended for each
that comes or goes, and to be suspended, all I/O below must end first.

Which extents are taken is what the kernel's tables say. A slice is made empty before its
cache is made, so nothing of an earlier owner is ever read; after a reboot it starts cold.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from virtman import sysfs
from virtman.errors import VirtmanError
from virtman.model import naming, plan
from virtman.model.naming import Device
from virtman.model.sizes import BLOCK, SECTOR
from virtman.privileged import chunks
from virtman.stack import mapped
from virtman.stack.cache import Figures
from virtman.stack.cache.local import Shim
from virtman.stack.cache.ssd import Full, Ssd
from virtman.stack.mapped import Mapped, Table, explained

UNIT = 1024 * 1024 // SECTOR
"""Sectors: extents are multiples of it."""

_ROLES = ("cachemeta", "cachedata")
_LEAST = 8 * UNIT
_SHIM_CHUNK = 64 * 1024


class Slices:
    """Who has which extents of the SSD group."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.ssd = Ssd(devices)
        # Images come and go side by side; an extent must not be given to two of them.
        self._changing = threading.Lock()

    def take(self, image: str, meta: int, data: int) -> None:
        """Give an image devices of so many sectors; those that it has are left alone.

        :param data: it may get less, as much as there is
        :raises Full: if there is next to nothing left
        """
        with self._changing:
            if not _taken():  # else other caches would find themselves on other devices
                self.ssd.up()
            for part, wanted, least in zip(
                _parts(image), (meta, data), (meta, min(data, _LEAST)), strict=True
            ):
                if wanted and not part.exists():
                    part.set_up(self._table(wanted, least))

    def give_back(self, image: str) -> None:
        """Free an image's extents, and the devices once nobody has any."""
        with self._changing:
            for part in _parts(image):
                part.down()
            if not _taken():
                self.ssd.down()

    def _table(self, wanted: int, least: int) -> Table:
        """Return the first free extents that make up so many sectors, or all there are."""
        number = sysfs.number(self.ssd.node)
        table: Table = []
        length = 0
        for start, end in gaps(_taken(), self.ssd.sectors()):
            piece = min(end - start, wanted - length)
            if piece > 0:
                table.append((length, piece, "linear", f"{number} {start}"))
                length += piece
        if length < least:
            raise Full(
                f"the cache on {self.ssd} has no space left for another image: give it larger "
                "devices, or drop images that are not used"
            )
        return table


def gaps(taken: Sequence[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """Return what lies between extents (first sector, sector after the last), in whole units."""
    free, start = [], 0
    for first, behind in [*sorted(taken), (end - end % UNIT, end)]:
        if first > start:
            free.append((start, first))
        start = max(start, behind)
    return free


def _parts(image: str) -> list[Mapped]:
    found = []
    for role in _ROLES:
        part = Mapped(str(Device(image, role)))
        part.read_only = False
        part.flush = False
        found.append(part)
    return found


def _taken() -> list[tuple[int, int]]:
    devices = (naming.parse(name) for name in mapped.names())
    tables = [Mapped(str(one)).table() for one in devices if one and one.role in _ROLES]
    rows = [(int(words.split()[1]), length) for table in tables for _, length, _, words in table]
    return [(start, start + length) for start, length in rows]


class Sliced:
    """An image's cache on its slice."""

    def __init__(self, step: plan.Cache, slices: Slices, folder: Path) -> None:
        self.step = step
        self.slices = slices
        image = step.device.image
        self.device = str(Device(image, "cached"))
        self.cached = Mapped(self.device)
        self.cached.read_only = False
        self.cached.flush = False
        self.meta, self.data = _parts(image)
        # the store has a place for each block of the image: it cannot fill
        room = step.sectors * SECTOR + 2 * _SHIM_CHUNK
        self.shim = Shim(step, folder, _SHIM_CHUNK, room)

    def up(self, below: Sequence[str]) -> str:
        """Put the cache before the device below; without space, that device is all there is."""
        if _has_failed(self.cached.status()):
            self.cached.set_up(self._errors())
            self._give_back()
        if not self.is_up():
            try:
                self._make(below[0])
            except Full as err:
                self._give_back()
                self.slices.ssd.note(self.step.device.image, err)
                return below[0]
        self.slices.ssd.note(self.step.device.image, None)
        return self.cached.node

    def release(self) -> None:
        """Nothing waits here: I/O goes to what lies below."""

    def down(self) -> None:
        """Take the cache away; whoever still has the device open reads errors from it."""
        try:
            self.cached.down()
        except VirtmanError:
            self.cached.set_up(self._errors())
            raise
        finally:
            self._give_back()
            self.slices.ssd.note(self.step.device.image, None)

    def is_up(self) -> bool:
        """Tell whether reads go through the cache."""
        return _caches(self.cached.table())

    def is_caching(self, status: Table) -> bool:
        """Tell whether there is a cache, and it has not given up."""
        return _caches(status) and not _has_failed(status)

    def figures(self, status: Table) -> Figures:
        """Return what the driver counted."""
        return self._read(status[0][3]) if _caches(status) else Figures()

    def room(self) -> float:
        """Return the size of the slice over that of the image."""
        return sum(row[1] for row in self.data.table()) / self.step.sectors

    def can_drop(self) -> bool:
        """Tell whether there is a cache that can be written to; earlier ones lacked the shim."""
        return self.is_up() and self.shim.exists()

    def drop(self, offset: int) -> None:
        """Write what lies below over what the cache holds; nothing goes to the image."""
        runs = [(offset, BLOCK)]
        with explained(f"healing a block of {self.cached.name}"):
            right = chunks.read(self.shim.below(), runs)
            chunks.write(self.cached.node, runs, right)

    def _read(self, status: str) -> Figures:
        """Return what the driver says in its status line."""
        raise NotImplementedError

    def _make(self, below: str) -> None:
        """Take a slice and make the cache on it."""
        raise NotImplementedError

    def _give_back(self) -> None:
        self.slices.give_back(self.step.device.image)
        self.shim.down()

    def _errors(self) -> Table:
        return [(0, self.step.sectors, "error", "")]


def _caches(rows: Table) -> bool:
    """Tell by its table, or status, whether a device is a cache."""
    return any(row[2] != "error" for row in rows)


def _has_failed(status: Table) -> bool:
    """Tell whether dm-cache gave up: it could not write to its devices."""
    return _caches(status) and status[0][3].startswith("Fail")
