"""A device that all above refers to, whatever lies below: the image, and its VMs' origin."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from virtman import sysfs
from virtman.model import plan
from virtman.privileged import dm
from virtman.stack.best_first import BestFirst
from virtman.stack.mapped import Table, explained


class ImageLayer(BestFirst):
    """The best path first, and then what goes round it.

    A cache that dies is then a failed path, not an error for every VM. Before anything
    lies below, the device is suspended: it opens, has its size and holds all I/O.
    """

    def __init__(self, step: plan.Image) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Lie on ``below``, best first, and let the I/O go on."""
        if not below:
            self._hold()
            return self.node
        self.lie_on(below, self.step.sectors, queues=True)
        self.resume()
        self.reinstate_all()
        return self.node

    def release(self) -> None:
        """Fail I/O that was held back or that nothing below can serve."""
        with contextlib.suppress(OSError):
            dm.resume(self.name)
            dm.message(self.name, "fail_if_no_path")

    def is_up(self) -> bool:
        """Tell whether it can be read."""
        return self.is_seen(self.table())

    def is_seen(self, status: Table) -> bool:
        """Tell the same by its status."""
        return bool(status) and status[0][2] == "multipath"

    def is_well(self, status: Table) -> bool:
        """Tell the same, and whether it lets I/O through."""
        return super().is_well(status) and not sysfs.is_suspended(self.node)

    def _hold(self) -> None:
        if not self.exists():
            self.set_up([(0, self.step.sectors, "error", "")])
            with explained(f"device {self.name}"):
                dm.suspend(self.name, True, False)
