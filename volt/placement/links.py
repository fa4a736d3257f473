"""Who feeds whom in one stripe, and what is counted of it; where a host hangs others decide."""

from collections.abc import Collection
from dataclasses import dataclass

from volt.placement.levels import INSIDE, ROOTS

MUCH_FASTER = 2
"""How many times faster a link is than one that holds it up.

Most links have 1, 10, 25 or 100 Gbit/s, so those of two kinds differ by more.
"""


class PartTooSmall(Exception):
    """A change needs hosts that this part of the trees does not hold: take the whole."""


@dataclass
class Totals:
    """How many hosts of a stripe are inner, and how many the source feeds."""

    inner: int = 0
    at_source: int = 0


@dataclass(frozen=True)
class Newcomer:
    """A host that joins; ``feeds`` is false for one that must not feed others.

    ``speed`` is that of its link in bytes/s, None if that is not known.
    """

    host: str
    rack: str | None = None
    feeds: bool = True
    speed: int | None = None


@dataclass(slots=True)
class Node:
    """A host in one stripe; parent None is the source.

    ``level`` orders hosts as ``volt.placement.levels`` says; in a chain that has closed up it may
    be more than the distance. ``fed`` counts the children, ``foreign`` those of them that are of
    other racks. A host that is not ``accepting`` gets no new ones. A leaf is ``stray`` if its
    parent is of another rack.
    One that is ``whole`` has all of the image: it needs no parent, whatever hangs above it.
    ``speed`` is that of the link in bytes/s; None if that is not known.
    """

    host: str
    rack: str | None
    parent: str | None
    level: int
    inner: bool
    fed: int = 0
    foreign: int = 0
    accepting: bool = True
    whole: bool = False
    stray: bool = False
    speed: int | None = None

    @property
    def is_entry(self) -> bool:
        """Whether this is an inner host in the tree of entries."""
        return self.inner and self.level < ROOTS

    @property
    def is_root(self) -> bool:
        """Whether this is an inner host that others of its rack hang below, and no entry."""
        return self.inner and ROOTS < self.level < INSIDE

    def has_room(self, fanout: int) -> bool:
        """Tell whether another child may be hung here."""
        return self.inner and self.accepting and self.fed < fanout

    def is_foreign_to(self, other: "Node") -> bool:
        """Tell whether the other host is known to be in another rack."""
        return self.rack != other.rack and self.rack is not None and other.rack is not None

    def is_home_of(self, other: "Node") -> bool:
        """Tell whether the other host is of the same rack; those of unknown racks are of one."""
        return self.rack == other.rack

    def holds_up(self, other: "Node") -> bool:
        """Tell whether the link of the other host is known to be much faster than this one's."""
        if self.speed is None or other.speed is None:
            return False
        return other.speed >= MUCH_FASTER * self.speed


@dataclass(frozen=True)
class Edge:
    """Who feeds a host in one stripe; None is the source.

    ``standby`` is the parent's parent. It has a meaning only where the parent is a
    host: whom the source feeds has no standby.
    """

    parent: str | None
    standby: str | None


class _Here(dict[str, Node]):
    """The hosts of a part by name: to ask for another one needs a larger part."""

    def __missing__(self, host: str) -> Node:
        raise PartTooSmall(f"host {host} is not here")


class Links:
    """The links of one stripe, or a part of them; ``totals`` are those of the whole."""

    def __init__(self, fanout: int, totals: Totals) -> None:
        self.fanout = fanout
        self.totals = totals
        self.nodes: dict[str, Node] = _Here()
        self.stored: set[str] = set()
        """Hosts that were taken in, not placed by a change."""
        self.changed: set[str] = set()
        """Hosts of which anything changed since."""
        self.moved: set[str] = set()
        """Hosts that were given a parent since."""
        self.unsettled: set[str] = set()
        """Hosts that hang elsewhere or feed otherwise since slow ones were last looked for."""
        self._below: dict[str | None, set[str]] = {}
        self._open: dict[str, Node] = {}
        self._entries: dict[str, Node] = {}
        self._of_rack: dict[str | None, dict[str, Node]] = {}
        self._gone: set[str] = set()

    def restore(self, node: Node) -> None:
        """Take in a node that hangs already; fine if it is here, or was and has gone."""
        if node.host not in self.nodes and node.host not in self._gone:
            self._add(node)
            self.stored.add(node.host)
            self._below.setdefault(node.parent, set()).add(node.host)
            self._review(node)

    def at_source(self) -> list[Node]:
        """Return those whom the source feeds and who are here, by name."""
        return [self.nodes[name] for name in sorted(self._below.get(None, ()))]

    def children(self, node: Node) -> list[Node]:
        """Return whom the host feeds, by name; raises PartTooSmall."""
        found = [self.nodes[name] for name in sorted(self._below.get(node.host, ()))]
        if len(found) != node.fed:
            raise PartTooSmall(f"{len(found)} of {node.fed} children of {node.host} are here")
        return found

    def is_complete(self, node: Node) -> bool:
        """Tell whether the host's parent and children are all in this part."""
        has_parent = node.parent is None or node.parent in self.nodes
        return has_parent and len(self._below.get(node.host, ())) == node.fed

    def missing_parents(self) -> set[str]:
        """Return who feeds hosts of this part without being in it."""
        return {name for name in self._below if name is not None} - self.nodes.keys()

    def open(self) -> Collection[Node]:
        """Return the hosts here that may be given a child."""
        return self._open.values()

    def entries(self) -> Collection[Node]:
        """Return the entries of racks that are here."""
        return self._entries.values()

    def racks(self) -> set[str]:
        """Return the racks, as far as they are known, of which hosts are or were here."""
        return {rack for rack in self._of_rack if rack is not None}

    def of_rack(self, rack: str | None) -> Collection[Node]:
        """Return the hosts of a rack that are here."""
        return self._of_rack.get(rack, {}).values()

    def below(self, node: Node) -> list[Node]:
        """Return those whom the host feeds and who are here."""
        return [self.nodes[name] for name in self._below.get(node.host, ())]

    def crosses(self, node: Node, parent: str | None) -> bool:
        """Tell whether a link to this parent goes from rack to rack."""
        return parent is not None and self.nodes[parent].is_foreign_to(node)

    def comes_in(self, node: Node) -> bool:
        """Tell whether what the host gets comes from the source, or from another rack."""
        return node.parent is None or (
            node.parent in self.nodes and self.crosses(node, node.parent)
        )

    def hang(self, node: Node, parent: str | None, entry: bool = False) -> None:
        """Let the parent feed a host that hangs nowhere, perhaps as an entry of its rack."""
        self._add(node)
        self._gone.discard(node.host)
        node.parent = parent
        node.level = self.level_below(parent, node, entry)
        node.stray = not node.inner and self.crosses(node, parent)
        self._count(node, 1)
        self._below.setdefault(parent, set()).add(node.host)
        self._review(node)
        self.changed.add(node.host)
        self.moved.add(node.host)
        self.unsettled.add(node.host)

    def level_below(self, parent: str | None, node: Node, entry: bool) -> int:
        """Return the level that a host has below this parent."""
        if parent is None:
            return 1
        above = self.nodes[parent]
        if above.is_entry and (entry or not node.inner):
            return above.level + 1
        if above.is_entry or (node.inner and not above.is_home_of(node)):
            return ROOTS + above.level % ROOTS + 1
        return max(above.level, INSIDE) + 1

    def unhang(self, node: Node) -> None:
        """Take a host from its parent; whom it feeds stays below it."""
        self._count(node, -1)
        self._below[node.parent].discard(node.host)
        del self.nodes[node.host], self._of_rack[node.rack][node.host]
        self._open.pop(node.host, None)
        self._entries.pop(node.host, None)

    def accept(self, node: Node, accepting: bool) -> None:
        """Let the host be given children, or none from now on."""
        if node.accepting != accepting:
            node.accepting = accepting
            self._review(node)
            self.changed.add(node.host)
            self.unsettled.add(node.host)

    def set_inner(self, node: Node, inner: bool) -> None:
        """Let the host feed others in this stripe, or be a leaf."""
        if node.inner != inner:
            self.totals.inner += 1 if inner else -1
        node.inner = inner
        if node.host in self.nodes:  # else it is about to be hung
            node.stray = not inner and self.crosses(node, node.parent)
            self._review(node)
        self.changed.add(node.host)
        self.unsettled.add(node.host)

    def forget(self, host: str) -> None:
        """Drop a host that was unhung for good."""
        self._gone.add(host)
        self.changed.discard(host)
        self.moved.discard(host)

    def _count(self, node: Node, by: int) -> None:
        if node.parent is None:
            self.totals.at_source += by
            return
        parent = self.nodes.get(node.parent)
        if parent is None:
            raise PartTooSmall(f"the parent of {node.host} is not here")
        parent.fed += by
        if parent.is_foreign_to(node):
            parent.foreign += by
        self._review(parent)
        self.changed.add(parent.host)

    def _add(self, node: Node) -> None:
        self.nodes[node.host] = node
        self._of_rack.setdefault(node.rack, {})[node.host] = node

    def _review(self, node: Node) -> None:
        """Note whether the host has room, and whether it is an entry.

        Looking at all whenever one is sought takes longer.
        """
        _keep(self._open, node, node.has_room(self.fanout))
        _keep(self._entries, node, node.is_entry)


def _keep(those: dict[str, Node], node: Node, belongs: bool) -> None:
    if belongs:
        those[node.host] = node
    else:
        those.pop(node.host, None)
