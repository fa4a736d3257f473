"""Which place in a stripe tree a host may have, and which of those is the best."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from volt.placement.levels import ROOTS
from volt.placement.links import Links, Node, Totals


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


class Slot(NamedTuple):
    """A place for an inner host; who hangs there, if anyone does, gives way.

    Dozens are made for each host that joins, and a frozen dataclass takes longer to make.
    """

    parent: str | None
    level: int
    held_by: Node | None = None
    entry: bool = False


class Slots(Links):
    """One stripe tree, or a part of it, and what is free there."""

    def __init__(self, limits: Limits, totals: Totals) -> None:
        super().__init__(limits.fanout, totals)
        self._limits = limits
        # Of a rack, once there is another: so entries have slots for the roots of all.
        self._most_roots = max(1, limits.fanout // 2)

    @property
    def has_spares(self) -> bool:
        """Whether the source feeds spare leaves because the tree lacks slots."""
        slots = self._limits.source_slots
        return slots is not None and self.totals.at_source > slots

    def source_has_room(self) -> bool:
        """Tell whether the source may feed another host that is no spare."""
        slots = self._limits.source_slots
        return slots is None or self.totals.at_source < slots

    def parent_order(self, node: Node, parent: Node) -> tuple[bool, bool, bool, bool, int, str]:
        """Return by what parents for a host are sorted, the best first.

        One that is whole depends on nobody: what it sends comes from nobody else.
        """
        is_slow = parent.holds_up(node)
        is_foreign, limit = parent.is_foreign_to(node), self._limits.foreign_children
        is_full = is_foreign and limit is not None and parent.foreign >= limit
        return is_full, is_foreign, is_slow, not parent.whole, parent.level, parent.host

    def has_entry(self, node: Node) -> bool:
        """Tell whether the host's rack has an entry."""
        return any(one.is_entry for one in self.of_rack(node.rack))

    def has_racks(self) -> bool:
        """Tell whether an entry feeds another one: as long as there is one rack, none does."""
        return any(one.level > 1 for one in self.entries())

    def inner_slot(self, node: Node) -> Slot:
        """Return where the next inner host of a rack goes: as near to the root as it may."""
        if self.source_has_room():
            return Slot(None, 1)
        if self.totals.inner < (self._limits.source_slots or 0):
            spares = [Slot(None, 1, leaf) for leaf in self.at_source() if not leaf.inner]
            if (slot := self._nearest(node, spares)) is not None:
                return slot
        if self.fanout == 1 or not self.has_entry(node):
            return self._nearest(node, self._entry_slots()) or self._any_slot(node)
        return self._nearest(node, self._home_slots(node)) or self.root_slot(node)

    def root_slot(self, node: Node) -> Slot:
        """Return where an inner host goes whose rack has an entry, and no room for it.

        One that feeds others goes below an entry or to the source: no entry is below it.
        """
        home = [one for one in self.entries() if one.is_home_of(node)]
        slot = self._nearest(node, self._slots(node, home)) or self._nearest(
            node, self._slots(node, self.entries())
        )
        if slot is None:
            return Slot(None, 1) if node.fed else self._any_slot(node)
        return slot

    def _any_slot(self, node: Node) -> Slot:
        anywhere = self._slots(node, self.nodes.values())
        return self._nearest(node, anywhere) or Slot(None, 1)  # as a spare

    def _nearest(self, node: Node, slots: Iterable[Slot]) -> Slot | None:
        found = list(slots)
        nearest = min((slot.level for slot in found), default=0)
        best = (slot for slot in found if slot.level == nearest)
        return min(best, key=lambda slot: self._slot_order(node, slot), default=None)

    def _entry_slots(self) -> list[Slot]:
        """Return the places of the tree of entries: entries are all that do not give way."""
        accepting = [one for one in self.entries() if one.accepting]
        found = [
            Slot(one.host, one.level + 1, None, True) for one in accepting if one.fed < self.fanout
        ]
        for entry in accepting:
            found += [
                Slot(entry.host, child.level % ROOTS, child, True)
                for child in self.below(entry)
                if not child.is_entry
            ]
        return found

    def _home_slots(self, node: Node) -> list[Slot]:
        """Return the places below inner hosts of the host's own rack.

        Those below its entry are for roots, as long as the rack may have another.
        """
        of_rack = [one for one in self.of_rack(node.rack) if one.inner]
        is_full = self.has_racks() and sum(one.is_root for one in of_rack) >= self._most_roots
        return self._slots(node, (one for one in of_rack if not (is_full and one.is_entry)))

    def _slots(self, node: Node, parents: Iterable[Node]) -> list[Slot]:
        """Return the places below these that are free, or held by one that may give way.

        That is a leaf, or below the entry of the host's own rack a root of another.
        """
        asker = Node(node.host, node.rack, None, 1, inner=True)
        found: list[Slot] = []
        for parent in parents:
            if parent.inner and parent.accepting and parent.host != node.host:
                level = self.level_below(parent.host, asker, False)
                if parent.fed < self.fanout:
                    found.append(Slot(parent.host, level))
                home = parent.is_entry and parent.is_home_of(node)
                found += [
                    Slot(parent.host, level, child)
                    for child in self.below(parent)
                    if not child.inner or (home and child.is_root and child.is_foreign_to(node))
                ]
        return found

    def _slot_order(self, node: Node, slot: Slot) -> tuple[bool, bool, bool, int, str]:
        """Return by what slots of one level are sorted: its own, its rack's, then free ones."""
        held_by = slot.held_by
        if held_by is None:
            is_own, cost, name = False, 0, str(slot.parent)
        else:
            is_own, cost, name = held_by is node, 2 if held_by.inner else 1, held_by.host
        if slot.parent is None:
            return not is_own, False, False, cost, name
        parent = self.nodes[slot.parent]
        # One of another rack in the place of another such leaves the parent as mixed as it is.
        keeps = held_by is not None and parent.is_foreign_to(held_by)
        is_full, is_foreign, *_ = self.parent_order(node, parent)
        return not is_own, is_full and not keeps, is_foreign, cost, name
