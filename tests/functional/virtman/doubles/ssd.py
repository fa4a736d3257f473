"""The double of ``virtman.privileged.ssd``."""

from __future__ import annotations

import errno

from tests.functional.virtman.doubles.devices import Double


class CacheDevices(Double):
    """What lies on a cache device and its slices."""

    def claim(self, device: str) -> None:
        self.kernel.number(device)
        if self.kernel.ssd_is_dead:
            raise OSError(errno.EIO, f"{device} cannot be read")
        if self.kernel.ssd_holds:
            raise OSError(errno.EMEDIUMTYPE, f"{device} holds {self.kernel.ssd_holds}")

    def wipe(self, device: str) -> None:
        if self.kernel.is_used(self.kernel.number(device), device):
            self.kernel.harm.append(f"{device} was wiped under a cache")
        self.kernel.mapping(device.rsplit("/", 1)[-1]).wiped = True
