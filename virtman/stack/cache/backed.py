"""A backing device of bcache: what is before which the cache set is put.

It begins with a superblock in a local file, so that nothing is written to what is cached but
what its user writes::

    superblock loop, 1 MiB ──┐
                             ├── backing (linear) ── bcacheN
    what is cached ──────────┘
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Protocol

from virtman import sysfs
from virtman.errors import DeviceBusy
from virtman.model.sizes import SECTOR
from virtman.privileged import bcache, block
from virtman.stack.cache.local import LocalFile
from virtman.stack.layer import wait_until
from virtman.stack.mapped import Mapped, explained

SUPERBLOCK = 1024 * 1024
DEADLINE = 20.0
_HEAD = SUPERBLOCK // SECTOR


class CacheSet(Protocol):
    """The node's cache set."""

    def renew(self, cache_set: str) -> str:
        """Empty a cache set whose table of members is full; return the UUID of the new one."""

    def detach(self, member: str) -> None:
        """Drop what the cache holds of a member."""


class Backed:
    """One member of the cache set.

    :param name: of the backing device
    :param length: sectors of what is cached
    """

    def __init__(self, name: str, length: int, superblock: LocalFile, of: CacheSet) -> None:
        self.length = length
        self.superblock = superblock
        self.set = of
        self.device = Mapped(name)
        self.device.read_only = False
        self.device.flush = False

    def member(self) -> str | None:
        """Kernel name of the bcache device over the backing device, such as ``bcache0``."""
        if not self.device.exists():
            return None
        return sysfs.bcache_over(self.device.node)

    def is_attached(self) -> bool:
        """Tell whether the cache set is before it."""
        member = self.member()
        return member is not None and sysfs.has_cache(member)

    def put_on(self, target: str, below: str = "") -> None:
        """Have behind the superblock a target over a device, or one without."""
        head = (0, _HEAD, "linear", f"{sysfs.number(self.superblock.up())} 0")
        words = f"{sysfs.number(below)} 0" if below else ""
        self.device.set_up([head, (_HEAD, self.length, target, words)])

    def register(self, cache_set: str, block: int) -> None:
        """Show the backing device to bcache, formatted first if it never was.

        One that was a member of another set, which is there no more, waits for that. One that
        bcache refuses is left as it is: its superblock alone tells which data on a cache device
        are newer than those below.

        :param block: bytes, of the bcache device if it is formatted
        """
        with explained(f"cache member {self.device.name}"):
            if not bcache.is_formatted(self.device.node):
                bcache.format_backing(self.device.node, _HEAD, block)
            bcache.register(self.device.node)
            waiting = self._waiting()
            if waiting is not None:
                self._put_before(waiting, cache_set)
        wait_until(lambda: self.member() is not None, DEADLINE, f"bcache taking {self.device.name}")

    def configure(self, settings: Mapping[str, str]) -> None:
        """Write settings, which do not survive a registration."""
        member = self.member()
        assert member is not None
        with explained(f"cache member {member}"):
            for setting, value in settings.items():
                bcache.configure(member, setting, value)
            block.read_ahead(member, 0)

    def attach(self, cache_set: str) -> None:
        """Put the cache set before it."""
        member = self.member()
        assert member is not None
        with explained(f"cache member {member}"):
            self._put_before(member, cache_set)
        wait_until(self.is_attached, DEADLINE, f"attaching {member}")

    def stop(self) -> None:
        """Drop what the cache holds and take the bcache device away."""
        member = self.member() or self._waiting()
        if member is None:
            return
        if sysfs.is_held(member):  # it would lose its cache and vanish with its last user
            raise DeviceBusy(
                f"cache member {member}: still in use; stop what holds it and try again"
            )
        if sysfs.has_cache(member):
            self.set.detach(member)
        with explained(f"cache member {member}"):
            bcache.stop(member)
        wait_until(
            lambda: self.member() is None and self._waiting() is None,
            DEADLINE,
            f"stopping {member}",
        )

    def _waiting(self) -> str | None:
        """Kernel name of the backing device while bcache has it, but no device over it."""
        if not self.device.exists() or not sysfs.awaits_cache(self.device.node):
            return None
        return sysfs.kernel_name(self.device.node)

    def _put_before(self, name: str, cache_set: str) -> None:
        """Attach a device, by its kernel name; one that its set took back meanwhile is fine."""
        try:
            bcache.attach(name, cache_set)
        except OSError as err:
            if sysfs.has_cache(name):
                return
            if err.errno not in (errno.EINVAL, errno.ENOENT):
                raise
            bcache.attach(name, self.set.renew(cache_set))
