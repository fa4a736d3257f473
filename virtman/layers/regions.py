"""One stripe of a device, with errors in place of the others, behind a header of zeros."""

from __future__ import annotations

from collections.abc import Sequence

from virtman import plan, sysfs
from virtman.layers import Mapped, Table
from virtman.plan import HEADER, REGION, SECTOR


class Regions(Mapped):
    """dm-zero, then dm-switch: region r lies on device r mod n, at the offset that it has there.

    A page cache over it reads no further ahead than to the region's end.
    """

    flush = False

    def __init__(self, step: plan.Regions) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Lie on one device a stripe, of which one has its regions."""
        self.set_up(self.dealt(below, self.step.sectors))
        return self.node

    @staticmethod
    def dealt(below: Sequence[str], end: int) -> Table:
        """Return the table, up to a sector."""
        header = HEADER // SECTOR
        devices = "".join(f" {sysfs.number(device)} 0" for device in below)
        regions = f"{len(below)} {REGION // SECTOR} 0{devices}"
        return [(0, header, "zero", ""), (header, end - header, "switch", regions)]
