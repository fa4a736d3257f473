"""What every VM starts from: its image, and zeros behind that."""

from __future__ import annotations

from collections.abc import Sequence

from virtman import sysfs
from virtman.model import plan
from virtman.stack.mapped import Mapped


class BaseLayer(Mapped):
    """dm-linear over the origin, and then dm-zero: a VM may have a longer disk than its image."""

    flush = False

    def __init__(self, step: plan.Base) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Lie on the origin."""
        (origin,) = below
        end = self.step.end
        image = (0, end, "linear", f"{sysfs.number(origin)} 0")
        self.set_up([image, (end, self.step.sectors - end, "zero", "")])
        return self.node
