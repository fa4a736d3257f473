"""Takes VMs away that are there for a reader, such as who makes an image of one: it may die.

A reader opens the device more than once, as ``qemu-img`` does to find out what is in it. So a
device that is not open goes only after a while.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from virtman.errors import DeviceBusy, VirtmanError
from virtman.node.agent import Agent
from virtman.periodic import Periodic

LOG = logging.getLogger(__name__)

_LOOK = 5.0
_UNUSED_S = 60.0


class Temporaries:
    """Looks now and then who has the devices of temporary VMs open."""

    def __init__(self, agent: Agent, clock: Callable[[], float] = time.monotonic) -> None:
        self.agent = agent
        self._clock = clock
        # When each was seen first, or last with its device open.
        self._used: dict[str, float] = {}
        self._rounds = Periodic("temporaries", self.look, _LOOK)

    def start(self) -> None:
        """Begin."""
        self._rounds.start()

    def stop(self) -> None:
        """Look no more; the next agent does."""
        self._rounds.stop()

    def look(self) -> None:
        """Destroy temporary VMs whose devices nobody has had open for a while."""
        now = self._clock()
        there = [one for one in self.agent.records.all() if one.temporary]
        before, self._used = self._used, {}
        for one in there:
            is_open = self.agent.stores.devices.vm(one).is_open()
            self._used[one.vm] = now if is_open else before.get(one.vm, now)
            if now - self._used[one.vm] < _UNUSED_S:
                continue
            try:
                self.agent.destroy(one.vm)
                LOG.info("VM %s was temporary, and nobody reads it any more", one.vm)
            except DeviceBusy:
                self._used[one.vm] = now
            except VirtmanError as err:
                LOG.warning("temporary VM %s: %s", one.vm, err)
