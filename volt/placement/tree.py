"""Where a host hangs in one stripe tree, and who moves when it comes or goes.

Inner hosts are *compact*: a new one goes to the free slot or the leaf nearest to the root
(the leaf then moves below), and one that goes is replaced by one of the lowest level. With
f >= 2 that holds of the entries of all racks among themselves, and of the inner hosts of each
rack (``volt.placement.levels``). Hence the depth of N hosts of one rack is at most
``ceil(log_f(N)) + 2``. It does not matter for the depth which inner host of a rack a leaf hangs
under, nor much which rack's: leaves stay in their own where there is room.
"""

from collections.abc import Collection, Iterator

from volt.placement.links import Node, PartTooSmall
from volt.placement.slots import Slot, Slots


class Tree(Slots):
    """One stripe tree, or a part of it."""

    def add_leaf(self, node: Node) -> None:
        """Hang a host that feeds nobody; as a spare of the source if no slot is free."""
        if self.source_has_room():
            self.hang(node, None)
            return
        best = min(self.open(), key=lambda one: self.parent_order(node, one), default=None)
        self.hang(node, None if best is None else best.host)
        if best is not None and node.stray:
            self._bring_home(node.rack)
            self._bring_home(best.rack)

    def add_inner(self, node: Node, slot: Slot) -> None:
        """Hang a host that may feed others, as near to the root as compactness asks."""
        self._take(node, slot)

    def remove(self, host: str) -> None:
        """Take a host out; whom it fed is fed by others."""
        node = self.nodes[host]
        orphans: list[Node] = []
        heir = self._heir(node) if node.inner else None
        if node.inner:
            orphans = self.children(node) if heir is None else self._succeed(node, heir)
            self.set_inner(node, False)
        for orphan in orphans:
            self.unhang(orphan)
        self.unhang(node)
        self.forget(host)
        for orphan in orphans:
            self._rehang(orphan)
        for one in orphans if heir is None else [heir, *orphans]:
            self._bring_home(one.rack)

    def demote(self, node: Node) -> None:
        """Make an inner host a leaf."""
        self.remove(node.host)
        self.add_leaf(node)

    def promote(self, node: Node) -> None:
        """Make a leaf inner: where it hangs if no place is nearer to the root."""
        slot = self.inner_slot(node)
        if slot.held_by is node:
            node.level = slot.level
            self.set_inner(node, True)
            self._bring_home(node.rack)
        else:
            self.unhang(node)
            self._take(node, slot)

    def use_free_slots(self) -> None:
        """Move the source's spare leaves into slots that came free."""
        while self.has_spares:
            spare = next((node for node in self.at_source() if not node.inner), None)
            if spare is None or not self.open():
                return
            self.unhang(spare)
            self.add_leaf(spare)

    def slow_above(self, but: Collection[str]) -> Node | None:
        """Return a slow host that feeds a faster inner one, the nearest to the root of these.

        Only of hosts that are unsettled, and but for those that are named.
        """
        found = {
            slow.host: slow
            for name in self.unsettled & self.nodes.keys()
            for slow, fed in self._inner_links(self.nodes[name])
            if slow.holds_up(fed) and slow.host not in but
        }
        return min(found.values(), key=lambda one: (one.level, one.host), default=None)

    def faster_below(self, slow: Node) -> Node | None:
        """Return a much faster inner host of a slow one's rack, the lowest that may take its place.

        That is one that is lower, and whom the slow one would not hold up more of in its place.
        """
        fit = [
            one
            for one in self.of_rack(slow.rack)
            if one.inner
            and slow.holds_up(one)
            and one.level > slow.level
            and one.host != slow.parent
            and one.accepting
            and slow.accepting
            and self.is_complete(one)
            and not any(child.inner and slow.holds_up(child) for child in self.below(one))
        ]
        return max(fit, key=lambda one: (one.level, one.host), default=None)

    def exchange(self, upper: Node, lower: Node) -> None:
        """Let two inner hosts of a rack change places: parents, levels, and whom they feed.

        The lower one may hang anywhere below the upper one, but not the other way round.
        """
        above, below = (upper.level, upper.is_entry), (lower.level, lower.is_entry)
        parent, other_parent = upper.parent, lower.parent
        fed_above = [child for child in self.children(upper) if child is not lower]
        fed_below = self.children(lower)
        for one in (*fed_below, lower, *fed_above, upper):
            self.unhang(one)
        self._put(lower, parent, *above)
        for child in fed_above:
            self._put(child, lower.host, child.level, child.is_entry)
        self._put(upper, lower.host if other_parent == upper.host else other_parent, *below)
        for child in fed_below:
            self._put(child, upper.host, child.level, child.is_entry)

    def lowest_inner(self) -> list[Node]:
        """Return the inner hosts farthest from the root, of those whose links are all here."""
        return self._lowest([node for node in self.nodes.values() if node.inner])

    def lowest_of(self, rack: str) -> list[Node]:
        """Return the inner hosts of a rack that are farthest from its entry, like that."""
        return self._lowest([node for node in self.of_rack(rack) if node.inner])

    def need(self, rack: str | None) -> int:
        """Return how many more hosts a rack has than its inner hosts here can feed.

        That is what comes in from other racks, less what goes out to them or could.
        """
        if rack is None:
            return 0
        of_rack = self.of_rack(rack)
        into = sum(self.comes_in(node) for node in of_rack)
        rooms = sum(self.fanout - node.fed for node in of_rack if node.inner)
        return into - rooms - sum(node.foreign for node in of_rack)

    def _inner_links(self, node: Node) -> Iterator[tuple[Node, Node]]:
        """Return the links between inner hosts that this one has, parents first."""
        if not node.inner:
            return
        if node.parent in self.nodes:
            yield self.nodes[node.parent], node
        yield from ((node, child) for child in self.below(node) if child.inner)

    def _put(self, node: Node, parent: str | None, level: int, entry: bool) -> None:
        """Hang a host at a level that is known."""
        self.hang(node, parent, entry)
        node.level = level

    def _lowest(self, inner: list[Node]) -> list[Node]:
        lowest = max((node.level for node in inner), default=0)
        found = [node for node in inner if node.level == lowest and self.is_complete(node)]
        if inner and not found:
            raise PartTooSmall("no lowest host is here with all its links")
        return found

    def _take(self, node: Node, slot: Slot) -> None:
        """Hang an inner host, and who gave way to it; bring strays of its rack home."""
        held_by = slot.held_by
        self.set_inner(node, True)
        if held_by is not None:
            self.unhang(held_by)
        self.hang(node, slot.parent, slot.entry)
        is_guest = held_by is not None and not held_by.inner and held_by.is_foreign_to(node)
        if held_by is not None and not is_guest:
            self._rehang(held_by)
        if node.fed and node.is_entry:  # a root that had to go to the source
            self._level(node)
        self._bring_home(node.rack)
        if held_by is not None and is_guest:
            self._rehang(held_by)

    def _rehang(self, node: Node) -> None:
        """Hang a host that another has displaced, or that has lost its parent."""
        if node.inner:
            self._take(node, self.root_slot(node))
        else:
            self.add_leaf(node)

    def _bring_home(self, rack: str | None) -> None:
        """Hang strays of a rack below its own hosts, where there is room or others' strays hang.

        So a rack that feeds strays has none, as far as that is here.
        """
        strays = [one for one in self.of_rack(rack) if one.stray]
        for stray in sorted(strays, key=lambda one: one.host):
            away = self.nodes.get(str(stray.parent))
            if away is None:  # it is to be hung itself
                continue
            if any(one.has_room(self.fanout) for one in self.of_rack(rack)):
                self.unhang(stray)
                self.add_leaf(stray)
            elif (guest := self._guest(rack)) is None:
                return
            elif away.accepting:
                home = guest.parent
                self.unhang(guest)
                self.unhang(stray)
                self.hang(stray, home)
                self.hang(guest, away.host)

    def _guest(self, rack: str | None) -> Node | None:
        """Return a leaf of another rack that a host of this one feeds, nearest first."""
        leaves = (
            leaf
            for parent in self.of_rack(rack)
            if parent.accepting and parent.foreign
            for leaf in self.below(parent)
            if leaf.stray
        )
        return min(leaves, key=lambda leaf: (leaf.level, leaf.host), default=None)

    def _heir(self, node: Node) -> Node | None:
        """Return who takes an inner host's place with the fewest moves, if anyone must.

        One of the lowest of its rack. If an entry is the last inner host of its rack, it is one
        of the lowest entries; if it is the last entry, any of the lowest.
        """
        if self.fanout == 1:  # hosts in a row stay compact when they close up
            return next(iter(self.children(node)), None)
        inner = [one for one in self.nodes.values() if one.inner]
        of_rack = [one for one in self.of_rack(node.rack) if one.inner and not one.is_entry]
        found = self._lower(node, of_rack)
        if not found and node.is_entry:
            others = [one for one in self.entries() if one is not node]
            found = self._lower(node, others or inner)
        if found and not any(one.accepting for one in found):
            found += self._lower(node, inner)

        def order(heir: Node) -> tuple[bool, int, bool, str]:
            moves = self._moves(node, heir)
            return not heir.accepting, moves, heir.rack != node.rack, heir.host

        return min(found, key=order, default=None)

    def _lower(self, node: Node, among: list[Node]) -> list[Node]:
        """Return the lowest of these that are lower than the host, and do not hang above it.

        Only one that feeds an inner host of another rack, for lack of slots, has anyone of a
        level less than its own below it.
        """
        return [
            one
            for one in self._lowest(among)
            if one.level > node.level
            and all(child.level > one.level for child in self.children(one) if child.inner)
        ]

    def _moves(self, node: Node, heir: Node) -> int:
        """Return how many hosts get another parent if the heir takes the place of the node."""
        inherited = node.fed - 1 if heir.parent == node.host else node.fed
        return inherited + max(0, inherited + heir.fed - self.fanout)

    def _succeed(self, node: Node, heir: Node) -> list[Node]:
        """Put the heir above the host's children; return its own that it cannot keep."""
        place, is_entry = node.parent, node.is_entry
        own = sorted(self.children(heir), key=lambda one: not one.inner)
        self.unhang(heir)
        inherited = self.children(node)
        orphans = own[max(0, self.fanout - len(inherited)) :]
        self.hang(heir, place, is_entry)
        for child in inherited:
            level = child.level
            self.unhang(child)
            self.hang(child, heir.host, child.is_entry)
            child.level = level
        self._level(heir, own)
        return orphans

    def _level(self, node: Node, children: list[Node] | None = None) -> None:
        """Give the host's children their levels anew, all or some."""
        for child in self.children(node) if children is None else children:
            child.level = self.level_below(node.host, child, child.is_entry)
            self.changed.add(child.host)
