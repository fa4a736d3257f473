"""The double of ``virtman.privileged.lvm``."""

from __future__ import annotations

import errno

from tests.functional.virtman.doubles.devices import Double
from tests.functional.virtman.doubles.model import Logical


class LogicalVolumes(Double):
    """Logical volumes; a file has what each holds."""

    def create(self, group: str, name: str, size: int) -> None:
        path = f"/dev/{group}/{name}"
        if path in self.kernel.volumes:
            raise OSError(errno.EIO, f"lvcreate: {name} already exists")
        file = self.kernel.disk / name
        with open(file, "wb") as held:
            held.truncate(size)
        self.kernel.volumes[path] = Logical(f"254:{next(self.kernel.minors)}", file)

    def lengthen(self, group: str, name: str, size: int) -> None:
        with open(self.kernel.volumes[f"/dev/{group}/{name}"].file, "r+b") as held:
            held.truncate(size)

    def remove(self, group: str, name: str) -> None:
        path = f"/dev/{group}/{name}"
        if path in self.kernel.volumes:
            if self.kernel.is_used(self.kernel.volumes[path].number, path):
                raise OSError(errno.EIO, f"lvremove: {path} is in use")
            self.kernel.volumes.pop(path).file.unlink()

    def free(self, group: str) -> int:
        return 1 << 40
