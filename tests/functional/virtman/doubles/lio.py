"""The double of ``virtman.privileged.lio``."""

from __future__ import annotations

import errno
from pathlib import Path

from tests.functional.virtman.doubles.devices import Double
from tests.functional.virtman.doubles.model import SECTOR
from tests.functional.virtman.doubles.network import Lun, Target


class Targets(Double):
    """What this kernel serves to others."""

    def prepare(self) -> None:
        """Nothing is to be loaded here."""

    def serve(
        self, name: str, device: str, size: int, target: str, lun: int, ip: str, port: int
    ) -> None:
        known = self.kernel.network.targets.get((ip, port, target))
        mine = known or Target(self.kernel, ip, port, target)
        served = [one for target_ in self.kernel.targets() for one in target_.luns.values()]
        if lun in mine.luns or any(one.storage == name for one in served):
            raise OSError(errno.EIO, f"LIO, {target}: exists")
        if self.kernel.by_node(device) is None and not Path(device).is_file():
            raise OSError(errno.EIO, f"LIO, {target}: no {device}")
        mine.luns[lun] = Lun(name, device, size // SECTOR, self.kernel.read_ahead(device))
        self.kernel.network.targets[ip, port, target] = mine

    def withdraw(self, name: str, target: str, lun: int) -> None:
        for one in self.kernel.targets():
            if one.iqn == target:
                one.luns.pop(lun, None)
            for number in [number for number, of in one.luns.items() if of.storage == name]:
                del one.luns[number]
            if not one.luns:
                del self.kernel.network.targets[one.ip, one.port, one.iqn]

    def serves(self, name: str, target: str, lun: int) -> bool:
        return any(
            one.iqn == target and lun in one.luns and one.luns[lun].storage == name
            for one in self.kernel.targets()
        )

    def require(self, target: str, user: str, secret: str) -> None:
        for one in self._target(target):
            one.chap = (user, secret)

    def sessions(self, target: str) -> list[str]:
        return self.kernel.children(target)

    def _target(self, iqn: str) -> list[Target]:
        found = [one for one in self.kernel.targets() if one.iqn == iqn]
        if not found:
            raise OSError(errno.ENOENT, f"there is no {iqn}")
        return found
