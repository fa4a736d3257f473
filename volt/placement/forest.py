"""In which stripe tree a host feeds others, so that all trees have slots for everybody.

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

The source feeds one child per tree. Where a tree lacks slots however its hosts are
dealt out (two hosts and three trees, or many hosts that must not feed others), and only
then, the source feeds *spare* leaves too, until a slot comes free.
"""

from collections.abc import Iterable, Sequence

from volt.errors import HostPlaced
from volt.placement.links import MUCH_FASTER, Newcomer, Node, PartTooSmall, Totals
from volt.placement.part import (
    ENTRIES,
    ENTRIES_OF_RACK,
    LEAVES,
    LEAVES_OF_RACK,
    LOWEST,
    LOWEST_ENTRIES,
    LOWEST_FAST_OF_RACK,
    LOWEST_OF_RACK,
    MIXED_OF_RACK,
    OPEN,
    OPEN_OF_RACK,
    ROOTS,
    ROOTS_OF_RACK,
    STRAYS_OF_RACK,
    Change,
    Pick,
)
from volt.placement.places import Places
from volt.placement.slots import Limits
from volt.placement.tree import Tree


class Forest(Places):
    """The stripe trees of one image, or a part of them."""

    def __init__(self, limits: Limits, totals: Iterable[Totals] | None = None) -> None:
        """Start without hosts; ``totals`` count those that are not in this part too."""
        counted = [Totals() for _ in range(limits.stripes)] if totals is None else totals
        self.limits = limits
        self._trees = [Tree(limits, one) for one in counted]
        self._exchanged = 0
        super().__init__(self._trees)

    def picks(self, change: Change) -> list[Pick]:
        """Return the nearest leaves and hosts with room, and the lowest inner hosts if others go.

        For racks also some of their own, and entries and roots of any rack.
        """
        fanout, stripes = self.limits.fanout, self.limits.stripes
        if fanout == 0:  # the source feeds all: there is nothing to choose
            return []
        moves = change.others * (fanout + stripes)
        leaves = change.joins + moves + self._movable_spares(change.joins + moves) + 2
        rooms = change.joins + 2 * moves + 2
        picks = [Pick(LEAVES, leaves), Pick(OPEN, rooms)]
        if change.others:
            picks.append(self._lowest(change))
        racks = change.racks.keys() | {
            node.rack for host in change.hosts if (node := self._trees[0].nodes.get(host))
        }
        known = sorted(rack for rack in racks if rack is not None)
        picks.append(Pick(ENTRIES, 1))
        if known:
            picks.append(Pick(ROOTS, len(known) + 2))
        for rack in known:
            picks += self._of_rack(rack, change)
        return picks

    def _lowest(self, change: Change) -> Pick:
        return Pick(LOWEST, change.others * self.limits.stripes + 2)

    def _of_rack(self, rack: str | None, change: Change) -> list[Pick]:
        """Return where hosts of a rack may hang, and those whose leaves may have to yield."""
        fanout = self.limits.fanout
        joins = change.joins if rack is None else change.racks.get(rack, 0)
        moves = change.others * (fanout + self.limits.stripes)
        picks = [
            Pick(OPEN_OF_RACK, joins + moves + 2, rack),
            Pick(LEAVES_OF_RACK, joins + moves + 2, rack),
            Pick(ENTRIES_OF_RACK, self.limits.source_slots or 1, rack),
        ]
        if rack is not None:
            picks += [
                Pick(MIXED_OF_RACK, joins + moves + 2, rack),
                Pick(STRAYS_OF_RACK, fanout * joins + moves + 2, rack),
                Pick(ROOTS_OF_RACK, fanout, rack),
            ]
        return picks + self._lowest_of_rack(rack, change) if change.others else picks

    def _lowest_of_rack(self, rack: str | None, change: Change) -> list[Pick]:
        return [Pick(LOWEST_OF_RACK, change.others + 1, rack)]

    def _know(self, rack: str | None) -> None:
        """Have in this part what decides about hosts of a rack.

        Where there are no racks, all that is here is of the one that is unknown.
        """
        if self.limits.fanout and (rack is not None or any(t.has_racks() for t in self._trees)):
            self._pick(self._of_rack(rack, self._change))

    def _know_heirs(self, host: str, trees: Sequence[Tree]) -> None:
        """Have those in this part who may take the host's places in these trees."""
        nodes = [tree.nodes[host] for tree in trees]
        self._know(nodes[0].rack)
        if any(node.is_entry for node in nodes):
            # the host may be one of the lowest itself, and one that is handed over counts nowhere
            self._pick([Pick(LOWEST_ENTRIES, self._change.others + 2)])

    def _know_displaced(self, held_by: Node | None, tree: Tree) -> None:
        """Have in this part whom the host feeds that gives way to another: their levels change."""
        if held_by is not None and held_by.fed and not tree.is_complete(held_by):
            self._surround(held_by.host)

    def join(self, newcomer: Newcomer) -> None:
        """Place a host; raises HostPlaced if it has a place."""
        if newcomer.host in self._trees[0].nodes:
            raise HostPlaced(f"host {newcomer.host} already has a place; let it leave first")
        self._know(newcomer.rack)
        inner = self._next_inner(newcomer.rack) if newcomer.feeds else None
        for tree in sorted(self._trees, key=lambda tree: tree is not inner):
            node = Node(newcomer.host, newcomer.rack, None, 1, inner=False)
            node.accepting, node.speed = newcomer.feeds, newcomer.speed
            if tree is inner:
                slot = tree.inner_slot(node)
                self._know_displaced(slot.held_by, tree)
                tree.add_inner(node, slot)
            else:
                tree.add_leaf(node)
        self._settle()

    def leave(self, host: str) -> None:
        """Remove a host; raises HostUnknown if it has no place."""
        self._check_placed(host)
        self._know_heirs(host, self._trees)
        for tree in self._trees:
            tree.remove(host)
        self._settle()

    def drain(self, host: str) -> None:
        """Make a host feed nobody any more; raises HostUnknown if it has no place."""
        self._check_placed(host)
        self._know_heirs(host, self._trees)
        self.overload(host)
        for tree in self._trees:
            node = tree.nodes[host]
            if node.inner:
                tree.demote(node)
        self._settle()

    def overload(self, host: str) -> None:
        """Give a host no new children; raises HostUnknown if it has no place."""
        self._accept(host, False)

    def relieve(self, host: str) -> None:
        """Let a host feed others as ever, after ``drain`` or ``overload``.

        Raises HostUnknown if it has no place.
        """
        rack = self.node(host, 0).rack
        self._know(rack)
        self._accept(host, True)
        inner = self._next_inner(rack)
        if inner is not None and not self.inner_in(host):
            inner.promote(inner.nodes[host])
        self._settle()

    def parents_for(self, host: str, rack: str | None, stripe: int) -> list[Node]:
        """Return who could be given the host as a child, best first."""
        tree = self._trees[stripe]
        asker = Node(host, rack, None, 1, inner=False)
        others = [parent for parent in tree.open() if parent.host != host]
        return sorted(others, key=lambda parent: tree.parent_order(asker, parent))

    def _movable_spares(self, slots: int) -> int:
        """Return how many of the source's spares could move if so many slots came free."""
        allowed = self.limits.source_slots
        if allowed is None:
            return 0
        spares = max(tree.totals.at_source for tree in self._trees) - allowed
        return min(max(spares, 0), slots * self.limits.fanout)

    def _accept(self, host: str, accepting: bool) -> None:
        self._check_placed(host)
        for tree in self._trees:
            tree.accept(tree.nodes[host], accepting)

    def _next_inner(self, rack: str | None) -> Tree | None:
        """Return the tree that needs another inner host of the rack most.

        If the rack has about as many in each, that is the one that has fewest of all. None where
        nobody feeds others.
        """
        if self.limits.fanout == 0:
            return None
        needs = {tree: tree.need(rack) for tree in self._trees}
        most = max(needs.values())
        needy = [tree for tree in self._trees if most - needs[tree] < self.limits.fanout]
        return min(needy, key=lambda tree: tree.totals.inner)

    def _settle(self) -> None:
        """Have slots for all, as far as that can be, and slow hosts where they hold up fewest."""
        self._balance()
        for tree in self._trees:
            self._sink(tree)

    def _sink(self, tree: Tree) -> None:
        """Let slow hosts change places with faster ones, where they feed such that feed others.

        Each time a faster host comes nearer to the root, so this ends.
        """
        left = set[str]()
        while (slow := tree.slow_above(left)) is not None:
            assert slow.speed is not None
            count = self._change.others + self._exchanged + 1  # those who did come no more
            self._pick([Pick(LOWEST_FAST_OF_RACK, count, slow.rack, MUCH_FASTER * slow.speed)])
            self._surround(slow.host)
            faster = tree.faster_below(slow)
            if faster is None:
                left.add(slow.host)
            else:
                tree.exchange(slow, faster)
                self._exchanged += 1
        tree.unsettled.clear()

    def _balance(self) -> None:
        """Let hosts feed another tree while its source feeds spares for lack of slots."""
        for tree in self._trees:
            tree.use_free_slots()
        while lacking := [tree for tree in self._trees if tree.has_spares]:
            needy = min(lacking, key=lambda tree: tree.totals.inner)
            donor = max(self._trees, key=lambda tree: tree.totals.inner)
            if donor.totals.inner - needy.totals.inner < 2:
                return
            self._hand_over(donor, needy)

    def _hand_over(self, donor: Tree, needy: Tree) -> None:
        """Let one of the donor's lowest inner hosts feed the needy tree instead.

        It is of a rack that has more of them there. While all may feed others and their racks are
        known, there is one, as the donor has more in all; so a rack's numbers of inner hosts in
        two trees differ by one at most, however hosts join.
        """
        lowest = self._lowest_of_uneven(donor, needy) or self._lowest_of(donor)
        lowest = [node for node in lowest if node.host in needy.nodes]
        if not lowest:
            raise PartTooSmall("no lowest host is here with its place in the other tree")

        def order(node: Node) -> tuple[bool, int, int, str]:
            return not node.accepting, node.fed, needy.nodes[node.host].level, node.host

        node = min(lowest, key=order)
        self._know_heirs(node.host, [donor])  # its place in a third tree need not be here
        donor.demote(node)
        needy.promote(needy.nodes[node.host])
        donor.use_free_slots()
        needy.use_free_slots()

    def _lowest_of(self, donor: Tree) -> list[Node]:
        self._pick([self._lowest(self._change)])  # hosts that join seldom need them
        return donor.lowest_inner()

    def _lowest_of_uneven(self, donor: Tree, needy: Tree) -> list[Node]:
        """Return the donor's lowest hosts of a rack with more inner hosts there.

        Racks with strays come first, as these then go home.
        """
        strays = {node.rack for node in needy.nodes.values() if node.stray and node.rack}
        for rack in (*sorted(strays), *sorted(needy.racks() - strays)):
            self._know(rack)
            if needy.need(rack) - donor.need(rack) >= self.limits.fanout:
                self._pick(self._lowest_of_rack(rack, self._change))
                if found := donor.lowest_of(rack):
                    return found
        return []
