"""The stripes put together: regions of the image dealt to them in turn."""

from __future__ import annotations

from collections.abc import Sequence

from virtman import plan, sysfs
from virtman.layers import Mapped
from virtman.plan import REGION, SECTOR


class Stripe(Mapped):
    """dm-switch: region r goes to stripe r mod k, at the same offset.

    Without a message it deals regions out in turn, which is just what is wanted.
    """

    flush = False

    def __init__(self, step: plan.Stripe) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Deal the regions to ``below``."""
        devices = "".join(f" {sysfs.number(device)} 0" for device in below)
        parameters = f"{len(below)} {REGION // SECTOR} 0{devices}"
        self.set_up([(0, self.step.sectors, "switch", parameters)])
        return self.node
