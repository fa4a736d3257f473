"""A VM's own device: the image, and what this VM wrote."""

from __future__ import annotations

from collections.abc import Sequence

from virtman import plan, sysfs
from virtman.layers import Mapped, detach_loop, explained
from virtman.privileged import loop

CHUNK = 16
"""Sectors that one first write copies."""


class Snapshot(Mapped):
    """dm-snapshot over the node's reader, with a persistent exception store in a file."""

    read_only = False

    def __init__(self, step: plan.Snapshot) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Join the origin below and the VM's exception store."""
        (origin,) = below
        with explained(f"exception store {self.step.store}"):
            store = sysfs.loop_of(self.step.store) or loop.attach(self.step.store, 0, False)
        parameters = f"{sysfs.number(origin)} {sysfs.number(store)} P {CHUNK}"
        self.set_up([(0, self.step.sectors, "snapshot", parameters)])
        return self.node

    def down(self) -> None:
        """Remove the device and let go of the exception store's file."""
        super().down()
        detach_loop(self.step.store)
