"""The stripes put together: pieces of the image dealt to devices in turn."""

from __future__ import annotations

from collections.abc import Sequence

from virtman import sysfs
from virtman.model import plan
from virtman.model.sizes import SECTOR
from virtman.stack.mapped import Mapped


class StripeLayer(Mapped):
    """dm-switch: piece p goes to device p mod n, at the offset that it has in the image.

    Without a message it deals pieces out in turn, which is just what is wanted.
    """

    flush = False

    def __init__(self, step: plan.Stripe) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Deal the pieces to ``below``."""
        devices = "".join(
            f" {sysfs.number(device)} {begin // SECTOR}"
            for device, begin in zip(below, self.step.begins, strict=True)
        )
        parameters = f"{len(below)} {self.step.piece // SECTOR} 0{devices}"
        self.set_up([(0, self.step.sectors, "switch", parameters)])
        return self.node
