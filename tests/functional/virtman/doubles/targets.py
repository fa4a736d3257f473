"""The double of ``targets`` in the transport: look-ups without root."""

from __future__ import annotations

from tests.functional.virtman.doubles.devices import Double


class Served(Double):
    """What a kernel shows of what it serves."""

    def storages(self) -> dict[str, str]:
        return {
            lun.storage: lun.device for one in self.kernel.targets() for lun in one.luns.values()
        }

    def sent(self, iqn: str) -> int:
        return sum(one.sent for one in self.kernel.targets() if one.iqn == iqn)
