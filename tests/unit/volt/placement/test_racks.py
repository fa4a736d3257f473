"""How often bytes of a stripe come into a rack, whatever happens to its hosts."""

import math
import random
from collections import Counter

import testtools
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.volt.placement.test_forest import (
    check,
    hosts_of,
    is_foreign,
    moves,
    parents_of,
    part_of,
)
from volt.placement import shapes
from volt.placement.links import Newcomer
from volt.placement.part import Change
from volt.placement.rules import Rules, Shape

RULES = Rules(Shape.FOREST, 2, 2)
SIZES = st.lists(st.integers(2, 12), min_size=2, max_size=8)


def in_racks(sizes):
    """Return hosts with their racks, rack by rack."""
    return [
        (f"h{rack}-{one:02}", f"r{rack}") for rack, size in enumerate(sizes) for one in range(size)
    ]


def grown(joining, rules=RULES):
    forest = shapes.empty(rules)
    for host, rack in joining:
        forest.join(Newcomer(host, rack))
    return forest


def ways_in(forest, stripe):
    """Return how many hosts of each rack get the stripe from elsewhere."""
    return Counter(
        node.rack
        for node in forest.nodes(stripe)
        if node.parent is None or is_foreign(forest, stripe, node.host)
    )


def entries_of(forest, stripe):
    return {node.rack: node for node in forest.nodes(stripe) if node.is_entry}


def inner_of(forest, stripe, rack):
    return sum(node.inner for node in forest.nodes(stripe) if node.rack == rack)


def strays_in_and_out(forest, stripe, rack):
    """Tell whether a rack has strays although it feeds those of other racks."""
    strays = [node for node in forest.nodes(stripe) if node.stray]
    feeds = any(forest.node(node.parent, stripe).rack == rack for node in strays)
    return feeds and any(node.rack == rack for node in strays)


class TestWaysIn(testtools.TestCase):
    @settings(deadline=None, max_examples=40)
    @given(SIZES, st.randoms(use_true_random=False))
    @example([2, 10, 3, 2], random.Random(64))  # a host too few of a rack was inner in one stripe
    @example([3, 4], random.Random(33))  # all hosts of a rack were inner in the same stripe
    @example([10, 3, 3, 2], random.Random(2728945332))  # a stray took the slot of another's rack
    @example([7, 12, 8, 7, 11, 6], random.Random(4059781499))  # racks had two roots each
    @example([2, 4, 3, 2, 2, 3, 2, 5], random.Random(1419890088))  # an heir inherited strays
    @example([9, 5, 11], random.Random(4206140156))  # roots hung below each other's entries
    def test_a_rack_gets_a_stripe_about_once(self, sizes, dice):
        """Three times at most, as hosts only join.

        A rack of n hosts, i of them inner, gets a stripe n - 2i times, and once more for each
        link that leaves the rack and for each free slot. As n is the sum of its inner hosts in
        both stripes, which differ by one at most, n - 2i is at most 1. If a stray comes in, no
        slot is free, and only the entry feeds other racks: two hosts at most. If none does,
        what comes in are the entry and the roots, and these are two at most.
        """
        joining = in_racks(sizes)
        dice.shuffle(joining)
        forest = grown(joining)
        check(forest)
        for stripe in (0, 1):
            ways = ways_in(forest, stripe)
            assert max(ways.values()) <= 3, ways
            assert ways.total() <= 2.5 * len(sizes), ways
            for rack in {rack for _, rack in joining}:
                assert not strays_in_and_out(forest, stripe, rack)
        for rack in {rack for _, rack in joining}:
            first, second = (inner_of(forest, stripe, rack) for stripe in (0, 1))
            assert abs(first - second) <= 1

    def test_racks_of_a_size_get_it_once_or_twice(self):
        for seed in range(5):
            joining = in_racks([20] * 12)
            random.Random(seed).shuffle(joining)
            forest = grown(joining)
            ways = [ways_in(forest, stripe) for stripe in (0, 1)]
            assert max(max(one.values()) for one in ways) <= 2
            assert sum(one.total() for one in ways) <= 2 * 12 * 1.7

    @settings(deadline=None, max_examples=20)
    @given(SIZES)
    def test_it_is_so_if_racks_join_one_after_the_other(self, sizes):
        forest = grown(in_racks(sizes))
        check(forest)
        for stripe in (0, 1):
            assert max(ways_in(forest, stripe).values()) <= 3

    def test_trees_stay_low(self):
        for sizes, more in (([16] * 16, 2), ([4] * 64, 2), ([128, 128], 2)):
            joining = in_racks(sizes)
            for _ in ("one rack after the other", "in any order"):
                forest = grown(joining)
                depth = max(depth for stripe in (0, 1) for _, depth in forest.breadth_first(stripe))
                assert depth <= math.log2(len(joining)) + more
                random.Random(1).shuffle(joining)

    def test_one_rack_has_the_trees_of_none(self):
        dice = random.Random(5)
        known, unknown = shapes.empty(RULES), shapes.empty(RULES)
        for number in range(120):
            known.join(Newcomer(f"h{number}", "r1"))
            unknown.join(Newcomer(f"h{number}"))
            if number % 3 == 0:
                gone = dice.choice(hosts_of(known))
                known.leave(gone)
                unknown.leave(gone)
            assert parents_of(known) == parents_of(unknown)

    def test_a_rack_has_one_entry_a_stripe_and_its_hosts_share_the_work(self):
        joining = in_racks([10] * 6)
        random.Random(3).shuffle(joining)
        forest = grown(joining)
        found = [entries_of(forest, stripe) for stripe in (0, 1)]
        for rack in ("r0", "r5"):
            assert found[0][rack].host != found[1][rack].host
            assert [inner_of(forest, stripe, rack) for stripe in (0, 1)] == [5, 5]


class TestChanges(testtools.TestCase):
    def forest(self):
        joining = in_racks([12] * 8)
        random.Random(2).shuffle(joining)
        return grown(joining)

    def test_another_host_of_the_rack_takes_the_place_of_an_entry(self):
        forest = self.forest()
        for stripe in (0, 1):
            for rack in sorted(entries_of(forest, stripe)):
                entry = entries_of(forest, stripe)[rack]
                place, ways = entry.parent, ways_in(forest, stripe)[rack]
                forest.leave(entry.host)
                check(forest)
                [heir] = [n for n in forest.nodes(stripe) if n.is_entry and n.rack == rack]
                assert heir.parent == place
                assert ways_in(forest, stripe)[rack] <= ways + 1

    def test_a_host_that_is_drained_is_no_entry_any_more(self):
        forest = self.forest()
        entry = entries_of(forest, 0)["r3"]
        place = entry.parent
        forest.drain(entry.host)
        check(forest)
        heir = entries_of(forest, 0)["r3"]
        assert (heir.host != entry.host) and heir.parent == place

    def test_a_rack_that_dies_leaves_the_others_about_as_they_were(self):
        forest = self.forest()
        for host in [host for host in hosts_of(forest) if host.startswith("h4-")]:
            forest.leave(host)
        check(forest)
        for stripe in (0, 1):
            assert entries_of(forest, stripe).keys() == {f"r{n}" for n in range(8) if n != 4}
            assert max(ways_in(forest, stripe).values()) <= 4

    def test_the_standby_of_who_is_fed_from_another_rack_is_not_in_that_rack(self):
        forest = self.forest()
        for stripe in (0, 1):
            for node in forest.nodes(stripe):
                edge = forest.edge(node.host, stripe)
                if (
                    node.inner
                    and edge.standby is not None
                    and is_foreign(forest, stripe, node.host)
                ):
                    racks = [forest.node(one, stripe).rack for one in (edge.parent, edge.standby)]
                    assert racks[0] != racks[1]

    def test_a_host_that_joins_moves_few(self):
        forest = self.forest()
        moved = []
        for number in range(60):
            before = parents_of(forest)
            forest.join(Newcomer(f"n{number}", f"r{number % 10}"))
            moved.append(moves(before, parents_of(forest)))
        assert sum(moved) / 60 <= 4
        assert max(moved) <= 12

    def test_a_rack_that_lives_on_gets_no_more_ways_in(self):
        forest, dice = self.forest(), random.Random(9)
        for number in range(200):
            gone = dice.choice(hosts_of(forest))
            rack = forest.node(gone, 0).rack
            forest.leave(gone)
            forest.join(Newcomer(f"n{number}", rack))
        check(forest)
        for stripe in (0, 1):
            assert max(ways_in(forest, stripe).values()) <= 4
            assert ways_in(forest, stripe).total() <= 2.5 * 8

    def test_removals_end(self):
        forest, dice = self.forest(), random.Random(4)
        for host in dice.sample(hosts_of(forest), 96):
            forest.leave(host)
            check(forest)
        assert not forest.nodes(0)

    def test_a_part_is_small_however_many_hosts_there_are(self):
        for racks in (5, 40):
            forest = grown(in_racks([20] * racks))
            part = part_of(RULES, forest, Change(racks={"r3": 1}, joins=1))
            assert sum(len(part.nodes(stripe)) for stripe in (0, 1)) <= 110
