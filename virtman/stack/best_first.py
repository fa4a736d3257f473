"""A device that lies on several, each of which has all of it: the best one is read first."""

from __future__ import annotations

from collections.abc import Sequence

from virtman import sysfs
from virtman.stack.mapped import Mapped


class BestFirst(Mapped):
    """dm-multipath in bio mode, each path a group of its own."""

    flush = False

    def lie_on(self, below: Sequence[str], sectors: int, *, queues: bool) -> None:
        """Lie on ``below``, best first.

        :param queues: whether reads wait while no path works; else they fail
        """
        features = "3 queue_if_no_path queue_mode bio" if queues else "2 queue_mode bio"
        paths = list(dict.fromkeys(below))  # without a cache, both are the same
        groups = "".join(f" round-robin 0 1 1 {sysfs.number(device)} 1" for device in paths)
        self.set_up([(0, sectors, "multipath", f"{features} 0 {len(paths)} 1{groups}")])

    def reinstate_all(self) -> None:
        """Use all paths again that have failed."""
        self.reinstate([device for device, state in self.path_states() if state == "F"])
