"""The double of ``virtman.privileged.bcache``."""

from __future__ import annotations

import errno
from pathlib import Path

from tests.functional.virtman.doubles.devices import Double
from tests.functional.virtman.doubles.model import CacheSet, Member, Ssd

_SUPERBLOCK = "bcache superblock"
_LENGTH = 100


class Bcache(Double):
    """Cache sets and their members."""

    def format_cache(self, device: str, block: int) -> None:
        self._must_be_free(device)
        if self.kernel.ssd_is_dead:
            raise OSError(errno.EIO, f"make-bcache: {device} cannot be written")
        self.kernel.ssd = Ssd(f"set-{next(self.kernel.minors)}")

    def format_backing(self, device: str, data_offset: int, block: int) -> None:
        self._must_be_free(device)
        self._write_superblock(self.kernel.number(device), f"member-{next(self.kernel.minors)}", "")

    def is_formatted(self, device: str) -> bool:
        return self._superblock(self.kernel.number(device))[0] == _SUPERBLOCK

    def register(self, device: str) -> None:
        number = self.kernel.number(device)
        if "cachegroup" in device:
            if self.kernel.ssd_is_dead:
                raise OSError(errno.EIO, f"{device} cannot be read")
            if not self.kernel.ssd.cache_set:
                raise OSError(errno.EINVAL, f"{device} has no superblock")
            self.kernel.cache_sets.setdefault(self.kernel.ssd.cache_set, CacheSet(number))
            return
        words = self._superblock(number)
        if words[0] != _SUPERBLOCK:
            raise OSError(errno.EINVAL, f"{device} has no superblock")
        if any(one.backing == number for one in self.kernel.members.values()):
            return
        minor = next(self.kernel.minors)
        name = f"bcache{minor}"
        self.kernel.members[name] = Member(f"252:{minor}", number, words[1], bool(words[2]))
        if words[2] in self.kernel.cache_sets:
            self.attach(name, words[2])

    def configure(self, kernel_name: str, setting: str, value: str) -> None:
        self.kernel.member(kernel_name).settings[setting] = value

    def configure_set(self, cache_set: str, setting: str, value: str) -> None:
        if cache_set not in self.kernel.cache_sets:
            raise OSError(errno.ENOENT, cache_set)
        self.kernel.cache_sets[cache_set].settings[setting] = value

    def attach(self, kernel_name: str, cache_set: str) -> None:
        member = self.kernel.member(kernel_name)
        if cache_set not in self.kernel.cache_sets:
            raise OSError(errno.ENOENT, cache_set)
        if member.cache_set is not None:
            raise OSError(errno.EINVAL, f"{kernel_name} is attached")
        if member.uuid not in self.kernel.ssd.holds:
            if not self.kernel.ssd.places:
                raise OSError(errno.EINVAL, "no room for UUID")
            self.kernel.ssd.places -= 1
            self.kernel.ssd.holds[member.uuid] = ""
        member.cache_set, member.waits = cache_set, False
        self._write_superblock(member.backing, member.uuid, cache_set)
        self.kernel.fill(self.kernel.mapping(self.kernel.named(member.backing)))

    def detach(self, kernel_name: str) -> None:
        member = self.kernel.member(kernel_name)
        member.dirty -= min(member.dirty, 1 << 20)
        if member.dirty:  # the kernel goes on with it
            return
        member.cache_set = None
        self.kernel.ssd.holds.pop(member.uuid, None)
        self._write_superblock(member.backing, member.uuid, "")

    def stop(self, kernel_name: str) -> None:
        self.kernel.member(kernel_name).going = True
        self.kernel.settle()

    def stop_set(self, cache_set: str) -> None:
        if self.kernel.cache_sets.pop(cache_set, None) is None:
            raise OSError(errno.ENOENT, cache_set)
        if any(one.cache_set == cache_set for one in self.kernel.members.values()):
            self.kernel.harm.append("stopped a cache set that has members")

    def _must_be_free(self, device: str) -> None:
        if self.kernel.is_used(self.kernel.number(device), device):
            raise OSError(errno.EIO, f"make-bcache: {device} is busy")

    def _superblock(self, number: str) -> list[str]:
        with open(self._superblock_file(number)) as file:
            return file.read(_LENGTH).strip("\0").split(":")

    def _superblock_file(self, number: str) -> Path:
        (first, *_) = self.kernel.mapping(self.kernel.named(number)).below
        return next(Path(one.path) for one in self.kernel.loops.values() if one.number == first)

    def _write_superblock(self, number: str, uuid: str, cache_set: str) -> None:
        with open(self._superblock_file(number), "r+") as file:
            file.write(f"{_SUPERBLOCK}:{uuid}:{cache_set}:".ljust(_LENGTH, "\0"))
