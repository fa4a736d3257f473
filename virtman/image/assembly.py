"""An image's devices on this node: had as they are wanted, in one place.

Whatever is to change, a placement, the parents in use, from where VMs read, or a device that is
missing, is said in a ``Wanted``; ``Assembly.have`` has the devices so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from virtman.errors import ParentUnreachable
from virtman.model import feeding, lending, plan, planner
from virtman.model.naming import Device
from virtman.model.wanted import Parents, Wanted
from virtman.stack.builder import Built, Stack


class Assembly:
    """One image's.

    :ivar wanted: what the devices are to be
    :ivar steps: all that has to be there for that, once the standbys are connected too
    :ivar devices: paths of those that are there; empty before the first, and from when they go
    """

    def __init__(self, stack: Stack, wanted: Wanted) -> None:
        self._stack = stack
        self.wanted = wanted
        self.steps: plan.Plan = ()
        self.devices: Mapping[Device, str] = {}
        # What is known to be done of the plan; nothing while a change is under way or has failed.
        self._done: frozenset[plan.Step] = frozenset()

    @property
    def is_done(self) -> bool:
        """Whether nothing is known to be missing, but for what depends on parents."""
        return bool(self._done)

    def doubt(self) -> None:
        """Take nothing as done, so that the next change looks at all of it."""
        self._done = frozenset()

    def have(self, wanted: Wanted, silent: Mapping[str, ParentUnreachable] | None = None) -> Built:
        """Have the devices as wanted, as far as parents answer: the one way in which they change.

        What is done already is left alone; but not what depends on parents.

        :param silent: those who did not answer just now
        """
        self.wanted = wanted
        self.steps = planner.image(replace(wanted, parents=Parents.ALL))
        steps = planner.image(wanted)
        done, self._done = self._done, frozenset()
        missing = tuple(step for step in steps if step not in done or feeding.is_fed(step))
        lent = {one: one.node for one in map(lending.device_of, wanted.lenders)}
        built = self._stack.up(missing, {**self.devices, **lent}, silent)
        self.devices = built.paths
        # Not before all are there: it takes a while to leave a parent that died. Nor while what is
        # wanted gives no answer, for then reads go on as they did.
        if wanted.parents is Parents.ALL and not built.unfed:
            self._stack.prune(wanted.image, self.steps, planner.spent(wanted))
        self._done = frozenset(step for step in steps if step.device not in built.lost)
        return built

    def take_down(self) -> None:
        """Take away all devices that the kernel may have of the image."""
        self._done, self.devices = frozenset(), {}
        image = self.wanted.image
        remains = planner.remains(self.wanted, self._stack.voids(image), *self._stack.paths(image))
        self._stack.down(remains)
