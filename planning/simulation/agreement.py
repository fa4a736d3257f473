"""What the simulator says of cases whose outcome is known otherwise.

Lab figures are those of contributor/bench.rst, of runs on one machine with two processors; what
a run took to attach is put in as it was measured, for that is a matter of these processors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from planning import distribution, playback, policy
from planning.distribution import Network
from planning.simulation.run import run
from planning.simulation.scenario import FOREST, NOTICE_S, Boot, Cluster, Design, Scenario
from virtman.model.profile import PIECE
from virtman.model.sizes import READ_AHEAD
from volt.placement.rules import Rules, Shape

MBIT = 1e6 / 8
STAR = Rules(Shape.STAR, stripes=1, fanout=0)
TREE = Rules(Shape.TREE, stripes=1, fanout=2)
CHAIN = Rules(Shape.CHAIN, stripes=1, fanout=1)

GROUPS = ("lab", "figure 5", "model", "simgrid")
"""Where references are from."""

PROCESSORS = 55e6
"""Bytes a second that the bed's two processors can move: 3.61 s for 100 MB at both ends of a hop
(``bench hops``)."""


@dataclass(frozen=True)
class Case:
    """Something whose outcome is known.

    :ivar group: one of ``GROUPS``
    :ivar reference: seconds that are known
    :ivar scenario: of which the last VM is compared
    :ivar less: seconds of it that are not part of what is compared
    """

    group: str
    name: str
    reference: float
    scenario: Scenario
    less: float = 0.0


@dataclass(frozen=True)
class Agreement:
    """A case, and what the simulator says of it; seconds, and their difference over the known."""

    case: str
    ours: float
    reference: float

    @property
    def difference(self) -> float:
        """How much longer ours is, over the reference."""
        return self.ours / self.reference - 1


def compare(case: Case) -> Agreement:
    """Simulate a case."""
    last = run(case.scenario).last_s - case.less
    return Agreement(f"{case.group}: {case.name}", last, case.reference)


def cases() -> list[Case]:
    """Return all cases, those of the lab first."""
    return [*_replays(), *_in_order(), *_figure_5(), *_model(), SIMGRID]


@dataclass(frozen=True)
class Replay:
    """A run of ``bench fanout --workload replay``.

    :ivar mbit: of each link; million bits a second
    :ivar how: one of ``HOW``
    :ivar own_s: seconds of the boot when all is there
    :ivar attached: seconds until the first and the last node had their devices
    :ivar last_s: seconds until the last VM had booted
    """

    nodes: int
    mbit: float
    how: str
    working_set: float
    own_s: float
    attached: tuple[float, float]
    last_s: float

    @property
    def case(self) -> Case:
        """The same as a case."""
        first, last = self.attached
        design = Design(
            rules=HOW[self.how],
            ahead=self.how == "prefetch",
            window=8,
            attach_s=last,
            attach_first_s=first,
        )
        boot = Boot(self.working_set, self.own_s, tail=_TAIL, sent=_SENT)
        cluster = Cluster(self.nodes, self.mbit * MBIT, machine=PROCESSORS)
        name = f"{self.nodes} nodes, {self.mbit:g} Mbit/s, {self.how}"
        return Case("lab", name, self.last_s, Scenario(cluster, boot, design, piece=READ_AHEAD))


HOW = {"prefetch": FOREST, "no prefetch": FOREST, "tree": TREE, "star": STAR, "chain": CHAIN}
"""The trees of each way to boot; only with *prefetch* something is fetched ahead."""

_TAIL = 0.1  # of a boot: ``floor_s`` less what the link needs, in the runs at 25 Mbit/s
WARM_S = 3.0
"""Seconds that a warm VM waits for its devices, as runs of seven nodes show."""

_SENT = 1.10  # what the source sent over what was read, with three to seven nodes


def _replays() -> Iterator[Case]:
    # Where links decide, a run does not say what a boot takes when all is there: it is what the
    # last warm VM took, less WARM_S.
    for row in (
        Replay(3, 25, "prefetch", 73.0e6, 32.9, (3.6, 4.9), 40.1),
        Replay(3, 25, "no prefetch", 73.0e6, 32.9, (3.2, 4.0), 56.0),
        Replay(7, 25, "prefetch", 73.0e6, 19.0, (6.7, 10.1), 41.3),
        Replay(7, 25, "no prefetch", 73.0e6, 18.8, (6.1, 11.1), 55.3),
        Replay(7, 25, "prefetch", 73.4e6, 19.2, (5.4, 13.8), 42.2),
        Replay(7, 25, "no prefetch", 73.4e6, 18.8, (6.3, 8.9), 53.8),
        Replay(3, 100, "prefetch", 73.6e6, 9.9, (5.3, 7.9), 22.3),
        Replay(3, 100, "no prefetch", 73.6e6, 9.9, (5.2, 6.0), 23.9),
        Replay(7, 100, "prefetch", 73.4e6, 19.5, (5.6, 16.7), 43.6),
        Replay(7, 100, "no prefetch", 73.4e6, 19.5, (6.0, 10.1), 38.2),
        Replay(7, 100, "star", 73.4e6, 19.5, (6.2, 8.8), 63.3),
        Replay(15, 25, "no prefetch", 73.0e6, 28.3, (12.9, 26.9), 88.6),
        Replay(15, 8, "prefetch", 73.0e6, 28.9, (15.0, 28.9), 121.8),
        Replay(15, 8, "no prefetch", 73.0e6, 27.0, (14.0, 25.1), 149.8),
        Replay(3, 25, "tree", 73.1e6, 47.0, (4.1, 4.7), 88.3),
        Replay(7, 25, "tree", 73.1e6, 28.7, (8.0, 11.4), 82.3),
    ):
        yield row.case


@dataclass(frozen=True)
class InOrder:
    """A run of ``bench fanout``: all nodes read the same in order.

    :ivar link: bytes a second
    :ivar size: bytes that each reads
    :ivar last_s: seconds until the last node had all
    :ivar killed_s: seconds after which the first node of a tree lost its power, if one did, and
    :ivar moved_s: from then until all of the others read from new parents
    """

    name: str
    rules: Rules
    nodes: int
    link: float
    size: float
    last_s: float
    killed_s: float | None = None
    moved_s: float = 0.0

    @property
    def case(self) -> Case:
        """The same as a case."""
        others = (_READERS - 1) * _READ / self.rules.stripes
        boot = Boot(self.size, 0.0, at_once=_READ, behind=others, sent=1.06)
        design = Design(rules=self.rules, ahead=False, attach_s=_JOIN_S)
        scenario = Scenario(Cluster(self.nodes, self.link), boot, design)
        if self.killed_s is not None:
            # who joins first is the first in one of the trees, there as here
            scenario = replace(
                scenario,
                design=replace(design, connect_s=max(0.0, self.moved_s - NOTICE_S)),
                killed=(0,),
                killed_s=_JOIN_S + self.killed_s,
            )
        name = f"{self.nodes} nodes read in order, {self.name}"
        return Case("lab", name, self.last_s, scenario, _JOIN_S)


def _in_order() -> Iterator[Case]:
    size, link = 24 * 2**20, 25 * MBIT
    for name, rules, over in (("forest", FOREST, 1.13), ("tree", TREE, 2.15), ("star", STAR, 7.41)):
        yield InOrder(name, rules, 7, link, size, over * size / link).case
    yield InOrder("forest, one killed", FOREST, 7, link, size, 12.67, 4.03, 9.03).case


_JOIN_S = 1.0  # until all have their places
_READ = 256 * 1024  # bytes, so many of them at once; the next is read once the first is there
_READERS = 8


def figure_5(servers: int) -> Scenario:
    """Return a boot of the VirtMan paper (5.2): its binary tree, in which attaching takes 10 s.

    The paper does not say what a boot reads, nor how long it takes by itself. VMTorrent's Table 2
    has 295 to 350 MB for another Windows; 23 s is what is left of 60 s at ten servers.
    """
    racks = math.ceil(servers / 25)
    cluster = Cluster(servers, 1000 * MBIT, racks, uplink=1000 * MBIT)
    boot = Boot(320e6, 23.0, vms=10)
    design = Design(TREE, ahead=False, knows_racks=False, attach_s=10.0, cascades=True)
    return Scenario(cluster, boot, design, piece=8 * PIECE)


def _figure_5() -> Iterator[Case]:
    for servers, reference in ((10, 60.0), (100, 116.0)):
        yield Case("figure 5", f"{servers} servers", reference, figure_5(servers))


def _model() -> Iterator[Case]:
    """Yield VMTorrent's server (Figure 8, cs_d), by its equations 4 and 9."""
    think = 20.0
    for hosts in (4, 16, 64):
        net = Network(100 * MBIT, 0.0, 0.0, PIECE)
        ideal = playback.regular(32 * 2**20, think, PIECE)
        known = policy.demand(ideal, distribution.central(net, hosts)).end
        boot = Boot(32 * 2**20, think, at_once=PIECE, behind=0.0, sent=1.0)
        scenario = Scenario(Cluster(hosts, net.link), boot, Design(STAR, ahead=False, attach_s=0.0))
        yield Case("model", f"one server for {hosts} hosts", known, scenario)


def broadcast(hosts: int, units: int) -> Scenario:
    """Return all hosts reading all units at once, over links of 100 Mbit/s."""
    boot = Boot(float(units * PIECE), 0.0, at_once=float(units * PIECE), behind=0.0, sent=1.0)
    design = Design(ahead=False, attach_s=_JOIN_S)
    return Scenario(Cluster(hosts, 100 * MBIT), boot, design, piece=PIECE)


SIMGRID = Case("simgrid", "255 hosts, 64 pieces", 0.4089, broadcast(255, 64), _JOIN_S)
"""What SimGrid 3.32 says of these trees, with fair shares and no latency; ``tools/test.sh
simulation`` asks it again where Debian's python3-simgrid is installed."""


def table(found: Iterable[Agreement]) -> list[tuple[str, str, str, str]]:
    """Return a row for each: case, ours, reference, difference."""
    return [
        (one.case, f"{one.ours:.2f} s", f"{one.reference:.2f} s", f"{one.difference:+.1%}")
        for one in found
    ]
