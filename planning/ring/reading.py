"""What reads cost that go on and on, by who answers them, if caches are smaller than images."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from random import Random

from planning import placed
from planning.errors import check
from planning.ring import v_nodes
from virtman.model import keeping
from volt.placement import shapes
from volt.placement.rules import Rules, Shape

GROUP = 64
"""Hosts of a ring, at most; more hosts are in several rings."""

_PREFIX = "host"
_WARMING = 4  # times that each host reads as much as the image has before reads count
_IN_RACK, _FAR = 1, 3  # switches on the way


@dataclass(frozen=True)
class Site:
    """Hosts whose VMs read one image again and again.

    :ivar racks: over which hosts are spread in turn
    :ivar regions: that the image has
    :ivar cache: regions that each host's cache holds
    :ivar skew: how much more often some regions are read than others: region n as often as
        1 / n ** skew; 0 is all as often
    """

    hosts: int
    regions: int
    cache: int
    racks: int = 1
    skew: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        check(self.hosts >= 1, "there is no host")
        check(1 <= self.racks <= self.hosts, f"{self.hosts} hosts cannot fill {self.racks} racks")
        check(self.regions >= 1, "the image has nothing to read")
        check(self.cache >= 1, "a cache that holds nothing is none")
        check(self.skew >= 0, f"a skew of {self.skew:g}: rare regions would be read most")

    @property
    def names(self) -> list[str]:
        """All hosts."""
        return [f"{_PREFIX}{one:05}" for one in range(self.hosts)]

    def rack(self, host: str) -> int:
        """Return the number of a host's rack."""
        return int(host.removeprefix(_PREFIX)) % self.racks

    def reads(self) -> Iterable[tuple[str, int]]:
        """Return who reads what, one read after another."""
        dice = Random(self.seed)  # noqa: S311 - no secret
        order = list(range(self.regions))
        dice.shuffle(order)
        weights = list(accumulate((one + 1) ** -self.skew for one in range(self.regions)))
        names = self.names
        for _ in range((_WARMING + 1) * self.regions * self.hosts):
            (region,) = dice.choices(order, cum_weights=weights)
            yield dice.choice(names), region


@dataclass
class Answered:
    """Who has answered reads, in regions.

    :ivar hosts: that have read
    :ivar at_home: by the cache of the host that read
    :ivar source: by the source, and how often that sent a region
    :ivar sent: by each host to others
    :ivar crossed: from rack to rack, those of the source too
    """

    hosts: int
    reads: int
    at_home: int
    source: int
    sent: Counter[str]
    crossed: int

    @property
    def source_share(self) -> float:
        """How many regions the source sends for each that is read."""
        return self.source / self.reads

    @property
    def home_share(self) -> float:
        """Share of the reads that cost no link anything."""
        return self.at_home / self.reads

    @property
    def link_share(self) -> float:
        """How many regions hosts and source send for each that is read."""
        return (self.source + self.sent.total()) / self.reads

    @property
    def busiest_share(self) -> float:
        """How many regions the busiest host sends, for each that a host reads on average."""
        return max(self.sent.values(), default=0) * self.hosts / self.reads

    @property
    def crossed_share(self) -> float:
        """How many regions go from rack to rack for each that is read."""
        return self.crossed / self.reads


class _Cache:
    """Keeps what was used last."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: OrderedDict[int, None] = OrderedDict()

    def has(self, region: int) -> bool:
        if region not in self._held:
            return False
        self._held.move_to_end(region)
        return True

    def keep(self, region: int) -> None:
        if self._size:
            self._held[region] = None
            if len(self._held) > self._size:
                self._held.popitem(last=False)


Ask = Callable[[str, int], Sequence[tuple[str, _Cache]]]
"""Returns who is asked for a region by whom, one after another, and with which cache each."""


def alone(site: Site) -> Answered:
    """Have each host ask the source for what its cache lacks."""
    caches = {host: _Cache(site.cache) for host in site.names}
    return _answer(site, lambda host, region: [(host, caches[host])])


def trees(site: Site) -> Answered:
    """Have each host ask its parent in the tree of the region, as two trees are by default."""
    caches = {host: _Cache(site.cache) for host in site.names}
    usual = shapes.usual(Shape.FOREST)
    rules = Rules(Shape.FOREST, usual.stripes, usual.fanout)
    places = placed.place(_hosts(site), rules)
    parents = [
        {node.host: node.parent for node in places.nodes(stripe)} for stripe in range(rules.stripes)
    ]

    def ask(host: str, region: int) -> list[tuple[str, _Cache]]:
        asked, above = [], parents[region % rules.stripes]
        one: str | None = host
        while one is not None:
            asked.append((one, caches[one]))
            one = above[one]
        return asked

    return _answer(site, ask)


def shaped(site: Site, keeps_owned: bool) -> Answered:
    """Have hosts ask as in a ring that Volt places, whose owners read from the source.

    :param keeps_owned: whether caches keep what the agent's rule says, what is owned first; else
        what was used last, whoever asked for it
    """
    usual = shapes.usual(Shape.RING)
    rules = Rules(Shape.RING, usual.stripes, usual.fanout)
    places = placed.place(_hosts(site), rules)
    parents = [
        {node.host: node.parent for node in places.nodes(stripe)} for stripe in range(rules.stripes)
    ]
    caches = {host: _Cache(site.cache) for host in site.names}
    kept = dict.fromkeys(site.names, frozenset(range(rules.stripes)))
    if keeps_owned:
        room = site.cache / site.regions
        for host, all_of_them in kept.items():
            owns = frozenset(places.inner_in(host))
            kept[host] = keeping.kept(owns, rules.stripes, room) or all_of_them
    nothing = _Cache(0)

    def ask(host: str, region: int) -> list[tuple[str, _Cache]]:
        asked: list[tuple[str, _Cache]] = []
        stripe, one = region % rules.stripes, host
        while True:
            asked.append((one, caches[one] if stripe in kept[one] else nothing))
            parent = parents[stripe][one]
            if parent is None:
                return asked
            one = parent

    return _answer(site, ask)


def ring(site: Site, threshold: int) -> Answered:
    """Have each host ask a region's owner; what is left of its cache is for what it reads itself.

    An owner keeps what it is asked for, as far as its cache goes. So each host has a public part
    and a private one (ACStor, 3.3).

    :param threshold: hosts as many switches away are not asked, see ``v_nodes.owner``
    """
    owners: dict[tuple[int, int], list[str]] = {}
    for number, group in enumerate(_groups(site)):
        dealt = v_nodes.even(group)
        for rack in {site.rack(name) for name in group}:

            def distance(host: str, rack: int = rack) -> int:
                return _IN_RACK if site.rack(host) == rack else _FAR

            owners[number, rack] = [
                v_nodes.owner(dealt, region, distance, threshold) for region in range(site.regions)
            ]
    asked_for: dict[str, set[int]] = {name: set() for name in site.names}
    for of_region in owners.values():
        for region, name in enumerate(of_region):
            asked_for[name].add(region)
    sizes = {name: min(len(those), site.cache) for name, those in asked_for.items()}
    public = {name: _Cache(size) for name, size in sizes.items()}
    private = {name: _Cache(site.cache - size) for name, size in sizes.items()}
    group_of = {name: number for number, group in enumerate(_groups(site)) for name in group}

    def ask(host: str, region: int) -> list[tuple[str, _Cache]]:
        there = owners[group_of[host], site.rack(host)][region]
        asked = [(there, public[there])]
        return asked if there == host else [(host, private[host]), *asked]

    return _answer(site, ask)


def _hosts(site: Site) -> list[placed.Host]:
    return [placed.Host(name, f"rack{site.rack(name)}") for name in site.names]


def _groups(site: Site) -> list[list[str]]:
    names = sorted(site.names, key=site.rack)
    return [names[start : start + GROUP] for start in range(0, site.hosts, GROUP)]


def _answer(site: Site, ask: Ask) -> Answered:
    """Make all reads; count the last of them, when caches are warm."""
    found = Answered(site.hosts, 0, 0, 0, Counter(), 0)
    first = _WARMING * site.regions * site.hosts
    for number, (reader, region) in enumerate(site.reads()):
        lacked: list[tuple[str, _Cache]] = []
        asked = ask(reader, region)
        for host, cache in asked:
            if cache.has(region):
                break
            lacked.append((host, cache))
        for _, cache in lacked:
            cache.keep(region)
        if number >= first:
            senders = [host for host, _ in asked[: len(lacked) + 1]]
            racks = [site.rack(host) for host in senders]
            is_new = len(lacked) == len(asked)
            found.reads += 1
            found.at_home += not lacked
            found.source += is_new
            found.sent.update(senders[1:])
            found.crossed += is_new + sum(one != other for one, other in pairwise(racks))
    return found
