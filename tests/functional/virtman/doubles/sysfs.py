"""The double of ``virtman.sysfs``: look-ups without root."""

from __future__ import annotations

from pathlib import Path

from tests.functional.virtman.doubles.devices import Double
from tests.functional.virtman.doubles.model import SECTOR, SSD


class Sysfs(Double):
    """What a kernel shows of block devices."""

    def reads(self, device: str) -> int:
        self.kernel.number(device)
        return self.kernel.fetched

    def read_times(self, device: str) -> tuple[int, float]:
        self.kernel.number(device)
        return self.kernel.mapping(device.rsplit("/", 1)[-1]).read_times

    def sectors_read(self, device: str) -> int:
        return self.kernel.mapping(device.rsplit("/", 1)[-1]).sectors_read

    def is_read(self, device: str) -> bool:
        return self.kernel.mapping(device.rsplit("/", 1)[-1]).hung

    def number(self, device: str) -> str:
        return self.kernel.number(device)

    def kernel_name(self, device: str) -> str:
        return device.rsplit("/", 1)[-1] if device == SSD else self.kernel.number(device)

    def sectors(self, name: str) -> int:
        if name == "ssd":
            return self.kernel.ssd_sectors
        if name in self.kernel.members:
            return self.kernel.sizes()[self.kernel.members[name].number]
        for volume in self.kernel.volumes.values():
            if volume.number == name:
                return volume.file.stat().st_size // SECTOR
        for loop in self.kernel.loops.values():
            if loop.number == name:
                return (loop.length - loop.offset) // SECTOR
        return self.kernel.disk_named(name).sectors

    def mapper_names(self) -> list[str]:
        return [one.name for one in self.kernel.mappings.values() if one.has_node]

    def is_suspended(self, device: str) -> bool:
        number = self.kernel.number(device)
        return self.kernel.mapping(self.kernel.named(number)).suspended

    def mapper_name(self, device: str) -> str:
        number = self.kernel.number(device)
        return next((one.name for one in self.kernel.mappings.values() if one.number == number), "")

    def loop_of(self, path: str, offset: int = 0) -> str | None:
        there = path.startswith("/dev/") or Path(path).exists()
        for name, one in self.kernel.loops.items():
            if (one.path, one.offset) == (path, offset) and there:
                return name
        return None

    def hashes_fetched(self) -> int:
        return self.kernel.hashes_fetched

    def idle_loops(self) -> list[tuple[str, int]]:
        held = {number for one in self.kernel.mappings.values() for number in one.below}
        return [
            (one.path, one.offset) for one in self.kernel.loops.values() if one.number not in held
        ]

    def disk_number(self, name: str) -> str:
        return self.kernel.disk_named(name).number

    def disks_run(self, device_number: str) -> bool:
        return self.kernel.disks_run(device_number)

    def mapped_name(self, device_number: str) -> str:
        return self.kernel.names()[device_number]

    def dirty(self, bcache: str) -> int:
        return self.kernel.member(bcache).dirty

    def identity(self, device: str) -> str:
        number = self.kernel.number(device)
        return next(
            (one.identity for one in self.kernel.volumes.values() if one.number == number), ""
        )

    def block_size(self, device: str) -> int:
        return 512

    def cache_reads(self, bcache: str) -> tuple[int, int, int]:
        return self.kernel.member(bcache).reads

    def is_held(self, name: str) -> bool:
        number = self.kernel.member(name).number if name in self.kernel.members else name
        return any(number in one.below for one in self.kernel.mappings.values())

    def bcache_over(self, device: str) -> str | None:
        number = self.kernel.number(device)
        found = (name for name, one in self.kernel.members.items() if one.backing == number)
        return next((name for name in found if not self.kernel.members[name].waits), None)

    def awaits_cache(self, device: str) -> bool:
        return any(one.waits for one in self.kernel.members.values()
                   if one.backing == self.kernel.number(device))  # fmt: skip

    def is_clean(self, device: str) -> bool:
        number = self.kernel.number(device)
        return any(one.backing == number and not one.dirty for one in self.kernel.members.values())

    def cache_set_on(self, device: str) -> str | None:
        number = self.kernel.number(device)
        return next(
            (name for name, one in self.kernel.cache_sets.items() if one.device == number), None
        )

    def members(self, cache_set: str) -> list[str]:
        return [name for name, one in self.kernel.members.items() if one.cache_set == cache_set]

    def has_cache(self, bcache: str) -> bool:
        return self.kernel.member(bcache).cache_set is not None
