"""Where a host hangs in an image's attach trees, and who moves when it comes or goes.

An image has k stripe trees over the same hosts. With k > 1 a host is *inner* (may feed
up to f others) in one tree, its *colour*, and a leaf in all others, so that it uploads
about one image in all (SplitStream, SOSP 2003; Sanders, Speck, Traeff 2009)::

    stripe 0, k = f = 2      stripe 1
    source                   source
    `- a*                    `- b*
       |- c*                    |- a
       |  |- d                  `- d*
       |  `- e                     |- c
       `- b                        `- e

Each tree is *compact*: no leaf and no free slot lies nearer to the root than any inner
host but those of the lowest inner level. Hence the depth is at most
``ceil(log_f(N)) + 2`` for f >= 2, and removing an inner host costs O(f) moves: a host
of the lowest inner level takes its place.

The source feeds one child per tree. With k >= 3 and few hosts a tree can lack slots
however its hosts are coloured (two hosts and three trees); only then does the source
feed the *spare* leaves of that tree too, until a slot comes free.
"""

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Member:
    """A host's stored place: its colour and its parent in each tree (None: the source)."""

    host: str
    colour: int
    parents: tuple[str | None, ...]


@dataclass(frozen=True)
class Edge:
    """Who feeds a host in one tree; None is the source.

    ``standby`` is the parent's parent. It has a meaning only where the parent is a
    host: whom the source feeds has no standby.
    """

    parent: str | None
    standby: str | None


class _Tree:
    """One stripe tree; the node None is the source."""

    def __init__(self, fanout: int, source_slots: int, rank: dict[str, int]) -> None:
        self.inner: set[str] = set()
        self.parent: dict[str, str | None] = {}
        self.children: dict[str | None, list[str]] = {None: []}
        self._fanout = fanout
        self._source_slots = source_slots
        self._rank = rank

    @property
    def crowded(self) -> bool:
        """Whether the source feeds spare leaves because the tree lacks slots."""
        return len(self.children[None]) > self._source_slots

    def walk(self) -> Iterator[tuple[str | None, int]]:
        """Yield the source (depth 0), then each host with its depth, breadth first."""
        level: list[str | None] = [None]
        depth = 0
        while level:
            for node in level:
                yield node, depth
            level = [child for node in level for child in self.children[node]]
            depth += 1

    def depth(self, host: str) -> int:
        """Return the number of hops from the source."""
        hops = 1
        while (parent := self.parent[host]) is not None:
            host, hops = parent, hops + 1
        return hops

    def hang(self, host: str, parent: str | None) -> None:
        self.parent[host] = parent
        self.children.setdefault(host, [])
        insort(self.children[parent], host, key=self._rank.__getitem__)

    def add_leaf(self, host: str) -> None:
        """Hang a host that feeds nobody; as a spare of the source if no slot is free."""
        self.hang(host, next((node for node, _ in self.walk() if self._has_room(node)), None))

    def add_inner(self, host: str) -> None:
        """Hang a host that may feed others as near to the root as compactness asks."""
        parent, displaced, _ = self._inner_place()
        self.inner.add(host)
        if displaced is not None:
            self._unhang(displaced)
        self.hang(host, parent)
        if displaced is not None:
            self.hang(displaced, host)

    def remove(self, host: str) -> None:
        """Take a host out; whom it fed is fed by others."""
        orphans: list[str] = []
        if host in self.inner:
            heir = self._heir(host)
            orphans = self.children[host][:] if heir is None else self._succeed(host, heir)
            self.inner.remove(host)
        for orphan in orphans:
            self._unhang(orphan)
        self._unhang(host)
        del self.children[host]
        for orphan in orphans:
            self.add_leaf(orphan)

    def demote(self, host: str) -> None:
        """Make a host of the lowest inner level a leaf, where it hangs."""
        self.inner.remove(host)
        orphans = self.children[host][:]
        for orphan in orphans:
            self._unhang(orphan)
        for orphan in orphans:
            self.add_leaf(orphan)

    def promote(self, host: str) -> None:
        """Make a leaf inner: where it hangs if no place is nearer to the root."""
        _, _, depth = self._inner_place()
        if not self._is_spare(host) and self.depth(host) <= depth:
            self.inner.add(host)
        else:
            self._unhang(host)
            self.add_inner(host)

    def settle(self) -> None:
        """Move the source's spare leaves into slots that came free."""
        while self.crowded:
            slot = next((node for node, _ in self.walk() if self._has_room(node)), None)
            if slot is None:
                return
            spare = next(host for host in reversed(self.children[None]) if host not in self.inner)
            self._unhang(spare)
            self.hang(spare, slot)

    def lowest_inner(self) -> list[str]:
        """Return the inner hosts farthest from the root."""
        inner = [(node, depth) for node, depth in self.walk() if node in self.inner]
        lowest = max((depth for _, depth in inner), default=0)
        return [node for node, depth in inner if depth == lowest and node is not None]

    def _unhang(self, host: str) -> None:
        self.children[self.parent.pop(host)].remove(host)

    def _has_room(self, node: str | None) -> bool:
        if node is None:
            return len(self.children[None]) < self._source_slots
        return node in self.inner and len(self.children[node]) < self._fanout

    def _is_spare(self, host: str) -> bool:
        """Whether the source feeds this leaf beside an inner child."""
        return (
            self.parent[host] is None
            and host not in self.inner
            and any(child in self.inner for child in self.children[None])
        )

    def _inner_place(self) -> tuple[str | None, str | None, int]:
        """Return parent, leaf to displace (or None) and depth of the next inner host.

        The place is the nearest to the root; a free slot before a leaf at equal depth.
        """
        places: list[tuple[int, int, str | None, str | None]] = []
        for node, depth in self.walk():
            if self._has_room(node):
                places.append((depth + 1, 0, node, None))
            elif node is not None and node not in self.inner and not self._is_spare(node):
                places.append((depth, 1, self.parent[node], node))
        depth, _, parent, displaced = min(places, key=lambda place: place[:2])
        return parent, displaced, depth

    def _heir(self, host: str) -> str | None:
        """Return who takes an inner host's place with the fewest moves, if anyone must."""
        if self._fanout == 1:  # a chain stays compact when it closes up
            return next(iter(self.children[host]), None)
        lowest = self.lowest_inner()
        if host in lowest:
            return None
        fed = self.children[host]

        def moves(heir: str) -> int:
            inherited = len(fed) - (heir in fed)
            return inherited + max(0, inherited + len(self.children[heir]) - self._fanout)

        return min(lowest, key=moves)

    def _succeed(self, host: str, heir: str) -> list[str]:
        """Put the heir above the host's children; return its own that it cannot keep."""
        place = self.parent[host]
        self._unhang(heir)
        inherited = self.children[host][:]
        orphans = self.children[heir][self._fanout - len(inherited) :]
        for child in inherited:
            self._unhang(child)
            self.hang(child, heir)
        self.hang(heir, place)
        return orphans


class Forest:
    """The stripe trees of one image."""

    def __init__(self, stripes: int, fanout: int) -> None:
        """Raise ShapeInvalid if ``fanout`` cannot carry ``stripes`` trees."""
        _check_forest(stripes, fanout)
        self._rank: dict[str, int] = {}
        self._colour: dict[str, int] = {}
        source_slots = fanout if stripes == 1 else 1
        self._trees = [_Tree(fanout, source_slots, self._rank) for _ in range(stripes)]

    @classmethod
    def restore(cls, stripes: int, fanout: int, members: Iterable[Member]) -> "Forest":
        """Rebuild a forest from ``members()``, given in the order in which they joined."""
        forest = cls(stripes, fanout)
        stored = list(members)
        for rank, member in enumerate(stored):
            forest._rank[member.host] = rank
            forest._colour[member.host] = member.colour
            forest._trees[member.colour].inner.add(member.host)
            for tree in forest._trees:
                tree.children[member.host] = []
        for member in stored:
            for tree, parent in zip(forest._trees, member.parents, strict=True):
                tree.hang(member.host, parent)
        return forest

    def members(self) -> list[Member]:
        """Return what ``restore`` needs, in the order of joining."""
        return [
            Member(host, self._colour[host], tuple(tree.parent[host] for tree in self._trees))
            for host in self._rank
        ]

    def join(self, host: str) -> frozenset[str]:
        """Place a host; return it and all others whose parent or standby changed.

        Raises HostPlaced if it already has a place.
        """
        if host in self._rank:
            raise HostPlaced(f"host {host} already has a place; let it leave first")
        before = self._edges()
        colour = min(range(len(self._trees)), key=lambda stripe: len(self._trees[stripe].inner))
        self._rank[host] = max(self._rank.values(), default=-1) + 1
        self._colour[host] = colour
        self._trees[colour].add_inner(host)
        for tree in self._trees:
            if tree is not self._trees[colour]:
                tree.add_leaf(host)
        self._balance()
        return self._changed_since(before)

    def leave(self, host: str) -> frozenset[str]:
        """Remove a host; return the others whose parent or standby changed.

        Raises HostUnknown if it has no place.
        """
        self._check_placed(host)
        before = self._edges()
        for tree in self._trees:
            tree.remove(host)
        del self._rank[host], self._colour[host]
        self._balance()
        return self._changed_since(before)

    def colour(self, host: str) -> int:
        """Return the stripe in whose tree the host may feed others."""
        self._check_placed(host)
        return self._colour[host]

    def parent(self, host: str, stripe: int) -> str | None:
        """Return who feeds the host in that tree; None is the source."""
        return self.edge(host, stripe).parent

    def standby(self, host: str, stripe: int) -> str | None:
        """Return the parent's parent; None is the source, or nobody below the source."""
        return self.edge(host, stripe).standby

    def edge(self, host: str, stripe: int) -> Edge:
        """Return parent and standby of the host in that tree."""
        self._check_placed(host)
        parents = self._trees[stripe].parent
        parent = parents[host]
        return Edge(parent, None if parent is None else parents[parent])

    def depth(self, host: str, stripe: int) -> int:
        """Return the host's hops from the source: 1 if the source feeds it."""
        self._check_placed(host)
        return self._trees[stripe].depth(host)

    def children(self, host: str | None, stripe: int) -> tuple[str, ...]:
        """Return whom the host (None: the source) feeds in that tree."""
        if host is not None:
            self._check_placed(host)
        return tuple(self._trees[stripe].children[host])

    def breadth_first(self, stripe: int) -> list[tuple[str, int]]:
        """Return that tree's hosts with their depths, nearest to the source first."""
        return [(node, depth) for node, depth in self._trees[stripe].walk() if node is not None]

    def _check_placed(self, host: str) -> None:
        if host not in self._rank:
            raise HostUnknown(f"host {host} has no place in these trees; let it join first")

    def _balance(self) -> None:
        """Recolour hosts while that gives slots to a tree whose source feeds spares."""
        for tree in self._trees:
            tree.settle()
        while crowded := [tree for tree in self._trees if tree.crowded]:
            needy = min(crowded, key=lambda tree: len(tree.inner))
            donor = max(self._trees, key=lambda tree: len(tree.inner))
            if len(donor.inner) - len(needy.inner) < 2:
                return
            self._recolour(donor, needy)

    def _recolour(self, donor: _Tree, needy: _Tree) -> None:
        host = min(
            donor.lowest_inner(),
            key=lambda host: (len(donor.children[host]), needy.depth(host)),
        )
        donor.demote(host)
        needy.promote(host)
        self._colour[host] = self._trees.index(needy)
        donor.settle()
        needy.settle()

    def _edges(self) -> dict[str, tuple[Edge, ...]]:
        stripes = range(len(self._trees))
        return {host: tuple(self.edge(host, stripe) for stripe in stripes) for host in self._rank}

    def _changed_since(self, before: dict[str, tuple[Edge, ...]]) -> frozenset[str]:
        return frozenset(host for host, edges in self._edges().items() if before.get(host) != edges)


DEFAULTS = {
    Shape.FOREST: (2, 2),
    Shape.TREE: (1, 2),
    Shape.STAR: (1, 0),
    Shape.CHAIN: (1, 1),
}
"""Stripes and fan-out of each shape where nobody says otherwise."""


def check_shape(shape: Shape, stripes: int, fanout: int) -> None:
    """Raise ShapeInvalid unless trees of that shape carry every host."""
    if shape in (Shape.STAR, Shape.CHAIN) and (stripes, fanout) != DEFAULTS[shape]:
        raise ShapeInvalid(f"a {shape} has its own stripes and fan-out: leave them out")
    if shape == Shape.TREE and (stripes != 1 or fanout < 1):
        raise ShapeInvalid("a tree has one stripe and a fan-out of at least 1")
    if shape == Shape.FOREST:
        _check_forest(stripes, fanout)


def _check_forest(stripes: int, fanout: int) -> None:
    if stripes < 1 or fanout < stripes:
        raise ShapeInvalid(
            f"{stripes} stripes with fan-out {fanout} cannot carry every host: "
            "take at least one stripe and a fan-out of at least the number of stripes"
        )
