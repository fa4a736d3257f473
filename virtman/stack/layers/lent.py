"""What images that are based on another read of it: errors where that gives no answer."""

from __future__ import annotations

from collections.abc import Sequence

from virtman.model import plan
from virtman.stack.best_first import BestFirst


class LentLayer(BestFirst):
    """The best path first; nothing waits here."""

    def __init__(self, step: plan.Lent) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Lie on ``below``, best first."""
        self.lie_on(below, self.step.sectors, queues=False)
        self.reinstate_all()
        return self.node
