"""Where a host hangs in one stripe tree, and who moves when it comes or goes.

Inner hosts are *compact*: a new one goes to the free slot or the leaf nearest to the root
(the leaf then moves below), and one that goes is replaced by one of the lowest level. Hence
the depth is at most ``ceil(log_f(N)) + 2`` for f >= 2, and it does not matter for the depth
which inner host a leaf hangs under: that is where racks decide.
"""

from dataclasses import dataclass
from typing import NamedTuple

from volt.placement.links import Links, Node, PartTooSmall, Totals


@dataclass(frozen=True)
class Limits:
    """How many hosts may be fed in each of so many trees.

    By a host: ``fanout``, of them ``foreign_children`` of other racks while another place is
    left (None: any). By the source: ``source_slots`` (None: all) before any are spares.
    """

    stripes: int
    fanout: int
    source_slots: int | None
    foreign_children: int | None = None


class _Slot(NamedTuple):
    """A place for an inner host; the leaf that hangs there, if one does, moves below it.

    Dozens are made for each host that joins, and a frozen dataclass takes longer to make.
    """

    parent: str | None
    level: int
    leaf: Node | None = None


class Tree(Links):
    """One stripe tree, or a part of it."""

    def __init__(self, limits: Limits, totals: Totals) -> None:
        super().__init__(limits.fanout, totals)
        self._limits = limits

    @property
    def has_spares(self) -> bool:
        """Whether the source feeds spare leaves because the tree lacks slots."""
        slots = self._limits.source_slots
        return slots is not None and self.totals.at_source > slots

    def source_has_room(self) -> bool:
        """Tell whether the source may feed another host that is no spare."""
        slots = self._limits.source_slots
        return slots is None or self.totals.at_source < slots

    def parent_order(self, node: Node, parent: Node) -> tuple[bool, bool, bool, int, str]:
        """Return by what parents for a host are sorted, the best first.

        Whoever is whole is a root: what it sends comes from nobody else.
        """
        is_foreign, limit = parent.is_foreign_to(node), self._limits.foreign_children
        is_full = is_foreign and limit is not None and parent.foreign >= limit
        return is_full, is_foreign, not parent.whole, parent.level, parent.host

    def add_leaf(self, node: Node) -> None:
        """Hang a host that feeds nobody; as a spare of the source if no slot is free."""
        if self.source_has_room():
            self.hang(node, None)
            return
        best = min(self.open(), key=lambda one: self.parent_order(node, one), default=None)
        if best is not None and best.is_foreign_to(node):
            yielding = self._foreign_leaf_beside(node)
            if yielding is not None:
                parent = yielding.parent
                self.unhang(yielding)
                self.hang(yielding, best.host)
                self.hang(node, parent)
                return
        self.hang(node, None if best is None else best.host)

    def add_inner(self, node: Node) -> None:
        """Hang a host that may feed others as near to the root as compactness asks."""
        slot = self._inner_slot(node)
        self.set_inner(node, True)
        if slot.leaf is not None:
            self.unhang(slot.leaf)
        self.hang(node, slot.parent)
        if slot.leaf is not None:
            self.add_leaf(slot.leaf)

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
        self.forget(host)
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
        if self._may_yield(node) and node.level <= self._inner_slot(node).level:
            self.set_inner(node, True)
        else:
            self.unhang(node)
            self.add_inner(node)

    def use_free_slots(self) -> None:
        """Move the source's spare leaves into slots that came free."""
        while self.has_spares:
            spare = next((node for node in self.at_source() if not node.inner), None)
            if spare is None or not self.open():
                return
            self.unhang(spare)
            self.add_leaf(spare)

    def lowest_inner(self) -> list[Node]:
        """Return the inner hosts farthest from the root, of those whose links are all here."""
        inner = [node for node in self.nodes.values() if node.inner]
        lowest = max((node.level for node in inner), default=0)
        found = [node for node in inner if node.level == lowest and self.is_complete(node)]
        if inner and not found:
            raise PartTooSmall("no lowest host is here with all its links")
        return found

    def _foreign_leaf_beside(self, node: Node) -> Node | None:
        """Return a leaf of another rack whose parent is in the node's rack, nearest first.

        It is across racks already, so its going elsewhere makes no more links across.
        """
        leaves = (
            leaf
            for leaf in self.nodes.values()
            if not leaf.inner
            and leaf.parent is not None
            and (parent := self.nodes.get(leaf.parent)) is not None
            and parent.accepting
            and parent.rack == node.rack
            and parent.is_foreign_to(leaf)
        )
        return min(leaves, key=lambda leaf: (leaf.level, leaf.host), default=None)

    def _inner_slot(self, node: Node) -> _Slot:
        """Return where the next inner host goes: to the slot nearest to the root."""
        if self.source_has_room():
            return _Slot(None, 1)
        leaves = [leaf for leaf in self.nodes.values() if self._may_yield(leaf)]
        levels = {parent.level + 1 for parent in self.open()} | {leaf.level for leaf in leaves}
        if not levels:  # nobody accepts children: as a spare
            return _Slot(None, 1)
        nearest = min(levels)
        slots = [_Slot(one.host, nearest) for one in self.open() if one.level + 1 == nearest]
        slots += [_Slot(leaf.parent, nearest, leaf) for leaf in leaves if leaf.level == nearest]
        return min(slots, key=lambda slot: self._slot_order(node, slot))

    def _slot_order(self, node: Node, slot: _Slot) -> tuple[bool, bool, bool, str]:
        """Return by what slots of one level are sorted: the same rack, then free ones first."""
        leaf = slot.leaf
        name = leaf.host if leaf is not None else str(slot.parent)
        if slot.parent is None:
            return False, False, leaf is not None, name
        parent = self.nodes[slot.parent]
        # One of another rack in the place of another such leaves the parent as mixed as it is.
        keeps = leaf is not None and parent.is_foreign_to(leaf)
        is_full, is_foreign, *_ = self.parent_order(node, parent)
        return is_full and not keeps, is_foreign, leaf is not None, name

    def _may_yield(self, leaf: Node) -> bool:
        """Tell whether this is a leaf that may make room for an inner host."""
        if leaf.inner:
            return False
        if leaf.parent is None:
            slots = self._limits.source_slots
            return slots is not None and self.totals.inner < slots
        parent = self.nodes.get(leaf.parent)
        return parent is not None and parent.accepting

    def _heir(self, node: Node) -> Node | None:
        """Return who takes an inner host's place with the fewest moves, if anyone must."""
        if self.fanout == 1:  # hosts in a row stay compact when they close up
            return next(iter(self.children(node)), None)
        lowest = self.lowest_inner()
        if node.level == lowest[0].level:
            return None

        def order(heir: Node) -> tuple[bool, int, bool, str]:
            moves = self._moves(node, heir)
            return not heir.accepting, moves, heir.rack != node.rack, heir.host

        return min(lowest, key=order)

    def _moves(self, node: Node, heir: Node) -> int:
        """Return how many hosts get another parent if the heir takes the place of the node."""
        inherited = node.fed - 1 if heir.parent == node.host else node.fed
        return inherited + max(0, inherited + heir.fed - self.fanout)

    def _succeed(self, node: Node, heir: Node) -> list[Node]:
        """Put the heir above the host's children; return its own that it cannot keep."""
        place = node.parent
        own = self.children(heir)
        self.unhang(heir)
        inherited = self.children(node)
        orphans = own[max(0, self.fanout - len(inherited)) :]
        self.hang(heir, place)
        for child in inherited:
            level = child.level
            self.unhang(child)
            self.hang(child, heir.host)
            child.level = level
        for child in own:
            child.level = heir.level + 1
            self.changed.add(child.host)
        return orphans
