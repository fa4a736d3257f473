"""A host: what it has of the image, what it waits for, and whom it owes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import simpy

from planning.simulation.network import Session
from planning.simulation.scenario import Design
from virtman.model.prefetch_order import Queue, queue
from virtman.model.prefetch_pace import Idle, Window
from virtman.model.read_counts import Count

_WAITED = 1  # the class of reads that took longer than a millisecond


class Host:
    """A host of the cluster, or the source, which has all units.

    Units are numbered in the order in which a boot reads them.

    :ivar asked: units that are on their way to it
    :ivar parents: in each stripe; None before it is placed
    :ivar sessions: from them
    :ivar placed: happens when it gets its first parent
    :ivar attached: happens when it has its devices
    :ivar ready: seconds after which its VMs were ready; None if they are not
    :ivar sent: bytes
    """

    def __init__(
        self, env: simpy.Environment, name: str, rack: int, units: int, stripes: int
    ) -> None:
        self.name = name
        self.rack = rack
        self.has = bytearray(units)
        self.asked: set[int] = set()
        self.parents: list[Host | None] = [None] * stripes
        self.sessions: list[Session | None] = [None] * stripes
        self.placed = env.event()
        self.attached = env.event()
        self.is_alive = True
        self.ready: float | None = None
        self.sent = 0.0
        self.ahead: Ahead | None = None
        self._env = env
        self._owed: dict[int, list[Session]] = {}
        self._waiting: dict[int, list[simpy.Event]] = {}

    def owe(self, unit: int, session: Session) -> None:
        """Note that a child wants a unit once it is here."""
        self._owed.setdefault(unit, []).append(session)

    def wait(self, unit: int) -> simpy.Event:
        """Return what happens when a unit is here."""
        came = self._env.event()
        self._waiting.setdefault(unit, []).append(came)
        return came

    def came(self, unit: int) -> list[Session]:
        """Take notice that a unit is here; return over which sessions it is to go on."""
        self.has[unit] = 1
        self.asked.discard(unit)
        for event in self._waiting.pop(unit, ()):
            event.succeed()
        if self.ahead is not None:
            self.ahead.came(unit)
        return [session for session in self._owed.pop(unit, ()) if session.is_open]


@dataclass
class _Lane:
    """A stripe: what comes next, how much may be in flight, and what is."""

    coming: Queue
    window: Window
    flying: set[int] = field(default_factory=set)


class Ahead:
    """What a host fetches ahead of its VMs: the agent's own order, windows and pace.

    :param stripes: the units of each
    :param ask: is called with each that is wanted
    """

    def __init__(
        self,
        host: Host,
        stripes: Sequence[Sequence[int]],
        design: Design,
        ask: Callable[[Host, int], None],
        dice: Random,
    ) -> None:
        self._host = host
        self._ask = ask
        self._waited = 0
        self._read_s = 0.0
        self._idle = Idle()
        self._lanes = [_Lane(queue(design.policy, dice), Window(design.window)) for _ in stripes]
        for lane, units in zip(self._lanes, stripes, strict=True):
            lane.coming.put(units)

    def begin(self) -> None:
        """Ask for the first units."""
        for lane in self._lanes:
            self._fill(lane)

    def came(self, unit: int) -> None:
        """Ask for more in the place of one that came."""
        for lane in self._lanes:
            if unit in lane.flying:
                lane.flying.discard(unit)
                lane.window.came()
                self._fill(lane)

    def read(self, seconds: float) -> None:
        """Take notice of how long a VM waited for a read."""
        self._waited += 1
        self._read_s += seconds

    def look(self) -> None:
        """Let windows follow how long VMs wait."""
        classes = [0] * len(Count().classes)
        classes[_WAITED] = self._waited
        read_s = self._idle.look({0: Count(seconds=self._read_s, classes=tuple(classes))})
        for lane in self._lanes:
            lane.window.demand(read_s, self._idle.seconds)
            self._fill(lane)

    def is_over(self) -> bool:
        """Tell whether all has come."""
        return all(self._host.has)

    def _fill(self, lane: _Lane) -> None:
        while len(lane.flying) < lane.window.size:
            unit = lane.coming.take()
            if unit is None:
                return
            if not self._host.has[unit]:
                lane.flying.add(unit)
                self._ask(self._host, unit)
