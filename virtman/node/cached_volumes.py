"""Volumes of others, a Cinder volume for one, before which the node's cache group is put.

Its user gets a device of its own, ``/dev/mapper/virtman-volume_<name>``, which shows the volume
through the cache. Which volumes these are is written down first, so that an agent that dies
anywhere is followed by one that knows; and with what tells the volume from others, for after a
reboot another disk may have its path.

A volume that is given back is emptied first: what only the cache has is written to it. That takes
as long as it takes, so ``detach`` is called again until it says that nothing is left.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from virtman import atomic_file, sysfs
from virtman.disk.volumes.device import check
from virtman.errors import DeviceBusy, StoreUnusable, VirtmanError, VolumeUnknown, VolumeUnusable
from virtman.model.naming import MAPPER, PREFIX
from virtman.model.sizes import BLOCK, SECTOR
from virtman.stack.cache import CachedVolume, CacheGroup, Figures, VolumeStep

LOG = logging.getLogger(__name__)

WRITETHROUGH, WRITEBACK = "writethrough", "writeback"


@dataclass(frozen=True)
class Cached:
    """A volume with the cache before it, as it is written down.

    :ivar path: of the volume
    :ivar size: bytes
    :ivar identity: tells it from others that may have its path; perhaps nothing
    :ivar leaving: it is being given back
    """

    path: str
    size: int
    mode: str
    identity: str
    leaving: bool = False

    @property
    def name(self) -> str:
        """What its device is called."""
        digest = hashlib.sha256(self.path.encode()).hexdigest()
        return f"{PREFIX}-volume_{digest[:16]}"

    @property
    def device(self) -> str:
        """Path of what its user gets."""
        return MAPPER + self.name


@dataclass(frozen=True)
class Shown:
    """A volume and how it is.

    :ivar state: "ready"; "uncached" while it goes on without its cache; "emptying" while it is
        being given back; "absent" while it is not there
    :ivar dirty: bytes that are in the cache alone
    """

    volume: Cached
    state: str
    dirty: int
    figures: Figures


class CachedVolumes:
    """The volumes of this node.

    :param folder: survives a reboot
    """

    def __init__(self, group: CacheGroup, folder: Path) -> None:
        self.group = group
        self.folder = folder
        # A verb changes a volume from its first look to its last; they are few and short.
        self._lock = threading.Lock()
        atomic_file.prepare(folder)
        group.protect(self._written_back)

    def attach(self, path: str, mode: str = WRITETHROUGH) -> Shown:
        """Put the cache before a volume; one that has it, in this mode, is left alone.

        :raises VolumeUnusable: if it is in use, or no volume that can be cached
        :raises CacheUnsupported: if the cache driver cannot do that
        """
        if mode not in (WRITETHROUGH, WRITEBACK):
            raise VolumeUnusable(f"mode {mode!r}: use {WRITETHROUGH} or {WRITEBACK}")
        with self._lock:
            found = self._find(path)
            if found is None:
                found = _measured(path, mode)
                self._layer(found)  # refused before anything is written down
                self._put(found)
                try:
                    self._layer(found).up()
                except (VirtmanError, OSError) as err:
                    self._undo(found)
                    if isinstance(err, DeviceBusy):
                        raise VolumeUnusable(f"{path} is in use: end its use first") from err
                    raise
                LOG.info("volume %s has %s, %s", path, found.device, mode)
            elif (found.mode, found.leaving) != (mode, False):
                leaves = ", and leaving" if found.leaving else ""
                raise VolumeUnusable(
                    f"{path} is cached already, {found.mode}{leaves}: detach it first"
                )
            else:
                self._up(found)
            return self._shown(found)

    def detach(self, path: str) -> Shown | None:
        """Give a volume back; None once it is, or how far it is: call again then.

        :raises VolumeUnknown: if it is not cached
        :raises DeviceBusy: while its device is open; nothing is changed then
        """
        with self._lock:
            found = self._find(path)
            if found is None:
                raise VolumeUnknown(f"{path} is not cached; 'virtman cache list' shows what is")
            if found.mode == WRITEBACK:
                self._up(found)  # what only the cache has can go nowhere else
            self._layer(found).close()
            if not found.leaving:
                found = replace(found, leaving=True)
                self._put(found)
            if not self._layer(found).empty():
                return self._shown(found)
            self._take_down(found)
            LOG.info("volume %s is given back", path)
            return None

    def list(self) -> Sequence[Shown]:
        """Return the volumes, by path."""
        return [self._shown(one) for one in self._all()]

    def recover(self) -> Sequence[str]:
        """Bring back what a reboot took away; return the paths of those that cannot be yet."""
        failed = []
        for one in self._all():
            if not os.path.exists(one.path):  # who connects it then attaches it again
                continue
            try:
                with self._lock:
                    if self._find(one.path) == one:
                        self._up(one)
            except (VirtmanError, OSError) as err:
                LOG.warning("volume %s: %s", one.path, err)
                failed.append(one.path)
        return failed

    def _up(self, one: Cached) -> None:
        if not self._layer(one).is_up():
            there = _measured(one.path, one.mode)
            if (there.identity, there.size) != (one.identity, one.size):
                raise VolumeUnusable(
                    f"{one.path} is another volume now than the one that was cached: connect that "
                    "one under this path again"
                )
        self._layer(one).up()

    def _shown(self, one: Cached) -> Shown:
        layer = self._layer(one)
        if one.leaving:
            state = "emptying"
        elif not layer.is_up():
            state = "absent"
        else:
            state = "ready" if layer.is_caching() else "uncached"
        return Shown(one, state, layer.dirty(), layer.figures())

    def _layer(self, one: Cached) -> CachedVolume:
        return self.group.volume(self._step(one))

    def _step(self, one: Cached) -> VolumeStep:
        superblock = self.folder / f"{one.name}.superblock"
        return VolumeStep(one.name, one.path, one.size // SECTOR, one.mode, superblock, one.leaving)

    def _written_back(self) -> Sequence[VolumeStep]:
        return [self._step(one) for one in self._all() if one.mode == WRITEBACK]

    def _undo(self, one: Cached) -> None:
        try:
            self._layer(one).close()
            self._take_down(one)
        except (VirtmanError, OSError) as err:
            LOG.warning("volume %s: %s", one.path, err)

    def _take_down(self, one: Cached) -> None:
        self._layer(one).down()
        atomic_file.remove(self._file(one))

    def _find(self, path: str) -> Cached | None:
        return next((one for one in self._all() if one.path == path), None)

    def _all(self) -> Sequence[Cached]:
        found = []
        for file in self.folder.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # given back meanwhile
                found.append(Cached(**json.loads(file.read_text())))
        return sorted(found, key=lambda one: one.path)

    def _put(self, one: Cached) -> None:
        atomic_file.write(self._file(one), json.dumps(asdict(one)).encode())

    def _file(self, one: Cached) -> Path:
        return self.folder / f"{one.name}.json"


def _measured(path: str, mode: str) -> Cached:
    try:
        check(path)
        size = sysfs.sectors(sysfs.kernel_name(path)) * SECTOR
        ours = sysfs.mapper_name(path).startswith(PREFIX)
        identity = sysfs.identity(path)
    except StoreUnusable as err:
        raise VolumeUnusable(str(err)) from err
    except OSError as err:
        raise VolumeUnusable(f"{path}: {err.strerror or err}; is it connected?") from err
    if ours:
        raise VolumeUnusable(f"{path} is one of VirtMan's own devices")
    if not size or size % BLOCK:
        raise VolumeUnusable(f"{path} has {size} bytes, which are not whole blocks of {BLOCK}")
    return Cached(path, size, mode, identity)
