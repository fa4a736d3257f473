"""A VM's own device: the last store of its chain, under a name and number that stay."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from virtman import sysfs
from virtman.model import plan
from virtman.privileged import dm
from virtman.stack.mapped import Mapped, Table, explained


def holding() -> set[str]:
    """Return the names of devices that are being held, but for what was on its way before."""
    with explained("devices that are being held"):
        return set(dm.holding())


class InstanceLayer(Mapped):
    """dm-linear over a store, so that a VM moves to another one by a new table.

    A swap waits for what is on its way, and has a file system that is mounted on the device
    settle: all stores below then have the data of one moment. They have them on the disk, for what
    the VM flushes later gets no further than to its last store.
    """

    read_only = False
    freeze = True

    def __init__(self, step: plan.Instance) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Lie on the last store."""
        (store,) = below
        self.set_up([(0, self.step.sectors, "linear", f"{sysfs.number(store)} 0")])
        return self.node

    def to_settle(self, present: Table, table: Table) -> str:
        """Return the path of the store that the device lies on, if it gets one on that."""
        if {present[0][2], table[0][2]} != {"linear"}:
            return ""
        old, new = (sysfs.mapped_name(rows[0][3].split()[0]) for rows in (present, table))
        return f"/dev/mapper/{old}" if Mapped(new).lies_on(f"/dev/mapper/{old}") else ""

    def stand_in(self) -> None:
        """Be there for whoever has to open the device already; nothing can be read or written.

        Never zeros, nor what has come so far: that would stay in a page cache.
        """
        self.set_up([(0, self.step.sectors, "error", "")])

    def waits(self) -> bool | None:
        """Tell whether the VM's I/O is held back; None if there is no device."""
        with contextlib.suppress(FileNotFoundError):
            # a node that somebody left when removing the device may lead to another one by now
            if sysfs.mapper_name(self.node) == self.name:
                return sysfs.is_suspended(self.node)
        return None

    def is_open(self) -> bool:
        """Tell whether somebody has the device open; nobody can if it is not there."""
        with contextlib.suppress(OSError):
            return bool(dm.is_open(self.name))
        return False

    def hold(self) -> bool:
        """Begin to let the VM wait: all that it reads or writes from now on, until ``resume``.

        :returns: whether that was still to begin; it ``waits`` once all before that has ended
        """
        with explained(f"device {self.name}"):
            return bool(dm.hold(self.name))

    def seal(self) -> None:
        """Fail all I/O from now on, of whoever still has the device open."""
        present = self.table()
        if present and present[0][2] != "error":
            with explained(f"device {self.name}"):
                dm.reload(self.name, [(0, self.step.sectors, "error", "")], False, False, False)
