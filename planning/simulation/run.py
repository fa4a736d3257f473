"""A run: hosts join, their VMs boot, and some hosts die."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any

import simpy

from planning import placed
from planning.errors import check
from planning.simulation.feeding import Feeding
from planning.simulation.guest import Read, reads
from planning.simulation.host import Ahead, Host
from planning.simulation.network import Network
from planning.simulation.scenario import Scenario
from planning.simulation.wiring import OUTSIDE, Wiring
from virtman.model.profile import PIECE

_LOOK = 0.5  # seconds between two looks of an agent at what VMs read
_NEVER = 1e6  # seconds


@dataclass(frozen=True)
class Result:
    """What came of a run.

    :ivar ready_s: when the VMs of each host that lives were ready, after it began; ascending
    :ivar dead: hosts that died before
    :ivar source_sent: bytes, as what the busiest host sent
    :ivar into_racks: bytes that came into each rack
    :ivar waits: reads of VMs that waited
    :ivar rounds: how often links were shared out
    """

    scenario: Scenario
    ready_s: tuple[float, ...]
    dead: int
    source_sent: float
    busiest_sent: float
    into_racks: tuple[float, ...]
    waits: int
    longest_wait_s: float
    rounds: int

    @property
    def first_s(self) -> float:
        """When the first VMs were ready."""
        return self.ready_s[0]

    @property
    def median_s(self) -> float:
        """When half of them were."""
        return median(self.ready_s)

    @property
    def last_s(self) -> float:
        """When all were."""
        return self.ready_s[-1]


def run(scenario: Scenario) -> Result:
    """Simulate a scenario.

    :raises Invalid: if all hosts die, or VMs are not ready after 11 days
    """
    return _Run(scenario).result()


class _Run:
    def __init__(self, scenario: Scenario) -> None:
        cluster, design = scenario.cluster, scenario.design
        self._scenario = scenario
        self._dice = dice = Random(scenario.seed)  # noqa: S311 - no secret
        self._env = env = simpy.Environment()
        self._reads = reads(scenario, dice)
        units, stripes = self._reads[-1].wanted.stop, design.rules.stripes
        self._source = Host(env, "source", OUTSIDE, units, stripes)
        self._source.has = bytearray(b"\1" * units)
        self._source.attached.succeed()
        self._joining = placed.hosts(cluster.hosts, cluster.racks, dice)
        racks = {
            name: number
            for number, name in enumerate(sorted({str(one.rack) for one in self._joining}))
        }
        self._hosts = [
            Host(env, one.name, racks[str(one.rack)], units, stripes) for one in self._joining
        ]
        wiring = Wiring(cluster, dice)
        self._network = Network(
            env,
            wiring.capacity,
            most=design.window * PIECE / scenario.hop_s,
            hop_s=scenario.hop_s,
            size=scenario.unit * scenario.boot.sent,
            step_s=scenario.step_s,
        )
        self._feeding = Feeding(env, scenario, self._network, wiring, self._source, self._hosts)
        self._waits = 0
        self._longest = 0.0
        self._left = cluster.hosts
        self._over = env.event()

    def result(self) -> Result:
        """Run it, and return what came of it."""
        self._begin()
        self._env.run(until=self._over | self._env.timeout(_NEVER))
        ready = sorted(host.ready for host in self._hosts if host.ready is not None)
        check(
            not self._left,
            f"after {_NEVER:g} s, {self._left} hosts are not ready: give them less to do",
        )
        check(ready, "all hosts died before their VMs were ready: let fewer die")
        return Result(
            self._scenario,
            tuple(ready),
            sum(not host.is_alive for host in self._hosts),
            self._source.sent,
            max(host.sent for host in self._hosts),
            tuple(self._feeding.into_racks),
            self._waits,
            self._longest,
            self._network.rounds,
        )

    def _begin(self) -> None:
        scenario, count = self._scenario, len(self._hosts)
        begins = sorted(self._dice.uniform(0, scenario.joins_s) for _ in self._hosts)
        for number, begin in enumerate(begins):
            self._env.process(self._live(number, begin))
        dying = self._dice.sample(range(count), round(scenario.deaths * count))
        last = scenario.joins_s + scenario.design.attach_s + scenario.limit_s
        when = {number: self._dice.uniform(0, last) for number in dying}
        when |= dict.fromkeys(scenario.killed, scenario.killed_s)
        for number, second in when.items():
            self._env.process(self._die(self._hosts[number], second))

    def _live(self, number: int, begin: float) -> Generator[simpy.Event, Any, None]:
        """Join, attach, boot, and be done."""
        host = self._hosts[number]
        yield self._env.timeout(begin)
        if host.is_alive:
            self._feeding.join(self._joining[number])
            yield from self._attach(host, number)
        if host.is_alive and self._scenario.design.ahead:
            self._env.process(self._fetch_ahead(host))
        for read in self._reads:
            if host.is_alive:
                yield from self._read(host, read)
        yield self._env.timeout(self._scenario.boot.think_s * self._scenario.boot.tail)
        if host.is_alive:
            host.ready = self._env.now - begin
            self._done()

    def _attach(self, host: Host, number: int) -> Generator[simpy.Event, Any, None]:
        """Make the devices; where attaching cascades, once those of the parent are there."""
        design = self._scenario.design
        if design.cascades:
            yield host.placed
            # its parent may become another meanwhile, even one that waited for it
            while (parent := host.parents[0]) is not None and not parent.attached.triggered:
                yield parent.attached | self._env.timeout(_LOOK)
        first = design.attach_s if design.attach_first_s is None else design.attach_first_s
        share = number / max(1, len(self._hosts) - 1)
        yield self._env.timeout(first + (design.attach_s - first) * share)
        host.attached.succeed()

    def _read(self, host: Host, read: Read) -> Generator[simpy.Event, Any, None]:
        yield self._env.timeout(read.pause_s)
        missing = [unit for unit in read.wanted if not host.has[unit]]
        if not missing:
            return
        begin = self._env.now
        coming = [host.wait(unit) for unit in missing]
        for unit in (*missing, *range(read.wanted.stop, read.ahead)):
            self._feeding.ask(host, unit)
        yield self._env.all_of(coming)
        waited = self._env.now - begin
        self._waits += 1
        self._longest = max(self._longest, waited)
        if host.ahead is not None:
            host.ahead.read(waited)

    def _fetch_ahead(self, host: Host) -> Generator[simpy.Event, Any, None]:
        host.ahead = ahead = Ahead(
            host,
            self._feeding.stripes(),
            self._scenario.design,
            self._feeding.ask,
            self._dice,
        )
        ahead.begin()
        while host.is_alive and not ahead.is_over():
            yield self._env.timeout(_LOOK)
            ahead.look()

    def _die(self, host: Host, when: float) -> Generator[simpy.Event, Any, None]:
        yield self._env.timeout(when)
        if host.ready is None and host.is_alive:
            yield from self._feeding.die(host)
            self._done()

    def _done(self) -> None:
        self._left -= 1
        if not self._left:
            self._over.succeed()
