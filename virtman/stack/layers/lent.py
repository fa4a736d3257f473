"""What images that are based on another read of it: errors where that gives no answer."""

from __future__ import annotations

from collections.abc import Sequence

from virtman import sysfs
from virtman.model import plan
from virtman.stack.mapped import Mapped


class LentLayer(Mapped):
    """dm-multipath in bio mode, the best path first; nothing waits here."""

    flush = False

    def __init__(self, step: plan.Lent) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Lie on ``below``, best first."""
        paths = list(dict.fromkeys(below))  # without a cache, both are the same
        groups = "".join(f" round-robin 0 1 1 {sysfs.number(device)} 1" for device in paths)
        parameters = f"2 queue_mode bio 0 {len(paths)} 1{groups}"
        self.set_up([(0, self.step.sectors, "multipath", parameters)])
        self.reinstate([device for device, state in self.path_states() if state == "F"])
        return self.node
