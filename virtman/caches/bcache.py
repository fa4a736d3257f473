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
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from virtman import plan, sysfs
from virtman.errors import DeviceBusy, KernelFailure, VirtmanError
from virtman.layer import wait_until
from virtman.layers import Mapped, detach_loop, explained
from virtman.naming import CACHE_GROUP, Device
from virtman.plan import SECTOR
from virtman.privileged import bcache, loop

LOG = logging.getLogger(__name__)

_SUPERBLOCK = 1024 * 1024
_SHIM_STORE = 4 * 1024 * 1024
_SHIM_CHUNK = 2048
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
    """The node's cache group: local devices put end to end, with one cache set on them."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = tuple(devices)
        self.mapped = Mapped(CACHE_GROUP)
        self.mapped.read_only = False
        # Images come and go side by side, but the node has one cache set to make or stop.
        self._changing = threading.Lock()
        self._images: set[str] = set()

    def enter(self, image: str) -> str:
        """Bring the cache set up for an image and return its UUID.

        A device that holds something other than a cache is refused, not overwritten.
        """
        with self._changing:
            self._images.add(image)
            if not self.devices:
                raise KernelFailure("no cache device: set [cache] devices")
            self.mapped.set_up(self._table())
            found = self._uuid()
            if found is None:
                with explained(f"cache on {', '.join(self.devices)}"):
                    found = self._register()
            for setting, value in _SET_SETTINGS.items():
                with explained(f"cache set {found}"):
                    bcache.configure_set(found, setting, value)
            return found

    def leave(self, image: str) -> None:
        """Give the devices back once no image is in the group."""
        with self._changing:
            self._images.discard(image)
            found = self._uuid()
            if self._images or (found and sysfs.has_members(found)):
                return
            if found is not None:
                with explained(f"cache set {found}"):
                    bcache.stop_set(found)
                wait_until(lambda: self._uuid() is None, _DEADLINE, f"stopping cache set {found}")
            self.mapped.down()

    def _table(self) -> list[tuple[int, int, str, str]]:
        table, start = [], 0
        for device in self.devices:
            length = sysfs.sectors(sysfs.kernel_name(device))
            table.append((start, length, "linear", f"{sysfs.number(device)} 0"))
            start += length
        return table

    def _register(self) -> str:
        """Show the devices to bcache, formatted first if they never were.

        A cache that is there already is used again: members get new identities, so what
        it still holds of earlier ones is never taken for theirs.
        """
        try:
            bcache.register(self.mapped.node)
        except OSError:
            bcache.format_cache(self.mapped.node)
            bcache.register(self.mapped.node)
        wait_until(lambda: self._uuid() is not None, _DEADLINE, f"bcache taking {CACHE_GROUP}")
        found = self._uuid()
        assert found is not None
        return found

    def _uuid(self) -> str | None:
        if not self.mapped.exists():
            return None
        return sysfs.cache_set_on(self.mapped.node)


class Bcache:
    """One image's member of the group."""

    def __init__(self, step: plan.Cache, group: Group, folder: Path) -> None:
        image = step.device.image
        self.step = step
        self.group = group
        self.shim = Mapped(str(Device(image, "shim")))
        self.shim.read_only = False
        self.backing = Mapped(str(Device(image, "backing")))
        self.backing.read_only = False
        self.backing.flush = False
        self.files = {
            str(folder / f"{image}.superblock"): _SUPERBLOCK,
            str(folder / f"{image}.shim"): _SHIM_STORE,
        }

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
        for mapped in (self.backing, self.shim):
            mapped.down()
        for file in self.files:
            detach_loop(file)
            Path(file).unlink(missing_ok=True)
        self.group.leave(self.step.device.image)

    def is_up(self) -> bool:
        """Tell whether reads go through the cache to the image."""
        table = self.backing.table()
        return bool(table) and table[-1][2] == "linear" and self._member() is not None

    def reads(self) -> tuple[int, int]:
        """Return how many reads the cache could serve and how many not; no root is asked."""
        try:
            member = sysfs.bcache_over(self.backing.node)
            return sysfs.cache_reads(member) if member else (0, 0)
        except OSError:  # it comes or goes just now
            return 0, 0

    def _make(self, stripe: str) -> None:
        cache_set = self.group.enter(self.step.device.image)
        superblock, store = (self._loop(file, size) for file, size in self.files.items())
        length, origin = self.step.sectors, sysfs.number(stripe)
        self.shim.set_up(
            [(0, length, "snapshot", f"{origin} {sysfs.number(store)} N {_SHIM_CHUNK}")]
        )
        head = (0, _DATA_OFFSET, "linear", f"{sysfs.number(superblock)} 0")
        if self._member() is None:
            self.backing.set_up([head, (_DATA_OFFSET, length, "error", "")])
            self._register()
        if not self._is_attached():
            self._attach(cache_set)
        shim = f"{sysfs.number(self.shim.node)} 0"
        self.backing.set_up([head, (_DATA_OFFSET, length, "linear", shim)])

    def _register(self) -> None:
        with explained(f"cache member {self.backing.name}"):
            bcache.format_backing(self.backing.node, _DATA_OFFSET)
            bcache.register(self.backing.node)
        wait_until(
            lambda: self._member() is not None, _DEADLINE, f"bcache taking {self.backing.name}"
        )

    def _is_attached(self) -> bool:
        member = self._member()
        return member is not None and sysfs.has_cache(member)

    def _attach(self, cache_set: str) -> None:
        member = self._member()
        assert member is not None
        with explained(f"cache member {member}"):
            for setting, value in _MEMBER_SETTINGS.items():
                bcache.configure(member, setting, value)
            bcache.no_readahead(member)
            bcache.attach(member, cache_set)
        wait_until(
            lambda: sysfs.bcache_state(member) != "no cache", _DEADLINE, f"attaching {member}"
        )

    def _stop(self, member: str) -> None:
        if sysfs.is_held(member):  # it would lose its cache and vanish with its last user
            raise DeviceBusy(
                f"cache member {member}: still in use; stop what holds it and try again"
            )
        with explained(f"cache member {member}"):
            if sysfs.has_cache(member):
                bcache.detach(member)
                wait_until(lambda: not sysfs.has_cache(member), _DEADLINE, f"detaching {member}")
            bcache.stop(member)
        wait_until(lambda: self._member() is None, _DEADLINE, f"stopping {member}")

    def _member(self) -> str | None:
        """Kernel name of the bcache device over our backing device, such as ``bcache0``."""
        if not self.backing.exists():
            return None
        return sysfs.bcache_over(self.backing.node)

    def _loop(self, file: str, size: int) -> str:
        found = sysfs.loop_of(file)
        if found is not None:
            return found
        with explained(f"file {file}"):
            with open(file, "wb") as new:
                new.truncate(size)
            device: str = loop.attach(file, 0, False)
        return device
