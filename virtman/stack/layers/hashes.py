"""An image's hash tree as dm-verity reads it: a file with its upper levels, then the leaves."""

from __future__ import annotations

from collections.abc import Sequence

from virtman import sysfs
from virtman.model import plan
from virtman.stack.mapped import Mapped


class HashesLayer(Mapped):
    """A linear device over both."""

    def __init__(self, step: plan.Hashes) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Put the leaves behind the upper levels."""
        upper, leaves = map(sysfs.number, below)
        first, rest = self.step.upper, self.step.sectors - self.step.upper
        self.set_up([(0, first, "linear", f"{upper} 0"), (first, rest, "linear", f"{leaves} 0")])
        return self.node
