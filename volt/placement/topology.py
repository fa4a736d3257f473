"""Where a host hangs in an image's attach trees, and who moves when it comes or goes.

An image has k stripe trees over the same hosts. With k > 1 a host is *inner* (may feed
up to f others) in one tree and a leaf in all others, so that it uploads about one image
in all (SplitStream, SOSP 2003; Sanders, Speck, Traeff 2009)::

    stripe 0, k = f = 2      stripe 1
    source                   source
    `- a*                    `- b*
       |- c*                    |- a
       |  |- d                  `- d*
       |  `- e                     |- c
       `- b                        `- e

Inner hosts are *compact*: a new one goes to the free slot or the leaf nearest to the
root (the leaf then moves below), and one that goes is replaced by one of the lowest
level. Hence the depth is at most ``ceil(log_f(N)) + 2`` for f >= 2, and it does not
matter for the depth which inner host a leaf hangs under: that is where racks decide.

The source feeds one child per tree. Where a tree lacks slots however its hosts are
dealt out (two hosts and three trees, or many hosts that must not feed others), and only
then, the source feeds *spare* leaves too, until a slot comes free.

A Forest holds the whole of the trees or a part: the hosts that a change is about, and of
those among whom it chooses the nearest to the root, or the lowest. A part is enough to
decide, so that no change has to read all hosts; ``Forest.part`` says what it must hold.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from volt.errors import HostPlaced, HostUnknown, ShapeInvalid


class Shape(StrEnum):
    """How the trees of an image look.

    A *forest* has several stripes; a *tree* is one stripe, as in the VirtMan paper; in a
    *star* the source feeds every host, in a *chain* each host the next.
    """

    FOREST = "forest"
    TREE = "tree"
    STAR = "star"
    CHAIN = "chain"


DEFAULTS = {
    Shape.FOREST: (2, 2),
    Shape.TREE: (1, 2),
    Shape.STAR: (1, 0),
    Shape.CHAIN: (1, 1),
}
"""Stripes and fan-out of each shape where nobody says otherwise."""


@dataclass
class Census:
    """How many hosts of a tree are inner, and how many the source feeds."""

    inner: int = 0
    at_source: int = 0


@dataclass(frozen=True)
class Rules:
    """What holds for all trees of an image.

    ``foreign_children`` is how many hosts of other racks a host may feed in one tree, as
    long as another place is left; None is no limit.
    """

    shape: Shape
    stripes: int
    fanout: int
    foreign_children: int | None = None

    def check(self) -> None:
        """Raise ShapeInvalid unless such trees carry every host."""
        usual = DEFAULTS[self.shape]
        if self.shape in (Shape.STAR, Shape.CHAIN) and (self.stripes, self.fanout) != usual:
            raise ShapeInvalid(f"a {self.shape} has its own stripes and fan-out: leave them out")
        if self.shape == Shape.TREE and (self.stripes != 1 or self.fanout < 1):
            raise ShapeInvalid("a tree has one stripe and a fan-out of at least 1")
        if self.shape == Shape.FOREST and (self.stripes < 1 or self.fanout < self.stripes):
            raise ShapeInvalid(
                f"{self.stripes} stripes with fan-out {self.fanout} cannot carry every host: "
                "take at least one stripe and a fan-out of at least the number of stripes"
            )

    @property
    def source_slots(self) -> int | None:
        """Hosts that the source feeds in one tree before any are spares; None: all."""
        if self.shape == Shape.STAR:
            return None
        return self.fanout if self.stripes == 1 else 1

    def reach(self, joins: int, others: int, census: Collection[Census]) -> "Reach":
        """Return how much of a tree so many changes, joins and others, can use up."""
        moves = others * (self.fanout + self.stripes)
        slots = self.source_slots
        spares = 0 if slots is None else max(tree.at_source for tree in census) - slots
        settled = min(max(spares, 0), (joins + moves) * self.fanout)
        return Reach(
            leaves=joins + moves + settled + 2,
            rooms=joins + 2 * moves + 2,
            lowest=others * self.stripes + 2,
        )


@dataclass(frozen=True)
class Reach:
    """How many nearest leaves, nearest hosts with room and lowest inner hosts a part has."""

    leaves: int
    rooms: int
    lowest: int


class PartTooSmall(Exception):
    """A change needs hosts that this part of the trees does not hold: take the whole."""


@dataclass(frozen=True)
class Newcomer:
    """A host that joins; ``feeds`` is false for one that must not feed others."""

    host: str
    rack: str | None = None
    feeds: bool = True


@dataclass(slots=True)
class Node:
    """A host in one tree; parent None is the source.

    ``level`` orders hosts by their distance from the root. It is that distance, but may
    be more in a chain that has closed up. ``fed`` counts the children, ``foreign`` those
    of them that are of other racks. A host that is not ``accepting`` gets no new ones.
    """

    host: str
    rack: str | None
    parent: str | None
    level: int
    inner: bool
    fed: int = 0
    foreign: int = 0
    accepting: bool = True

    def has_room(self, fanout: int) -> bool:
        """Tell whether another child may be hung here."""
        return self.inner and self.accepting and self.fed < fanout

    def is_stranger(self, other: "Node") -> bool:
        """Tell whether the other host is known to be in another rack."""
        return self.rack != other.rack and self.rack is not None and other.rack is not None


@dataclass(frozen=True)
class Edge:
    """Who feeds a host in one tree; None is the source.

    ``standby`` is the parent's parent. It has a meaning only where the parent is a
    host: whom the source feeds has no standby.
    """

    parent: str | None
    standby: str | None


class _Tree:
    """One stripe tree, or a part of it."""

    def __init__(self, rules: Rules, census: Census) -> None:
        self.rules = rules
        self.census = census
        self.nodes: dict[str, Node] = {}
        self.dirty: set[str] = set()
        self.moved: set[str] = set()
        self.stored: set[str] = set()
        self._below: dict[str | None, set[str]] = {}
        self._rooms: dict[str, Node] = {}

    def restore(self, node: Node) -> None:
        """Take in a node that hangs already."""
        if node.host not in self.nodes:
            self.nodes[node.host] = node
            self.stored.add(node.host)
            self._below.setdefault(node.parent, set()).add(node.host)
            self._review(node)

    def _review(self, node: Node) -> None:
        """Note whether the host has room; looking at all whenever one is sought takes longer."""
        if node.has_room(self.rules.fanout):
            self._rooms[node.host] = node
        else:
            self._rooms.pop(node.host, None)

    def at_source(self) -> list[Node]:
        """Return those whom the source feeds and who are here, by name."""
        return [self.nodes[name] for name in sorted(self._below.get(None, ()))]

    def children(self, node: Node) -> list[Node]:
        """Return whom the host feeds, by name; raises PartTooSmall."""
        found = [self.nodes[name] for name in sorted(self._below.get(node.host, ()))]
        if len(found) != node.fed:
            raise PartTooSmall(f"{len(found)} of {node.fed} children of {node.host} are here")
        return found

    @property
    def crowded(self) -> bool:
        """Whether the source feeds spare leaves because the tree lacks slots."""
        slots = self.rules.source_slots
        return slots is not None and self.census.at_source > slots

    def crosses(self, node: Node, parent: str | None) -> bool:
        """Tell whether a link to this parent goes from rack to rack."""
        return parent is not None and self.nodes[parent].is_stranger(node)

    def hang(self, node: Node, parent: str | None) -> None:
        self.nodes[node.host] = node
        node.parent = parent
        node.level = 1 if parent is None else self.nodes[parent].level + 1
        self._count(node, 1)
        self._below.setdefault(parent, set()).add(node.host)
        self._review(node)
        self.dirty.add(node.host)
        self.moved.add(node.host)

    def unhang(self, node: Node) -> None:
        self._count(node, -1)
        self._below[node.parent].discard(node.host)
        del self.nodes[node.host]
        self._rooms.pop(node.host, None)

    def _count(self, node: Node, by: int) -> None:
        if node.parent is None:
            self.census.at_source += by
            return
        parent = self.nodes.get(node.parent)
        if parent is None:
            raise PartTooSmall(f"the parent of {node.host} is not here")
        parent.fed += by
        parent.foreign += by * self.crosses(node, parent.host)
        self._review(parent)
        self.dirty.add(parent.host)

    def accept(self, node: Node, accepting: bool) -> None:
        """Let the host be given children, or none from now on."""
        if node.accepting != accepting:
            node.accepting = accepting
            self._review(node)
            self.dirty.add(node.host)

    def set_inner(self, node: Node, inner: bool) -> None:
        self.census.inner += inner - node.inner
        node.inner = inner
        if node.host in self.nodes:  # else it is about to be hung
            self._review(node)
        self.dirty.add(node.host)

    def rooms(self) -> Collection[Node]:
        """Return the hosts here that may be given a child."""
        return self._rooms.values()

    def source_has_room(self) -> bool:
        slots = self.rules.source_slots
        return slots is None or self.census.at_source < slots

    def reluctance(self, node: Node, parent: Node) -> tuple[bool, bool, int, str]:
        """Return what makes a parent less fit for a node: the smallest is the best."""
        crosses, limit = parent.is_stranger(node), self.rules.foreign_children
        full = crosses and limit is not None and parent.foreign >= limit
        return full, crosses, parent.level, parent.host

    def add_leaf(self, node: Node) -> None:
        """Hang a host that feeds nobody; as a spare of the source if no slot is free."""
        if self.source_has_room():
            self.hang(node, None)
            return
        room = min(self.rooms(), key=lambda room: self.reluctance(node, room), default=None)
        if room is not None and self.crosses(node, room.host):
            yielding = self._stranger_in_rack_of(node)
            if yielding is not None:
                parent = yielding.parent
                self.unhang(yielding)
                self.hang(yielding, room.host)
                self.hang(node, parent)
                return
        self.hang(node, None if room is None else room.host)

    def _stranger_in_rack_of(self, node: Node) -> Node | None:
        """Return a leaf of another rack whose parent is in the node's rack, nearest first.

        It is across racks already, so its going elsewhere makes no more links across.
        """
        strangers = (
            leaf
            for leaf in self.nodes.values()
            if not leaf.inner
            and leaf.parent is not None
            and (parent := self.nodes.get(leaf.parent)) is not None
            and parent.accepting
            and parent.rack == node.rack
            and self.crosses(leaf, parent.host)
        )
        return min(strangers, key=lambda leaf: (leaf.level, leaf.host), default=None)

    def add_inner(self, node: Node) -> None:
        """Hang a host that may feed others as near to the root as compactness asks."""
        parent, displaced, _ = self._inner_place(node)
        self.set_inner(node, True)
        if displaced is not None:
            self.unhang(displaced)
        self.hang(node, parent)
        if displaced is not None:
            self.add_leaf(displaced)

    def _inner_place(self, node: Node) -> tuple[str | None, Node | None, int]:
        """Return parent, leaf to displace (or None) and level of the next inner host.

        The place is the nearest to the root; at equal level one in the same rack, then a
        free slot before a leaf.
        """
        if self.source_has_room():
            return None, None, 1
        leaves = [leaf for leaf in self.nodes.values() if self._is_displaceable(leaf)]
        levels = {room.level + 1 for room in self.rooms()} | {leaf.level for leaf in leaves}
        if not levels:  # nobody accepts children: as a spare
            return None, None, 1
        nearest = min(levels)
        places: list[tuple[bool, bool, int, str, Node | None, str | None]] = []
        for room in self.rooms():
            if room.level + 1 == nearest:
                full, crosses, _, name = self.reluctance(node, room)
                places.append((full, crosses, 0, name, None, name))
        for leaf in leaves:
            if leaf.level == nearest:
                crosses, full = self.crosses(node, leaf.parent), False
                if leaf.parent is not None and not self.crosses(leaf, leaf.parent):
                    full = self.reluctance(node, self.nodes[leaf.parent])[0]
                places.append((full, crosses, 1, leaf.host, leaf, leaf.parent))
        best = min(places, key=lambda place: place[:4])
        return best[5], best[4], nearest

    def _is_displaceable(self, leaf: Node) -> bool:
        """Tell whether this is a leaf that may make room for an inner host."""
        if leaf.inner:
            return False
        if leaf.parent is None:
            slots = self.rules.source_slots
            return slots is not None and self.census.inner < slots
        parent = self.nodes.get(leaf.parent)
        return parent is not None and parent.accepting

    def remove(self, host: str) -> None:
        """Take a host out; whom it fed is fed by others."""
        node = self.nodes[host]
        orphans: list[Node] = []
        if node.inner:
            heir = self._heir(node)
            orphans = self.children(node) if heir is None else self._succeed(node, heir)
            self.set_inner(node, False)
        for orphan in orphans:
            self.unhang(orphan)
        self.unhang(node)
        self.dirty.discard(host)
        self.moved.discard(host)
        for orphan in orphans:
            self.add_leaf(orphan)

    def demote(self, node: Node) -> None:
        """Make an inner host of the lowest level a leaf, where it hangs."""
        self.set_inner(node, False)
        orphans = self.children(node)
        for orphan in orphans:
            self.unhang(orphan)
        for orphan in orphans:
            self.add_leaf(orphan)

    def promote(self, node: Node) -> None:
        """Make a leaf inner: where it hangs if no place is nearer to the root."""
        if self._is_displaceable(node) and node.level <= self._inner_place(node)[2]:
            self.set_inner(node, True)
        else:
            self.unhang(node)
            self.add_inner(node)

    def settle(self) -> None:
        """Move the source's spare leaves into slots that came free."""
        while self.crowded:
            spare = next((node for node in self.at_source() if not node.inner), None)
            if spare is None or not self.rooms():
                return
            self.unhang(spare)
            self.add_leaf(spare)

    def lowest_inner(self) -> list[Node]:
        """Return the inner hosts farthest from the root, of those whose links are all here."""
        inner = [node for node in self.nodes.values() if node.inner]
        lowest = max((node.level for node in inner), default=0)
        found = [node for node in inner if node.level == lowest and self._is_complete(node)]
        if inner and not found:
            raise PartTooSmall("no lowest host is here with all its links")
        return found

    def _is_complete(self, node: Node) -> bool:
        """Tell whether the host's parent and children are all in this part."""
        has_parent = node.parent is None or node.parent in self.nodes
        return has_parent and len(self._below.get(node.host, ())) == node.fed

    def _heir(self, node: Node) -> Node | None:
        """Return who takes an inner host's place with the fewest moves, if anyone must."""
        if self.rules.fanout == 1:  # a chain stays compact when it closes up
            return next(iter(self.children(node)), None)
        lowest = self.lowest_inner()
        if node.level == lowest[0].level:
            return None

        def burden(heir: Node) -> tuple[bool, int, bool, str]:
            inherited = node.fed - (heir.parent == node.host)
            moves = inherited + max(0, inherited + heir.fed - self.rules.fanout)
            return not heir.accepting, moves, heir.rack != node.rack, heir.host

        return min(lowest, key=burden)

    def _succeed(self, node: Node, heir: Node) -> list[Node]:
        """Put the heir above the host's children; return its own that it cannot keep."""
        place = node.parent
        own = self.children(heir)
        self.unhang(heir)
        inherited = self.children(node)
        orphans = own[max(0, self.rules.fanout - len(inherited)) :]
        self.hang(heir, place)
        for child in inherited:
            level = child.level
            self.unhang(child)
            self.hang(child, heir.host)
            child.level = level
        for child in own:
            child.level = heir.level + 1
            self.dirty.add(child.host)
        return orphans


class Forest:
    """The stripe trees of one image, or a part of them."""

    def __init__(self, rules: Rules, census: Iterable[Census] | None = None) -> None:
        """Start without hosts; ``census`` counts those that are not in this part too.

        Raises ShapeInvalid.
        """
        rules.check()
        self.rules = rules
        counted = [Census() for _ in range(rules.stripes)] if census is None else census
        self._trees = [_Tree(rules, one) for one in counted]

    @property
    def census(self) -> list[Census]:
        """The counts of each tree as a whole."""
        return [tree.census for tree in self._trees]

    def restore(self, stripe: int, node: Node) -> None:
        """Take in a host that has its place in that tree; fine if it is here already."""
        self._trees[stripe].restore(node)

    def join(self, newcomer: Newcomer) -> None:
        """Place a host; raises HostPlaced if it has a place."""
        if newcomer.host in self._trees[0].nodes:
            raise HostPlaced(f"host {newcomer.host} already has a place; let it leave first")
        inner = self._next_inner() if newcomer.feeds else None
        for tree in sorted(self._trees, key=lambda tree: tree is not inner):
            node = Node(newcomer.host, newcomer.rack, None, 1, inner=False)
            node.accepting = newcomer.feeds
            if tree is inner:
                tree.add_inner(node)
            else:
                tree.add_leaf(node)
        self._balance()

    def leave(self, host: str) -> None:
        """Remove a host; raises HostUnknown if it has no place."""
        self._check_placed(host)
        for tree in self._trees:
            tree.remove(host)
        self._balance()

    def drain(self, host: str) -> None:
        """Make a host feed nobody any more; raises HostUnknown if it has no place."""
        self.overload(host)
        for tree in self._trees:
            node = tree.nodes[host]
            if node.inner:
                tree.remove(host)
                tree.add_leaf(node)
        self._balance()

    def overload(self, host: str) -> None:
        """Give a host no new children; raises HostUnknown if it has no place."""
        self._accept(host, False)

    def relieve(self, host: str) -> None:
        """Let a host feed others as ever, after ``drain`` or ``overload``.

        Raises HostUnknown if it has no place.
        """
        self._accept(host, True)
        inner = self._next_inner()
        if inner is not None and self.colour(host) is None:
            inner.promote(inner.nodes[host])
        self._balance()

    def _accept(self, host: str, accepting: bool) -> None:
        self._check_placed(host)
        for tree in self._trees:
            tree.accept(tree.nodes[host], accepting)

    def colour(self, host: str) -> int | None:
        """Return the stripe in whose tree the host may feed others, if there is one."""
        self._check_placed(host)
        stripes = range(len(self._trees))
        return next((one for one in stripes if self._trees[one].nodes[host].inner), None)

    def node(self, host: str, stripe: int) -> Node:
        """Return the host's place in that tree; raises HostUnknown."""
        self._check_placed(host, stripe)
        return self._trees[stripe].nodes[host]

    def nodes(self, stripe: int) -> Collection[Node]:
        """Return all places of that tree that are here."""
        return self._trees[stripe].nodes.values()

    def edge(self, host: str, stripe: int) -> Edge:
        """Return parent and standby of the host in that tree."""
        parent = self.node(host, stripe).parent
        standby = None if parent is None else self.node(parent, stripe).parent
        return Edge(parent, standby)

    def children(self, host: str | None, stripe: int) -> tuple[str, ...]:
        """Return whom the host (None: the source) feeds in that tree."""
        tree = self._trees[stripe]
        fed = tree.at_source() if host is None else tree.children(tree.nodes[host])
        return tuple(node.host for node in fed)

    def breadth_first(self, stripe: int) -> list[tuple[str, int]]:
        """Return that tree's hosts with their depths, nearest to the source first."""
        tree, depth = self._trees[stripe], 0
        found: list[tuple[str, int]] = []
        level = tree.at_source()
        while level:
            depth += 1
            found += [(node.host, depth) for node in level]
            level = [child for node in level for child in tree.children(node)]
        return found

    def dirty(self, stripe: int) -> list[Node]:
        """Return the places of which anything changed since they were taken in."""
        tree = self._trees[stripe]
        return [tree.nodes[host] for host in sorted(tree.dirty)]

    def moved(self, stripe: int) -> frozenset[str]:
        """Return the hosts that were given a parent since they were taken in."""
        return frozenset(self._trees[stripe].moved)

    def is_stored(self, host: str, stripe: int) -> bool:
        """Tell whether the place was taken in, not made by a change."""
        return host in self._trees[stripe].stored

    def parents_for(self, host: str, rack: str | None, stripe: int) -> list[Node]:
        """Return who could be given the host as a child, best first."""
        tree = self._trees[stripe]
        asker = Node(host, rack, None, 1, inner=False)
        rooms = [room for room in tree.rooms() if room.host != host]
        return sorted(rooms, key=lambda room: tree.reluctance(asker, room))

    def part(self, hosts: Collection[str], racks: Collection[str], reach: Reach) -> "Forest":
        """Return what decides about these hosts, newcomers of these racks among them.

        These hosts, and per tree the nearest leaves, the nearest hosts with room (those of
        each rack too), the lowest inner hosts, and the nearest of each rack that feed hosts
        of other racks; the places of all of them in all trees; the children of the named,
        the lowest and those that feed strangers; and the parents of all. Copies: this
        forest stays as it is.
        """
        some = Forest(self.rules, [replace(tree.census) for tree in self._trees])
        chosen, parents = set(hosts), set(hosts)
        for tree in self._trees:
            by_level = sorted(tree.nodes.values(), key=lambda node: (node.level, node.host))
            leaves = [node for node in by_level if not node.inner]
            inner = [node for node in by_level if node.inner]
            rooms = [node for node in by_level if node.has_room(self.rules.fanout)]
            lowest = inner[: -reach.lowest - 1 : -1]
            hosting: list[Node] = []
            near = leaves[: reach.leaves] + rooms[: reach.rooms]
            for rack in racks:
                near += [node for node in rooms if node.rack == rack][: reach.rooms]
                hosting += [n for n in inner if n.rack == rack and n.foreign][: reach.leaves]
            chosen |= {node.host for node in near + lowest + hosting}
            parents |= {node.host for node in lowest + hosting}
        for stripe, tree in enumerate(self._trees):
            here = [tree.nodes[host] for host in chosen if host in tree.nodes]
            fed = [node for node in here if node.host in parents and node.inner]
            here += [child for node in fed for child in tree.children(node)]
            here += [tree.nodes[node.parent] for node in here if node.parent is not None]
            for node in here:
                some.restore(stripe, replace(node))
        return some

    def _check_placed(self, host: str, stripe: int = 0) -> None:
        if host not in self._trees[stripe].nodes:
            raise HostUnknown(f"host {host} has no place in these trees; let it join first")

    def _next_inner(self) -> _Tree | None:
        """Return the tree that needs another inner host most; None in a star."""
        if self.rules.shape == Shape.STAR:
            return None
        return min(self._trees, key=lambda tree: tree.census.inner)

    def _balance(self) -> None:
        """Let hosts feed another tree while its source feeds spares for lack of slots."""
        for tree in self._trees:
            tree.settle()
        while crowded := [tree for tree in self._trees if tree.crowded]:
            needy = min(crowded, key=lambda tree: tree.census.inner)
            donor = max(self._trees, key=lambda tree: tree.census.inner)
            if donor.census.inner - needy.census.inner < 2:
                return
            self._recolour(donor, needy)

    def _recolour(self, donor: _Tree, needy: _Tree) -> None:
        lowest = [node for node in donor.lowest_inner() if node.host in needy.nodes]
        if not lowest:
            raise PartTooSmall("no lowest host is here with its place in the other tree")

        def burden(node: Node) -> tuple[bool, int, int, str]:
            return not node.accepting, node.fed, needy.nodes[node.host].level, node.host

        node = min(lowest, key=burden)
        donor.demote(node)
        needy.promote(needy.nodes[node.host])
        donor.settle()
        needy.settle()
