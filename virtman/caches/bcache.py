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
which the cache would keep.

What the cache holds is kept under the UUID in a member's superblock. The file with it is
named after the mark of the image, so one UUID never stands for two images, wherever an
agent or a node dies: another image, another file, another UUID. A node that was rebooted
finds the file, and so the data.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from virtman import plan, sysfs
from virtman.caches import Figures, Member
from virtman.caches.local import LocalFile, Shim
from virtman.caches.ssd import Ssd
from virtman.errors import DeviceBusy, VirtmanError
from virtman.layer import wait_until
from virtman.layers import Mapped, explained
from virtman.naming import Device
from virtman.plan import SECTOR
from virtman.privileged import bcache

LOG = logging.getLogger(__name__)

_SUPERBLOCK = 1024 * 1024
_DATA_OFFSET = _SUPERBLOCK // SECTOR
_DEADLINE = 20.0

# What bcache would bypass is just what an image is read for: runs of blocks while a VM
# boots. Neither these nor the error limits survive a registration, so they are set anew.
_MEMBER_SETTINGS = {
    "cache_mode": "writearound",
    "sequential_cutoff": "0",
    # else bcacheN vanishes after 64 bad reads from below, counted over its whole life
    "io_error_limit": "4000000000",
}
_SET_SETTINGS = {"congested_read_threshold_us": "0", "congested_write_threshold_us": "0"}


class Group:
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

    def member(self, step: plan.Cache) -> Member:
        """Return an image's part."""
        return Bcache(step, self, self.folder)

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
        """
        with self._changing:
            found = self._uuid()
            if found != cache_set:  # somebody else was here first
                return self._up()
            LOG.info("cache set %s has no place for another member: making it anew", found)
            members = sysfs.members(found)
            for member in members:
                self.detach(member)
            self._stop(found)
            with explained(f"cache on {self.ssd}"):
                bcache.format_cache(self.ssd.node)
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
                except OSError:
                    bcache.format_cache(self.ssd.node)
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

    def __init__(self, step: plan.Cache, group: Group, folder: Path) -> None:
        image = step.device.image
        self.step = step
        self.group = group
        self.folder = folder
        self.shim = Shim(step, folder)
        self.backing = Mapped(str(Device(image, "backing")))
        self.backing.read_only = False
        self.backing.flush = False
        self.superblock = LocalFile(folder / f"{image}_{step.mark}.superblock", _SUPERBLOCK)

    def up(self, below: Sequence[str]) -> str:
        """Put the cache before the device below."""
        if not self.is_up():
            self._make(below[0])
        elif not self._is_attached():
            try:
                self._attach(self.group.enter(self.step.device.image))
            except VirtmanError as err:
                # VMs may be running over it, and they can do without
                LOG.warning("image %s goes on without a cache: %s", self.step.device.image, err)
        return f"/dev/{self._member()}"

    def release(self) -> None:
        """Nothing waits here: I/O goes to what lies below."""

    def down(self) -> None:
        """Drop what the cache holds of this image and take its devices away."""
        member = self._member()
        if member is not None:
            self._stop(member)
        self.backing.down()
        self.shim.down()
        for file in self._superblocks():
            file.down()
        self.group.leave(self.step.device.image)

    def is_up(self) -> bool:
        """Tell whether reads go through the cache to the image."""
        table = self.backing.table()
        return bool(table) and table[-1][2] == "linear" and self._member() is not None

    def is_caching(self) -> bool:
        """Tell whether the cache set is before the image."""
        return self.is_up() and self._is_attached()

    def figures(self) -> Figures:
        """Return what bcache counted; it adds up what happened only every 38 seconds."""
        try:
            member = sysfs.bcache_over(self.backing.node)
            return Figures(*sysfs.cache_reads(member)) if member else Figures()
        except OSError:  # it comes or goes just now
            return Figures()

    def _make(self, stripe: str) -> None:
        cache_set = self.group.enter(self.step.device.image)
        for file in self._superblocks():
            if file.path != self.superblock.path:
                file.down()
        superblock = self.superblock.up()
        self.shim.up(stripe)
        head = (0, _DATA_OFFSET, "linear", f"{sysfs.number(superblock)} 0")
        if self._member() is None:
            self.backing.set_up([head, (_DATA_OFFSET, self.step.sectors, "error", "")])
            self._register(cache_set)
        self._configure()
        if not self._is_attached():
            self._attach(cache_set)
        self.superblock.sync()
        shim = f"{sysfs.number(self.shim.node)} 0"
        self.backing.set_up([head, (_DATA_OFFSET, self.step.sectors, "linear", shim)])

    def _register(self, cache_set: str) -> None:
        """Show the backing device to bcache, formatted first if it never was.

        One that was a member of another set, which is there no more, waits for that.
        """
        with explained(f"cache member {self.backing.name}"):
            try:
                bcache.register(self.backing.node)
            except OSError:
                bcache.format_backing(self.backing.node, _DATA_OFFSET)
                bcache.register(self.backing.node)
            if sysfs.awaits_cache(self.backing.node):
                self._put_before(sysfs.kernel_name(self.backing.node), cache_set)
        wait_until(
            lambda: self._member() is not None, _DEADLINE, f"bcache taking {self.backing.name}"
        )

    def _is_attached(self) -> bool:
        member = self._member()
        return member is not None and sysfs.has_cache(member)

    def _configure(self) -> None:
        member = self._member()
        assert member is not None
        with explained(f"cache member {member}"):
            for setting, value in _MEMBER_SETTINGS.items():
                bcache.configure(member, setting, value)
            bcache.no_readahead(member)

    def _attach(self, cache_set: str) -> None:
        member = self._member()
        assert member is not None
        with explained(f"cache member {member}"):
            self._put_before(member, cache_set)
        wait_until(self._is_attached, _DEADLINE, f"attaching {member}")

    def _put_before(self, name: str, cache_set: str) -> None:
        """Attach a device, by its kernel name; one that its set took back meanwhile is fine."""
        try:
            bcache.attach(name, cache_set)
        except OSError as err:
            if sysfs.has_cache(name):
                return
            if err.errno not in (errno.EINVAL, errno.ENOENT):
                raise
            bcache.attach(name, self.group.renew(cache_set))

    def _stop(self, member: str) -> None:
        if sysfs.is_held(member):  # it would lose its cache and vanish with its last user
            raise DeviceBusy(
                f"cache member {member}: still in use; stop what holds it and try again"
            )
        if sysfs.has_cache(member):
            self.group.detach(member)
        with explained(f"cache member {member}"):
            bcache.stop(member)
        wait_until(lambda: self._member() is None, _DEADLINE, f"stopping {member}")

    def _member(self) -> str | None:
        """Kernel name of the bcache device over our backing device, such as ``bcache0``."""
        if not self.backing.exists():
            return None
        return sysfs.bcache_over(self.backing.node)

    def _superblocks(self) -> list[LocalFile]:
        """Return what there is of this image, and of earlier ones of the same name."""
        name = self.step.device.image
        return [LocalFile(path, _SUPERBLOCK) for path in self.folder.glob(f"{name}_*.superblock")]
