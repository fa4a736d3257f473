"""A file or device that is read through the page cache, so that all readers share it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from virtman import sysfs
from virtman.model import plan
from virtman.privileged import block, loop
from virtman.stack.mapped import detach_loop, explained


class ReaderLayer:
    """One read-only loop device.

    VMs read an export so, past its header: dm-snapshot reads its origin directly. The loop
    device makes those reads buffered, so that a block wanted by a VM and by a child at once
    is read from below once; and a few sectors become whole blocks.
    """

    direct = False

    def __init__(self, step: plan.Reader) -> None:
        self.step = step
        self.backing = step.path

    def up(self, below: Sequence[str]) -> str:
        """Attach the loop device."""
        device = sysfs.loop_of(self.backing, self.step.offset)
        with explained(f"reader {self.step.device}"):
            if device is None:
                device = loop.attach(self.backing, self.step.offset, True, False, self.direct)
            # as for a path: whoever reads a VM's disk through a page cache reads ahead, and the
            # origin, which is a multipath, marks what a VM reads beside it in another way
            block.merge_nothing(sysfs.kernel_name(device))
        return device

    def release(self) -> None:
        """Nothing waits here."""

    def down(self) -> None:
        """Detach the loop device."""
        detach_loop(self.backing, self.step.offset)

    def is_up(self) -> bool:
        """Tell whether the loop device is there."""
        return sysfs.loop_of(self.backing, self.step.offset) is not None


class DirectLayer(ReaderLayer):
    """The same past the page cache."""

    direct = True


class FileLayer(ReaderLayer):
    """The same over a file that nobody needs afterwards."""

    def down(self) -> None:
        """Detach the loop device and remove the file."""
        super().down()
        Path(self.backing).unlink(missing_ok=True)
