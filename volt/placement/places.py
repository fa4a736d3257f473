"""The places of an image's hosts, or a part of them, and what may happen to a host."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence

from volt.errors import HostUnknown
from volt.placement.links import Edge, Links, Newcomer, Node, Totals
from volt.placement.part import Ask, Change, Found, Pick, Reading, Stored, read


class Places(ABC):
    """All places of an image or a part of them, and the changes that a shape makes to them.

    A part holds what a change needs to come to places that are valid in the whole; where it
    does not, the change raises PartTooSmall. The whole may have better ones, as to racks.
    """

    def __init__(self, stripes: Sequence[Links]) -> None:
        self._stripes = stripes
        self._stored: Stored | None = None
        self._change = Change()
        self._picked: set[Pick] = set()

    @abstractmethod
    def picks(self, change: Change) -> Sequence[Pick]:
        """Return whom the change chooses among, of those who are stored.

        The hosts that it is about are here already, with their children.
        """

    @abstractmethod
    def join(self, newcomer: Newcomer) -> None:
        """Place a host; raises HostPlaced if it has a place."""

    @abstractmethod
    def leave(self, host: str) -> None:
        """Remove a host; raises HostUnknown if it has no place."""

    @abstractmethod
    def drain(self, host: str) -> None:
        """Make a host feed nobody any more; raises HostUnknown if it has no place."""

    @abstractmethod
    def overload(self, host: str) -> None:
        """Give a host no new children; raises HostUnknown if it has no place."""

    @abstractmethod
    def relieve(self, host: str) -> None:
        """Let a host feed others as ever, after ``drain`` or ``overload``.

        Raises HostUnknown if it has no place.
        """

    def follow(self, host: str, traffic: Mapping[str, float], uplinks: Sequence[float]) -> bool:
        """Let an overloaded host feed less, if the shape can; return whether anything changed.

        :param traffic: of hosts, in any unit
        :param uplinks: what those of racks carry, as a share of what they can, where that is known
        """
        return False

    @abstractmethod
    def parents_for(self, host: str, rack: str | None, stripe: int) -> list[Node]:
        """Return who could be given the host as a child, best first."""

    def taking(self, stored: Stored, change: Change) -> Reading:
        """Take in what decides about a change; nothing is here yet.

        That is: the hosts that it is about, and those that it picks; of the former, and of
        kinds that say so, the places in all stripes and all children; and the parents of
        all of these.

        :param stored: where more is read from if the change itself turns out to need it
        """
        self._stored, self._change = stored, change
        if change.hosts:
            self._restore_around(change.hosts, (yield Ask(around=change.hosts)))
        yield from self._picking(self.picks(change))

    def _pick(self, picks: Iterable[Pick]) -> None:
        """Take in more of those who are stored; nothing if this is no part, or they are here."""
        if self._stored is not None:
            read(self._picking(picks), self._stored)

    def _picking(self, picks: Iterable[Pick]) -> Reading:
        new = [pick for pick in picks if pick not in self._picked]
        if not new:
            return
        self._picked.update(new)
        found = list((yield Ask(picks=new)))
        in_full = set()
        for (stripe, node), kind in found:
            if kind is not None:
                self.restore(stripe, node)
                if kind.in_full:
                    in_full.add(node.host)
        yield from self._surrounding(in_full, found)

    def _surround(self, host: str) -> None:
        """Take in whom a host feeds, and who feeds it; nothing if this is no part."""
        if self._stored is not None:
            read(self._surrounding({host}), self._stored)

    def _surrounding(self, hosts: Collection[str], found: Sequence[Found] = ()) -> Reading:
        """Take in hosts with their children, and who feeds those that are here.

        :param found: what of that has been read already
        """
        if hosts:
            of = self._still_missing(found) - set(hosts)
            found = [*found, *(yield Ask(around=hosts, of=of))]
            self._restore_around(hosts, found)
        missing = self._missing()
        self._restore_missing(missing, found)
        if any(missing):
            self._restore_missing(missing, (yield Ask(of=set().union(*missing))))

    def _still_missing(self, found: Iterable[Found]) -> set[str]:
        """Return who feeds hosts that are here, and is neither here nor was found."""
        missing = self._missing()
        for (stripe, node), _ in found:
            missing[stripe].discard(node.host)
        return set().union(*missing)

    def _missing(self) -> list[set[str]]:
        """Return in each stripe who feeds hosts that are here, and is not here."""
        return [links.missing_parents() for links in self._stripes]

    def _restore_around(self, hosts: Collection[str], found: Iterable[Found]) -> None:
        named = set(hosts)
        for (stripe, node), _ in found:
            if node.host in named or node.parent in named:
                self.restore(stripe, node)

    def _restore_missing(self, missing: Sequence[set[str]], found: Iterable[Found]) -> None:
        """Take in those that are missing; then they are not any more."""
        for (stripe, node), _ in found:
            if node.host in missing[stripe]:
                missing[stripe].remove(node.host)
                self.restore(stripe, node)

    def restore(self, stripe: int, node: Node) -> None:
        """Take in a host that has its place in that stripe; fine if it is here already."""
        self._stripes[stripe].restore(node)

    @property
    def totals(self) -> list[Totals]:
        """The counts of each stripe as a whole."""
        return [links.totals for links in self._stripes]

    def holds(self, host: str, stripe: int = 0) -> bool:
        """Tell whether the host's place in that stripe is here."""
        return host in self._stripes[stripe].nodes

    def inner_in(self, host: str) -> tuple[int, ...]:
        """Return the stripes in which the host may feed others."""
        self._check_placed(host)
        stripes = range(len(self._stripes))
        return tuple(one for one in stripes if self._stripes[one].nodes[host].inner)

    def node(self, host: str, stripe: int) -> Node:
        """Return the host's place in that stripe; raises HostUnknown."""
        self._check_placed(host, stripe)
        return self._stripes[stripe].nodes[host]

    def nodes(self, stripe: int) -> Collection[Node]:
        """Return all places of that stripe that are here."""
        return self._stripes[stripe].nodes.values()

    def edge(self, host: str, stripe: int) -> Edge:
        """Return parent and standby of the host in that stripe."""
        parent = self.node(host, stripe).parent
        standby = None if parent is None else self.node(parent, stripe).parent
        return Edge(parent, standby)

    def children(self, host: str | None, stripe: int) -> tuple[str, ...]:
        """Return whom the host (None: the source) feeds in that stripe."""
        links = self._stripes[stripe]
        fed = links.at_source() if host is None else links.children(links.nodes[host])
        return tuple(node.host for node in fed)

    def breadth_first(self, stripe: int) -> list[tuple[str, int]]:
        """Return that stripe's hosts with their depths, nearest to the source first."""
        links, depth = self._stripes[stripe], 0
        found: list[tuple[str, int]] = []
        level = links.at_source()
        while level:
            depth += 1
            found += [(node.host, depth) for node in level]
            level = [child for node in level for child in links.children(node)]
        return found

    def changed(self, stripe: int) -> list[Node]:
        """Return the places of which anything changed since they were taken in."""
        links = self._stripes[stripe]
        return [links.nodes[host] for host in sorted(links.changed)]

    def moved(self, stripe: int) -> frozenset[str]:
        """Return the hosts that were given a parent since they were taken in."""
        return frozenset(self._stripes[stripe].moved)

    def is_stored(self, host: str, stripe: int) -> bool:
        """Tell whether the place was taken in, not made by a change."""
        return host in self._stripes[stripe].stored

    def _check_placed(self, host: str, stripe: int = 0) -> None:
        if not self.holds(host, stripe):
            raise HostUnknown(f"host {host} has no place in these trees; let it join first")
