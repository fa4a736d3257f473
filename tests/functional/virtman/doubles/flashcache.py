"""The double of ``virtman.privileged.flashcache``."""

from __future__ import annotations

import errno

from tests.functional.virtman.doubles.devices import Devices, Double
from tests.functional.virtman.doubles.dm import DeviceMapper


class Flashcache(Double):
    """Devices of flashcache, which are device-mapper devices."""

    def __init__(self, kernel: Devices, mapper: DeviceMapper) -> None:
        super().__init__(kernel)
        self._mapper = mapper

    def create(self, name: str, cache: str, disk: str) -> None:
        if not self.kernel.mapping(cache.rsplit("/", 1)[-1]).wiped:
            raise OSError(errno.EIO, f"flashcache_create: Valid Flashcache already on {cache}")
        numbers = [self.kernel.number(disk), self.kernel.number(cache)]
        length = self.kernel.sizes()[numbers[0]]
        self._mapper.create(name, [(0, length, "flashcache", " ".join([*numbers, "3 2 8"]))], False)

    def keep_latest(self, cache: str, disk: str) -> None:
        for path in (cache, disk):
            self.kernel.mapping(path.rsplit("/", 1)[-1])
