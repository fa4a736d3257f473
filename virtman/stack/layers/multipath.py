"""The paths of one stripe: the best that work are used, and I/O waits while none does."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from virtman import sysfs
from virtman.model import plan
from virtman.privileged import dm
from virtman.stack.mapped import Mapped, Table, corrupt, works


class MultipathLayer(Mapped):
    """dm-multipath in bio mode: it lies on other device-mapper devices.

    Either each path is a priority group of its own, so that a standby is used only when all
    before it failed; or all are one group, and share what is read.

    :param selector: how the kernel chooses among the paths of a group
    :param shared: whether all paths are one group
    """

    flush = False  # I/O that waits for a path can only end after the swap

    def __init__(self, step: plan.Multipath, selector: str, *, shared: bool) -> None:
        super().__init__(str(step.device))
        self.step = step
        self.read_ahead = step.read_ahead
        self.selector = selector
        self.shared = shared

    def up(self, below: Sequence[str]) -> str:
        """Use these paths, best first; a failed path that is named again is tried again."""
        if below or not self.exists():
            groups = self._groups([f" {sysfs.number(path)} 1" for path in below])
            first = 1 if below else 0
            queueing = "3 queue_if_no_path" if self.step.queues else "2"
            features = f"{queueing} queue_mode bio"
            parameters = f"{features} 0 {len(groups)} {first}{''.join(groups)}"
            self.set_up([(0, self.step.sectors, "multipath", parameters)])
        self._retry_failed()
        return self.node

    def release(self) -> None:
        """Fail I/O that no path can serve, instead of holding it."""
        with contextlib.suppress(OSError):
            dm.message(self.name, "fail_if_no_path")

    def is_up(self) -> bool:
        """Tell whether a path works."""
        return self.is_seen(self.status())

    def is_seen(self, status: Table) -> bool:
        """Tell the same by its status."""
        return works(status)

    def _groups(self, paths: Sequence[str]) -> list[str]:
        alike = [paths] if self.shared and paths else [[path] for path in paths]
        return [f" {self.selector} 0 {len(group)} 1{''.join(group)}" for group in alike]

    def _retry_failed(self) -> None:
        """Use paths again whose disks are back.

        One that sent wrong bytes only while no other works: it may have right ones too, and
        those that are wrong stay errors.
        """
        paths = self.path_states()
        back = [device for device, state in paths if state == "F" and sysfs.disks_run(device)]
        if back:
            names = {sysfs.mapped_name(device): device for device in back}
            wrong = {names[name] for name in corrupt(names)}
            good = [device for device in back if device not in wrong]
            if good or any(state == "A" for _, state in paths):
                back = good
        self.reinstate(back, shared=self.shared)
