"""What an export has in place of other stripes' regions: every read fails, at once."""

from __future__ import annotations

from collections.abc import Sequence

from virtman.model import plan
from virtman.stack.mapped import Mapped


class VoidLayer(Mapped):
    """An error target. Never zeros: those would be taken for data."""

    def __init__(self, step: plan.Void) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Make the device; nothing lies below."""
        self.set_up([(0, self.step.sectors, "error", "")])
        return self.node
