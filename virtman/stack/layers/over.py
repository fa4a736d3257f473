"""What VMs of a layer start from: its parent's base, and what the layer holds over that."""

from __future__ import annotations

from collections.abc import Sequence

from virtman import sysfs
from virtman.model import plan
from virtman.model.dirty import CHUNK
from virtman.model.sizes import SECTOR
from virtman.stack.mapped import Mapped


class OverLayer(Mapped):
    """dm-snapshot with a read-only table: the kernel then opens the exception store read-only too.

    As the table is loaded it reads where the store has what, and waits for that.
    """

    flush = False

    def __init__(self, step: plan.Over) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Lie on the parent's base, with the image as the store."""
        base, store = map(sysfs.number, below)
        parameters = f"{base} {store} P {CHUNK // SECTOR}"
        self.set_up([(0, self.step.sectors, "snapshot", parameters)])
        return self.node
