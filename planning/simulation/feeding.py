"""Who feeds whom: Volt's own placement, and units on their way through it.

A unit is asked for on the way up to the first host that has it, once on each link; on the way
down each host passes it on once it is all there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import simpy

from planning import placed
from planning.simulation.host import Host
from planning.simulation.network import Network
from planning.simulation.scenario import NOTICE_S, Scenario
from planning.simulation.wiring import Wiring
from volt.placement import shapes
from volt.placement.links import Newcomer

_BATCH = 0.2  # seconds for which Volt gathers joins


class Feeding:
    """The trees of a run.

    :param hosts: in the order of their links in the wiring; the source is not one of them
    :ivar into_racks: bytes that came into each rack
    """

    def __init__(
        self,
        env: simpy.Environment,
        scenario: Scenario,
        network: Network,
        wiring: Wiring,
        source: Host,
        hosts: Sequence[Host],
    ) -> None:
        self.into_racks = [0.0] * scenario.cluster.racks
        self._env = env
        self._scenario = scenario
        self._network = network
        self._wiring = wiring
        self._source = source
        self._hosts = {host.name: host for host in hosts}
        self._number = {name: number for number, name in enumerate(self._hosts)}
        self._number[source.name] = -1
        self._stripe = [scenario.stripe(unit) for unit in range(len(source.has))]
        self._places = shapes.empty(scenario.design.rules)
        self._coming: list[placed.Host] = []
        self._gone: list[Host] = []
        env.process(self._place())

    def stripes(self) -> list[list[int]]:
        """Return the units of each stripe."""
        found: list[list[int]] = [[] for _ in range(self._scenario.design.rules.stripes)]
        for unit, stripe in enumerate(self._stripe):
            found[stripe].append(unit)
        return found

    def join(self, host: placed.Host) -> None:
        """Have a host placed."""
        self._coming.append(host)

    def ask(self, host: Host, unit: int) -> None:
        """Ask for a unit, once, and have those above ask for it who lack it too."""
        asking: Host | None = host
        while asking is not None and not (asking.has[unit] or unit in asking.asked):
            asking.asked.add(unit)
            asking = self._request(asking, unit)

    def die(self, host: Host) -> Generator[simpy.Event, Any, None]:
        """Have a host fall silent.

        What is on its way from it is lost. Its children notice, and go on with their standby until
        Volt has placed them anew.
        """
        host.is_alive = False
        fed = [
            (child, stripe)
            for child in self._hosts.values()
            for stripe, parent in enumerate(child.parents)
            if parent is host
        ]
        below = [child.sessions[stripe] for child, stripe in fed]
        for session in (*host.sessions, *below):
            if session is not None:
                self._network.close(session)
        yield self._env.timeout(NOTICE_S)
        self._gone.append(host)
        for child, stripe in fed:
            standby = host.parents[stripe]
            if standby is None or not (standby.is_alive and child.is_alive):
                continue
            if child.parents[stripe] is host:
                self._feed(child, standby, stripe)

    def _place(self) -> Generator[simpy.Event, Any, None]:
        """Place who joins, and anew whom those fed who are gone."""
        while True:
            yield self._env.timeout(_BATCH)
            for host in self._gone:
                if self._places.holds(host.name):
                    self._places.leave(host.name)
            for one in self._coming:
                self._places.join(self._newcomer(one))
            if self._gone or self._coming:
                delay_s = self._scenario.design.connect_s if self._gone else 0.0
                self._env.process(self._connect(delay_s))
            self._gone, self._coming = [], []

    def _newcomer(self, host: placed.Host) -> Newcomer:
        """Return what a host tells Volt of itself."""
        design = self._scenario.design
        speed = self._wiring.speed(self._number[host.name])
        return Newcomer(
            host.name,
            host.rack if design.knows_racks else None,
            speed=speed if design.knows_speeds else None,
        )

    def _connect(self, delay_s: float) -> Generator[simpy.Event, Any, None]:
        """Have all hosts read from where Volt has placed them."""
        yield self._env.timeout(delay_s)
        for stripe in range(self._scenario.design.rules.stripes):
            for node in self._places.nodes(stripe):
                host = self._hosts[node.host]
                parent = self._source if node.parent is None else self._hosts[node.parent]
                if host.parents[stripe] is not parent and parent.is_alive and host.is_alive:
                    self._feed(host, parent, stripe)

    def _feed(self, host: Host, parent: Host, stripe: int) -> None:
        """Have a host read a stripe from another parent, and ask again for what is missing."""
        before = host.sessions[stripe]
        if before is not None:
            self._network.close(before)
        ends = self._number[parent.name], self._number[host.name]
        links = self._wiring.between(*ends, (parent.rack, host.rack))
        host.parents[stripe] = parent
        host.sessions[stripe] = self._network.open(links, self._deliver(host, parent))
        for unit in sorted(one for one in host.asked if self._stripe[one] == stripe):
            above = self._request(host, unit)
            if above is not None:
                self.ask(above, unit)
        if not host.placed.triggered:
            host.placed.succeed()

    def _request(self, host: Host, unit: int) -> Host | None:
        """Ask a host's parent for a unit; return the parent if it has to ask in turn."""
        stripe = self._stripe[unit]
        parent, session = host.parents[stripe], host.sessions[stripe]
        if parent is None or session is None or not session.is_open:
            return None  # asked again once there is a parent
        if parent.has[unit]:
            self._network.send(session, unit)
            return None
        parent.owe(unit, session)
        return parent

    def _deliver(self, host: Host, parent: Host) -> Callable[[int], None]:
        size = self._scenario.unit * self._scenario.boot.sent

        def deliver(unit: int) -> None:
            parent.sent += size
            if parent.rack != host.rack:
                self.into_racks[host.rack] += size
            for session in host.came(unit):
                self._network.send(session, unit)

        return deliver
