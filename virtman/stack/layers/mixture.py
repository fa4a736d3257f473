"""An image as far as others on this node have it, and the rest of it from itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from virtman import sysfs
from virtman.model import basis, plan
from virtman.model.hashtree import BLOCK
from virtman.model.sizes import SECTOR
from virtman.stack.mapped import Mapped

_SECTORS = BLOCK // SECTOR


class MixtureLayer(Mapped):
    """dm-linear, with a row for each run of blocks that is lent, and for each that is not.

    Zeros are lent or not like others: dm-zero gives an error to who reads ahead, and the path that
    lies on this would count as failed.
    """

    flush = False

    def __init__(self, step: plan.Mixture) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Lie on the image itself, first of ``below``, and on its lenders."""
        names = ("", *(device.image for device in self.step.below[1:]))
        numbers = dict(zip(names, map(sysfs.number, below), strict=True))
        blocks = self.step.sectors // _SECTORS
        found = basis.decode(Path(self.step.path).read_bytes(), blocks)
        rows = [
            (one.start * _SECTORS, one.count * _SECTORS, "linear",
             f"{numbers[one.other]} {one.at * _SECTORS}")
            for one in basis.pieces(found, names, blocks)
        ]  # fmt: skip
        self.set_up(rows)
        return self.node

    def down(self) -> None:
        """Remove the device, and the file that told who has what."""
        super().down()
        if self.step.path:
            Path(self.step.path).unlink(missing_ok=True)
