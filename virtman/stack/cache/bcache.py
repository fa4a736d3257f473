"""The bcache driver: a member of the node's cache group in writearound mode.

bcache wants a writable backing device that begins with its own superblock; an image has
neither. So a member is built of three parts::

    superblock loop, 1 MiB ──┐
                             ├── backing (linear) ── bcacheN
    shim (dm-snapshot) ──────┘
       │    └ throw-away store: passes reads through, keeps stray writes off the image
    stripe

The backing device lies on an ``error`` target while bcache registers it: the kernel then
looks for partitions on the new disk, and must neither wait for data nor be given zeros,
which the cache would keep. Nor does bcache then see how large blocks are below, and has those
of the cache device: 512 bytes as a rule, as VMs want them, although dm-verity has 4 KiB. Who
reads so little from here must have something below that fetches it (``planner.image``).

What the cache holds is kept under the UUID in a member's superblock. The file with it is
named after the mark of the image, so one UUID never stands for two images, wherever an
agent or a node dies: another image, another file, another UUID. A node that was rebooted
finds the file, and so the data.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from virtman import sysfs
from virtman.errors import KernelFailure, VirtmanError
from virtman.model import plan, sizes
from virtman.model.naming import Device
from virtman.privileged import bcache, block
from virtman.stack.cache import Figures, Member, VolumeStep
from virtman.stack.cache.backed import DEADLINE as _DEADLINE
from virtman.stack.cache.backed import SUPERBLOCK, Backed
from virtman.stack.cache.local import LocalFile, Shim
from virtman.stack.cache.ssd import Full, Ssd
from virtman.stack.layer import wait_until
from virtman.stack.mapped import Mapped, Table, explained

LOG = logging.getLogger(__name__)

_FLUSH = 1.0

# What bcache would bypass is just what an image is read for: runs of blocks while a VM
# boots. Neither these nor the error limits survive a registration, so they are set anew.
_MEMBER_SETTINGS = {
    "cache_mode": "writearound",
    "sequential_cutoff": "0",
    # else bcacheN vanishes after 64 bad reads from below, counted over its whole life
    "io_error_limit": "4000000000",
}
_SET_SETTINGS = {"congested_read_threshold_us": "0", "congested_write_threshold_us": "0"}


class BcacheGroup:
    """The node's cache group: the SSD group, with one cache set on it.

    :param folder: where the superblocks of members are kept
    """

    modules: tuple[str, ...] = ("bcache",)

    def __init__(self, devices: Sequence[str], folder: Path) -> None:
        self.ssd = Ssd(devices)
        self.folder = folder
        # Images come and go side by side, but the node has one cache set to make or stop.
        self._changing = threading.Lock()
        self._images: set[str] = set()
        self._volumes: Callable[[], Sequence[VolumeStep]] = lambda: ()

    def member(self, step: plan.Cache) -> Member:
        """Return an image's part."""
        return Bcache(step, self, self.folder)

    def volume(self, step: VolumeStep) -> BcacheVolume:
        """Return a volume's part."""
        return BcacheVolume(step, self)

    def protect(self, volumes: Callable[[], Sequence[VolumeStep]]) -> None:
        """Give up nothing that the cache alone may have of volumes."""
        self._volumes = volumes

    def enter(self, image: str) -> str:
        """Bring the cache set up for an image and return its UUID.

        A device that holds something other than a cache is refused, not overwritten.
        """
        with self._changing:
            self._images.add(image)
            return self._up()

    def renew(self, cache_set: str) -> str:
        """Empty a cache set whose table of members is full; return the UUID of the new one.

        bcache never gives a place in that table to another member, and with buckets of
        64 KiB it has 512. All members lose what is cached of them, none sees an error.

        :raises Full: while the cache alone may have data of a volume
        """
        with self._changing:
            found = self._uuid()
            if found != cache_set:  # somebody else was here first
                return self._up()
            # A volume that is not connected is no member, and yet its data may be here alone.
            held = [one.path for one in self._volumes() if not self.volume(one).is_clean()]
            if held:
                raise Full(
                    f"cache set {found} has no place for another member, and is not made anew "
                    "while it may have data that are not written back: connect "
                    f"{', '.join(held)} if that is absent, and run 'virtman cache detach'"
                )
            members = sysfs.members(found)
            LOG.info("cache set %s has no place for another member: making it anew", found)
            for member in members:
                self.detach(member)
            self._stop(found)
            with explained(f"cache on {self.ssd}"):
                bcache.format_cache(self.ssd.node, self.ssd.block_size())
            renewed = self._up()
            for member in members:
                with explained(f"cache member {member}"):
                    bcache.attach(member, renewed)
            return renewed

    @staticmethod
    def detach(member: str) -> None:
        """Drop what the cache holds of a member."""
        with explained(f"cache member {member}"):
            bcache.detach(member)
        wait_until(lambda: not sysfs.has_cache(member), _DEADLINE, f"detaching {member}")

    def sectors(self) -> int:
        """Return how long all members are together."""
        found, length = self._uuid(), 0
        for member in sysfs.members(found) if found else ():
            with contextlib.suppress(FileNotFoundError):  # it goes just now
                length += sysfs.sectors(member)
        return length

    def leave(self, image: str) -> None:
        """Give the devices back once no image is in the group."""
        with self._changing:
            self._images.discard(image)
            found = self._uuid()
            if self._images or (found and sysfs.members(found)):
                return
            if found is not None:
                self._stop(found)
            self.ssd.down()

    def _up(self) -> str:
        """Show the devices to bcache, formatted first if it knows no cache of this size there."""
        if self._uuid() is None:
            self.ssd.up()
            with explained(f"cache on {self.ssd}"):
                try:
                    bcache.register(self.ssd.node)
                except OSError as err:
                    if err.errno != errno.EINVAL:  # there may be a superblock
                        raise
                    bcache.format_cache(self.ssd.node, self.ssd.block_size())
                    bcache.register(self.ssd.node)
        wait_until(lambda: self._uuid() is not None, _DEADLINE, f"bcache taking {self.ssd}")
        found = self._uuid()
        assert found is not None
        with explained(f"cache set {found}"):
            for setting, value in _SET_SETTINGS.items():
                bcache.configure_set(found, setting, value)
        return found

    def _stop(self, cache_set: str) -> None:
        with explained(f"cache set {cache_set}"):
            bcache.stop_set(cache_set)
        wait_until(lambda: self._uuid() is None, _DEADLINE, f"stopping cache set {cache_set}")

    def _uuid(self) -> str | None:
        if not self.ssd.exists():
            return None
        return sysfs.cache_set_on(self.ssd.node)


class Bcache:
    """One image's member of the group."""

    def __init__(self, step: plan.Cache, group: BcacheGroup, folder: Path) -> None:
        image = step.device.image
        self.step = step
        self.group = group
        self.folder = folder
        self.shim = Shim(step, folder)
        superblock = LocalFile(folder / f"{image}_{step.mark}.superblock", SUPERBLOCK)
        self.device = str(Device(image, "backing"))
        self.backed = Backed(self.device, step.sectors, superblock, group)

    def up(self, below: Sequence[str]) -> str:
        """Put the cache before the device below; without a place, that device is all there is."""
        image, lack = self.step.device.image, None
        if not self.is_up():
            try:
                self._make(below[0])
            except Full as err:
                self.group.ssd.note(image, err)
                return below[0]
        elif not self.backed.is_attached():
            try:
                self.backed.attach(self.group.enter(image))
            except VirtmanError as err:  # VMs may be running over it, and they can do without
                lack = err
        self.group.ssd.note(image, lack)
        return f"/dev/{self.backed.member()}"

    def release(self) -> None:
        """Nothing waits here: I/O goes to what lies below."""

    def down(self) -> None:
        """Drop what the cache holds of this image and take its devices away."""
        self.backed.stop()
        self.backed.device.down()
        self.shim.down()
        for file in self._superblocks():
            file.down()
        self.group.leave(self.step.device.image)
        self.group.ssd.note(self.step.device.image, None)

    def is_up(self) -> bool:
        """Tell whether reads go through the cache to the image."""
        return self._over(self.backed.device.table()) is not None

    def is_caching(self, status: Table) -> bool:
        """Tell whether the cache set is before the image."""
        member = self._over(status)
        return member is not None and sysfs.has_cache(member)

    def figures(self, status: Table) -> Figures:
        """Return what bcache counted; it adds up what happened only every 38 seconds."""
        return _figures(lambda: self._over(status))

    def room(self) -> float:
        """Return the size of the group over that of all its members, however many these are."""
        return self.group.ssd.sectors() / max(1, self.group.sectors())

    def can_drop(self) -> bool:
        """Tell whether the member has its cache."""
        member = self.backed.member()
        return member is not None and sysfs.has_cache(member)

    def drop(self, offset: int) -> None:
        """Discard a block, which bcache forgets then; nothing goes to the image."""
        with explained(f"dropping a block of {self.backed.device.name}"):
            block.discard(f"/dev/{self.backed.member()}", offset, sizes.BLOCK)

    def _make(self, stripe: str) -> None:
        cache_set = self.group.enter(self.step.device.image)
        superblock = self.backed.superblock
        for file in self._superblocks():
            if file.path != superblock.path:
                file.down()
        superblock.up()
        self.shim.up(stripe)
        if self.backed.member() is None:
            self.backed.put_on("error")
            self.backed.register(cache_set, self.group.ssd.block_size())
        self.backed.configure(_MEMBER_SETTINGS)
        if not self.backed.is_attached():
            self.backed.attach(cache_set)
        superblock.sync()
        self.backed.put_on("linear", self.shim.node)

    def _over(self, backing: Table) -> str | None:
        """Return the bcache device, if the backing device lies on the image."""
        lies = bool(backing) and backing[-1][2] == "linear"
        return sysfs.bcache_over(self.backed.device.node) if lies else None

    def _superblocks(self) -> list[LocalFile]:
        """Return what there is of this image, and of earlier ones of the same name."""
        name = self.step.device.image
        return [LocalFile(path, SUPERBLOCK) for path in self.folder.glob(f"{name}_*.superblock")]


class BcacheVolume:
    """A volume that is somebody else's, before which the cache set is put.

    On top is a dm-linear: bcache numbers its devices as they come, and a path must stay. What
    the kernel writes to the superblock when the first data are written back must be on the disk
    before these are: a volume that came up as clean would lose them.
    """

    def __init__(self, step: VolumeStep, group: BcacheGroup) -> None:
        self.step = step
        self.group = group
        superblock = LocalFile(step.superblock, SUPERBLOCK, durable=True)
        self.backed = Backed(f"{step.name}_backing", step.sectors, superblock, group)
        self.top = Mapped(step.name)
        self.top.read_only = False

    def up(self) -> None:
        """Put the cache before the volume, and show it to its user unless it is leaving."""
        self._cache()
        if not self.step.leaving:
            member = sysfs.number(f"/dev/{self.backed.member()}")
            self.top.set_up([(0, self.step.sectors, "linear", f"{member} 0")])

    def close(self) -> None:
        """Take the user's device away.

        :raises DeviceBusy: while it is open; nothing is changed then
        """
        self.top.down()

    def empty(self) -> bool:
        """Have what was written brought to the volume; tell whether all of it is there."""
        member = self.backed.member()
        if member is None or not sysfs.has_cache(member):
            return True
        with explained(f"cache member {member}"):
            bcache.detach(member)
        with contextlib.suppress(KernelFailure):
            wait_until(lambda: not sysfs.has_cache(member), _FLUSH, f"emptying {member}")
        return not sysfs.has_cache(member)

    def down(self) -> None:
        """Give the volume back; it must be empty."""
        self.backed.stop()
        self.backed.device.down()
        self.backed.superblock.down()
        self.group.leave(self.step.name)

    def is_up(self) -> bool:
        """Tell whether the volume can be used."""
        return self.top.exists()

    def is_caching(self) -> bool:
        """Tell whether the cache set is before the volume."""
        return self.backed.is_attached()

    def is_clean(self) -> bool:
        """Tell whether the volume is there, and nothing of it is in the cache alone."""
        return self.backed.device.exists() and sysfs.is_clean(self.backed.device.node)

    def dirty(self) -> int:
        """Return the bytes that are in the cache alone."""
        member = self.backed.member()
        return sysfs.dirty(member) if member else 0

    def figures(self) -> Figures:
        """Return what bcache counted."""
        return _figures(self.backed.member)

    def _cache(self) -> None:
        cache_set = self.group.enter(self.step.name)
        if self.backed.member() is None:
            self.backed.put_on("linear", self.step.path)
            self.backed.register(cache_set, sizes.BLOCK)
        mode = {"cache_mode": self.step.mode}
        self.backed.configure({**_MEMBER_SETTINGS, **mode})
        if not self.backed.is_attached() and not self.step.leaving:
            self.backed.attach(cache_set)
        self.backed.superblock.sync()


def _figures(find: Callable[[], str | None]) -> Figures:
    """Return what bcache counted of the member that is found."""
    try:
        member = find()
        return Figures(*sysfs.cache_reads(member)) if member else Figures()
    except OSError:  # it comes or goes just now
        return Figures()
