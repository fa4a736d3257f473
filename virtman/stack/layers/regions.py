"""One stripe of a device, with errors in place of the others, behind a header of zeros."""

from __future__ import annotations

from collections.abc import Sequence

from virtman.model import plan
from virtman.stack.mapped import Mapped, one_stripe


class RegionsLayer(Mapped):
    """dm-zero and dm-switch. A page cache over it reads no further ahead than to a region's end."""

    flush = False

    def __init__(self, step: plan.Regions) -> None:
        super().__init__(str(step.device))
        self.step = step
        self.read_ahead = step.read_ahead

    def up(self, below: Sequence[str]) -> str:
        """Lie on one device a stripe, of which one has its regions."""
        self.set_up(one_stripe(below, self.step.sectors))
        return self.node
