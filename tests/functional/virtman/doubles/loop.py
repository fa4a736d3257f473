"""The double of ``virtman.privileged.loop``."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path

from tests.functional.virtman.doubles.devices import Double
from tests.functional.virtman.doubles.model import Loop


class LoopDevices(Double):
    """Files and devices as block devices."""

    def attach(
        self,
        path: str,
        offset: int,
        read_only: bool,
        durable: bool = False,
        direct: bool = False,
    ) -> str:
        if self.kernel.by_node(path) is None and not Path(path).is_file():
            raise OSError(errno.ENOENT, path)
        name = next(
            f"/dev/loop{n}" for n in itertools.count() if f"/dev/loop{n}" not in self.kernel.loops
        )
        read_ahead, length = self.kernel.read_ahead(path), self.kernel.length(path)
        self.kernel.loops[name] = Loop(
            f"7:{next(self.kernel.minors)}", path, offset, read_only, read_ahead, length
        )
        return name

    def lengthen(self, device: str) -> None:
        one = self.kernel.loops[device]
        one.length = self.kernel.length(one.path)

    def detach(self, device: str) -> None:
        if device not in self.kernel.loops:
            raise OSError(errno.ENXIO, device)
        self.kernel.loops[device].going = True
        self.kernel.settle()
