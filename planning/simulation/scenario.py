"""What is simulated: hosts, links, an image and its boot, and what goes wrong meanwhile."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planning import measured
from planning.errors import Invalid, check
from virtman.model import pieces
from virtman.model.prefetch_order import Policy
from virtman.model.profile import PIECE
from virtman.model.sizes import READ_AHEAD, REGION
from volt.errors import ShapeInvalid
from volt.placement import shapes
from volt.placement.rules import Rules, Shape

NOTICE_S = 1.25
"""Seconds until a child gives up a parent that died: its kernel has retransmitted for one second,
and the agent looks four times a second (architecture, *Dead parents*)."""

CONNECT_S = 1.0
"""Seconds until hosts have connected a parent that Volt gave them, if nothing holds them up."""

FOREST = Rules(Shape.FOREST, stripes=2, fanout=2)


@dataclass(frozen=True)
class Cluster:
    """Hosts and links; rates in bytes a second, each way.

    :ivar uplink: of all uplinks of a rack together
    :ivar core: of what is between racks and the source, in all; infinite if it never limits
    :ivar source: of the source's link; None: as a host's
    :ivar stragglers: share of the hosts whose link is ten times slower
    :ivar others: share of all links that other traffic takes
    :ivar machine: what all hosts together can move, if they share the processors of one machine as
        those of the test bed do
    """

    hosts: int
    link: float
    racks: int = 1
    uplink: float = math.inf
    core: float = math.inf
    source: float | None = None
    stragglers: float = 0.0
    others: float = 0.0
    machine: float = math.inf

    def __post_init__(self) -> None:
        check(self.hosts >= 1, f"{self.hosts} hosts: take at least one")
        check(1 <= self.racks <= self.hosts, f"{self.racks} racks for {self.hosts} hosts")
        for name in ("link", "uplink", "core", "machine"):
            check(getattr(self, name) > 0, f"the {name} carries nothing: it must have a rate")
        check(self.source_link > 0, "the source carries nothing: it must have a rate")
        check(self.link < math.inf, "a host's link without a limit: give it a rate")
        check(0 <= self.stragglers <= 1, "the share of stragglers is from 0 to 1")
        check(0 <= self.others < 1, "the share of other traffic is less than 1")

    @property
    def source_link(self) -> float:
        """Bytes a second of the source's link."""
        return self.link if self.source is None else self.source


@dataclass(frozen=True)
class Boot:
    """What each host's VMs do.

    :ivar working_set: bytes
    :ivar think_s: seconds of a boot whose image is all there
    :ivar tail: share of these after the last read
    :ivar vms: on each host; they read the same at the same time, so once
    :ivar at_once: bytes that a read wants
    :ivar behind: bytes behind them that page caches read ahead meanwhile, in each stripe's own
    :ivar sent: bytes that links carry for each byte that is read
    """

    working_set: float
    think_s: float
    tail: float = 0.0
    vms: int = 1
    at_once: float = 192 * 1024
    behind: float = READ_AHEAD
    sent: float = measured.SENT

    def __post_init__(self) -> None:
        check(self.working_set > 0, "the working set is empty: a boot reads something")
        check(self.think_s >= 0, "a boot cannot take less than 0 seconds")
        check(self.vms >= 1, f"{self.vms} VMs on a host: take at least one")
        check(0 <= self.tail <= 1, "the share of the tail is from 0 to 1")
        check(self.at_once > 0, "a read wants something")
        check(self.behind >= 0, "what is read ahead has at least 0 bytes")
        check(self.sent >= 1, f"links carry {self.sent:g} bytes for each that is read: at least 1")


@dataclass(frozen=True)
class Design:
    """How hosts are fed.

    :ivar ahead: whether they fetch ahead of their VMs
    :ivar window: pieces in flight for each stripe, at most
    :ivar attach_s: seconds until the last host has its devices, and
    :ivar attach_first_s: until the first one has, if they take processors from each other
    :ivar connect_s: seconds until hosts read from others in the place of one that died, from the
        moment at which they gave that one up
    :ivar knows_racks: whether Volt is told the racks, and
    :ivar knows_speeds: whether it is told how fast the links of hosts are
    :ivar cascades: whether a host can only be attached when its parent is, as in the VirtMan
        paper; else all are attached at once
    """

    rules: Rules = FOREST
    ahead: bool = True
    window: int = 2
    policy: Policy = Policy.IN_ORDER
    knows_racks: bool = True
    knows_speeds: bool = True
    attach_s: float = measured.BED.attach_s
    attach_first_s: float | None = None
    connect_s: float = CONNECT_S
    cascades: bool = False

    def __post_init__(self) -> None:
        check(self.window >= 1, f"a window of {self.window} pieces: take at least one")
        check(self.attach_s >= 0, "attaching cannot take less than 0 seconds")
        check(self.connect_s >= 0, "connecting cannot take less than 0 seconds")
        try:
            shapes.check(self.rules)
        except ShapeInvalid as err:
            raise Invalid(str(err)) from err


@dataclass(frozen=True)
class Scenario:
    """All that decides about a run.

    :ivar joins_s: seconds over which hosts begin, at random moments
    :ivar deaths: share of the hosts that die before their VMs are ready, at random moments
    :ivar killed: numbers of hosts, in the order in which they join, that die at ``killed_s``
    :ivar piece: bytes that are sent on as a whole; 0: 64 KiB, or more if there are many hosts
    :ivar hop_s: seconds that a piece takes from host to host beside what links take
    """

    cluster: Cluster
    boot: Boot
    design: Design = Design()
    joins_s: float = 0.0
    deaths: float = 0.0
    killed: tuple[int, ...] = ()
    killed_s: float = 0.0
    piece: float = 0.0
    hop_s: float = measured.BED.hop_s
    seed: int = 0

    def __post_init__(self) -> None:
        check(self.joins_s >= 0, "hosts cannot begin before 0 seconds")
        check(0 <= self.deaths < 1, "the share of deaths is less than 1")
        check(self.hop_s > 0, "a hop takes some time")
        check(self.piece >= 0, "a piece has at least 0 bytes")
        for one in self.killed:
            check(0 <= one < self.cluster.hosts, f"there is no host {one} to be killed")
        size = self.boot.working_set
        check(size >= self.unit, f"the working set is less than a piece of {self.unit:,.0f} bytes")
        check(self.boot.think_s <= _LONGEST_S, f"a boot takes at most {_LONGEST_S:,} s")
        cluster = self.cluster
        for name, rate in (
            ("a host's link", cluster.link),
            ("an uplink", cluster.uplink),
            ("the core", cluster.core),
            ("the source's link", cluster.source_link),
        ):
            seconds = size / rate / (1 - cluster.others)
            check(
                seconds <= _LONGEST_S,
                f"over {name} alone, the working set takes {seconds:,.0f} s, but at most"
                f" {_LONGEST_S:,} are simulated: give it a higher rate",
            )

    @property
    def limit_s(self) -> float:
        """Seconds that no boot could be faster than: the link's time for the set, or its own."""
        return max(self.boot.working_set / self.cluster.link, self.boot.think_s)

    @property
    def unit(self) -> float:
        """Bytes that are sent on as a whole."""
        return self.piece or max(PIECE, self.boot.working_set / _units(self.cluster.hosts))

    def stripe(self, unit: int) -> int:
        """Return the stripe of a unit: regions alternate, in the order in which they are read."""
        offset = int(unit * self.unit)
        stripes = self.design.rules.stripes
        return pieces.stripe(offset, stripes) if self.unit < REGION else unit % stripes

    @property
    def step_s(self) -> float:
        """Seconds for which rates stay as they are; with few hosts they are exact."""
        return 0.0 if self.cluster.hosts <= _EXACT else self.limit_s / _STEPS


_LONGEST_S = 6 * 3600  # of a boot: simulating more takes too long, and nobody waits so long
_EXACT = 16  # hosts
_STEPS = 4000  # of a boot
_SENT = 400_000  # units, to all hosts together
_FEWEST = 128  # units of a working set


def _units(hosts: int) -> int:
    """Return into how many units a working set is cut at most: the more hosts, the fewer."""
    return max(_FEWEST, _SENT // hosts)
