"""What an operator has to choose for boots of a size, with reasons.

Prefetch and pauses overlap, so a boot takes the longest of what its guest computes and of what
its bytes take on each kind of link. Which of these is the longest is what limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from planning import measured, placed, trees
from planning.distribution import Network
from planning.errors import check
from planning.trees import Trees
from virtman.model.profile import PIECE
from volt.placement.rules import Rules, Shape

_PLACED = 2_000  # hosts; of more, links go from rack to rack in proportion
_SLACK = 0.01  # of the seconds: another stripe has to save more
_HASHES = 1 / 128  # of an image
_CHOICES = (Trees(1, 1), Trees(1, 2), Trees(2, 2), Trees(3, 3), Trees(4, 4))


@dataclass(frozen=True)
class Site:
    """What an operator has, and wants.

    :ivar link: bytes a second of a host's network card, each way
    :ivar uplink: bytes a second of a rack's uplinks together, each way; of no use with one rack
    :ivar source: bytes a second of the source's link
    :ivar others: share of links and uplinks that other traffic needs
    :ivar image: bytes
    :ivar working_set: bytes of it that a boot reads
    :ivar images: that nodes have in use at the same time
    :ivar boot_s: seconds of a boot whose image is all there
    :ivar wanted_s: seconds after which all VMs shall be ready
    :ivar attach_s: seconds until a node has an image's devices
    """

    hosts: int
    racks: int
    link: float
    uplink: float
    source: float
    others: float
    image: float
    working_set: float
    images: int
    vms: int
    boot_s: float
    wanted_s: float
    attach_s: float = measured.BED.attach_s

    def __post_init__(self) -> None:
        for name in ("hosts", "racks", "images", "vms"):
            check(getattr(self, name) >= 1, f"{getattr(self, name)} {name}: take at least one")
        for name in ("link", "uplink", "source"):
            check(getattr(self, name) > 0, f"the {name} carries nothing: it must have a rate")
        check(
            self.racks <= self.hosts, f"{self.racks} racks for {self.hosts} hosts: some are empty"
        )
        check(0 <= self.others < 1, f"others take {self.others:g} of links: take less than 1")
        check(self.working_set >= PIECE, f"the working set is less than a piece of {PIECE} bytes")
        check(
            self.working_set <= self.image,
            "the working set is larger than the image: it is what a boot reads of it",
        )
        check(self.wanted_s > 0, "the seconds that are wanted must be more than 0")
        check(self.boot_s >= 0 and self.attach_s >= 0, "seconds cannot be less than 0")

    @property
    def network(self) -> Network:
        """What the model may use of the links of hosts."""
        return Network(self.usable(self.link), 0.0, measured.BED.hop_s, PIECE)

    def usable(self, rate: float) -> float:
        """Return what others leave of a link, as busy as links get."""
        return rate * (1 - self.others) * measured.BUSY

    def priced(self, rate: float) -> float:
        """Return which link has that much to use."""
        return rate / (1 - self.others) / measured.BUSY


@dataclass(frozen=True)
class Answer:
    """What is to be chosen or had; ``value`` in the unit, None if there is nothing to choose."""

    what: str
    value: float | None
    unit: str
    reason: str


@dataclass(frozen=True)
class Limit:
    """What a boot waits for; ``seconds`` are from when VMs were asked for."""

    what: str
    seconds: float
    reason: str


class Sizing:
    """The answers for a site.

    :ivar trees: what is chosen
    :ivar last_s: seconds until the last VM is ready
    :ivar limits: what it waits for, the longest first
    :raises Invalid: if not even the devices can be there in the seconds that are wanted
    """

    def __init__(self, site: Site) -> None:
        self.trees = min(_good_enough(site), key=lambda one: (one.fanout == 1, one.stripes))
        self._site = site
        self._begin = site.attach_s + trees.lag(self.trees, site.network, site.hosts)
        self._left = site.wanted_s - self._begin
        check(
            self._left > 0,
            f"{site.wanted_s:g} s are over before hosts have their devices, which takes"
            f" {self._begin:.1f} s: want more seconds",
        )
        self._through = _sets_through_uplink(site, self.trees) if site.racks > 1 else 0.0
        self.limits = sorted(self._limits(), key=lambda one: -one.seconds)
        self.last_s = self.limits[0].seconds

    @property
    def is_reached(self) -> bool:
        """Whether that is what is wanted."""
        return self.last_s <= self._site.wanted_s

    def answers(self) -> list[Answer]:
        """Return what to choose and to have."""
        racks = self._racks() if self._site.racks > 1 else []
        return [*self._trees(), *racks, *self._rates(), *self._caches()]

    def _limits(self) -> Iterator[Limit]:
        site, begin = self._site, self._begin
        received, sent = measured.SENT * site.working_set, measured.SOURCE_SENT * site.working_set
        capacity = trees.capacity(self.trees, site.network)
        yield Limit("guest", begin + site.boot_s, "what a boot computes if nothing waits")
        yield Limit(
            "host links",
            begin + received / capacity,
            f"{_mib(received)} to each host at {_mbit(site.link)}",
        )
        yield Limit(
            "source",
            begin + sent / site.usable(site.source),
            f"{_mib(sent)} from it at {_mbit(site.source)}",
        )
        if site.racks > 1:
            through = self._through * received
            yield Limit(
                "uplinks", begin + through / site.usable(site.uplink),
                f"{_mib(through)} through that of a rack at {_mbit(site.uplink)}",
            )  # fmt: skip

    def _trees(self) -> list[Answer]:
        site, k, f = self._site, self.trees.stripes, self.trees.fanout
        tree, chain = _arrived(site, Trees(1, 2)), _arrived(site, Trees(1, 1))
        return [
            Answer(
                "stripes", k, "",
                f"so all bytes are there after {_arrived(site, self.trees):.1f} s; with one tree of"
                f" fan-out 2, whose inner hosts send them twice, after {tree:.1f} s",
            ),
            Answer(
                "fan-out", f, "",
                f"an inner host then sends as much as it receives; the farthest host is"
                f" {trees.depth(self.trees, site.hosts)} hops away, in a chain {site.hosts}"
                f" ({chain:.1f} s)",
            ),
        ]  # fmt: skip

    def _racks(self) -> list[Answer]:
        site = self._site
        in_rack = math.ceil(site.hosts / site.racks)
        least = self._through * measured.SENT * site.working_set / self._left
        return [
            Answer(
                "working sets through an uplink", self._through, "",
                f"one way, by where Volt places {in_rack} hosts a rack: set [agent] rack on all",
            ),
            Answer(
                "uplink, at least", site.priced(least), "bytes/s",
                f"so that these pass within {site.wanted_s:g} s",
            ),
            self._cap(in_rack),
        ]  # fmt: skip

    def _cap(self, in_rack: int) -> Answer:
        """Return how fast a rack's hosts may fetch ahead, together."""
        site = self._site
        cap = site.usable(site.uplink) * in_rack / (self._through * measured.SENT)
        if site.others and cap < in_rack * site.link:
            reason = (
                "volt-manage cap set --rack: what its hosts fetch ahead then leaves"
                f" {site.others:.0%} of the uplink to others"
            )
            return Answer("cap of a rack", cap, "bytes/s", reason)
        return Answer("cap of a rack", None, "bytes/s", "the uplinks have room without one")

    def _rates(self) -> list[Answer]:
        site = self._site
        used = trees.capacity(self.trees, site.network) / site.network.link
        link = measured.SENT * site.working_set / self._left / used
        sent = measured.SOURCE_SENT * site.working_set
        return [
            Answer(
                "host link, at least", site.priced(link), "bytes/s",
                f"so that the working set comes within {site.wanted_s:g} s",
            ),
            Answer(
                "source sends", sent, "bytes",
                f"the working set once, with headers and hashes, for {site.hosts} hosts as for one",
            ),
            Answer(
                "source sustains, at least", sent / self._left, "bytes/s",
                "the same within that time, by its disk and its link",
            ),
        ]  # fmt: skip

    def _caches(self) -> list[Answer]:
        site = self._site
        each = math.ceil(site.vms / site.hosts)
        most = site.images * site.image * (1 + _HASHES)
        memory = site.working_set + site.images * measured.KERNEL_BYTES
        return [
            Answer(
                "cache of a host, at least", site.images * site.working_set, "bytes",
                f"what {site.images} images are read for: its {each} VMs read the same copy",
            ),
            Answer(
                "cache of a host, at most", most, "bytes",
                "if VMs read all of these images by and by, and their hash trees",
            ),
            Answer(
                "memory of a host", memory, "bytes",
                "what is fetched ahead is in the page cache until it is read, and the devices of"
                " an image take 6 MB",
            ),
        ]  # fmt: skip


def _good_enough(site: Site) -> list[Trees]:
    """Return those in which all bytes arrive about as soon as in the best."""
    enough = min(_arrived(site, one) for one in _CHOICES) * (1 + _SLACK)
    return [one for one in _CHOICES if _arrived(site, one) <= enough]


def _arrived(site: Site, choice: Trees) -> float:
    """Return the seconds until the farthest host has the working set."""
    received = measured.SENT * site.working_set
    lag = trees.lag(choice, site.network, site.hosts)
    return received / trees.capacity(choice, site.network) + lag


def _sets_through_uplink(site: Site, choice: Trees) -> float:
    """Return how many working sets the uplink that has most to carry carries one way."""
    count = min(site.hosts, _PLACED)
    racks = max(2, round(site.racks * count / site.hosts))
    joining = placed.hosts(count, racks, Random(0))  # noqa: S311 - no secret
    rules = Rules(Shape.FOREST, choice.stripes, choice.fanout)
    found = placed.crossings(placed.place(joining, rules), joining, choice.stripes)
    return max(found.into, found.out_of) / choice.stripes


def _mib(amount: float) -> str:
    return f"{amount / 2**20:,.0f} MiB"


def _mbit(rate: float) -> str:
    return f"{rate * 8 / 1e6:,.0f} Mbit/s"
