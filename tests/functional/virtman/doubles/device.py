"""The double of ``virtman.privileged.device``."""

from __future__ import annotations

import errno
from pathlib import Path

from tests.functional.virtman.doubles import stores
from tests.functional.virtman.doubles.devices import Double


class ForeignDevices(Double):
    """Devices of others: they are logical volumes whose group is not ours."""

    def claim(self, path: str, size: int) -> None:
        if path not in self.kernel.volumes:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        volume = self.kernel.volumes[path]
        if self.kernel.is_used(volume.number, path):
            raise OSError(errno.EBUSY, "Device or resource busy")
        if volume.file.stat().st_size < size:
            raise OSError(errno.ENOSPC, f"shorter than {size} bytes")
        if any(volume.file.read_bytes()[: 64 * 1024]):
            raise OSError(errno.EEXIST, "it holds something")

    def begin(self, path: str, chunk: int) -> None:
        if self.kernel.is_used(self.kernel.volumes[path].number, path):
            raise OSError(errno.EBUSY, "Device or resource busy")
        stores.hold(self.kernel.volumes[path].file, {})

    def is_store(self, path: str) -> bool:
        return self.kernel.volumes[path].file.read_bytes().startswith(b"{")

    def copy(self, source: str, target: str, length: int) -> None:
        old, new = (
            self.kernel.volumes[path].file if path in self.kernel.volumes else Path(path)
            for path in (source, target)
        )
        with open(old, "rb") as held, open(new, "r+b") as file:
            file.write(held.read(length))

    def clear(self, path: str) -> None:
        if path in self.kernel.volumes:
            if self.kernel.is_used(self.kernel.volumes[path].number, path):
                raise OSError(errno.EBUSY, "Device or resource busy")
            with open(self.kernel.volumes[path].file, "r+b") as file:
                if file.read(1) == b"{":
                    file.seek(0)
                    file.write(bytes(64 * 1024))
