"""What must hold in every forest, whatever happens to its hosts."""

import copy
import math
import random
from dataclasses import replace

import testtools
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.places import Memory
from volt import errors
from volt.placement import shapes
from volt.placement.levels import INSIDE, ROOTS
from volt.placement.links import Edge, Newcomer, Node, PartTooSmall, Totals
from volt.placement.part import ENTRIES, LEAVES, LOWEST, OPEN, Change, Pick, read
from volt.placement.rules import Rules, Shape

FOREST, TREE, STAR, CHAIN = Shape.FOREST, Shape.TREE, Shape.STAR, Shape.CHAIN
SHAPES = [
    Rules(STAR, 1, 0),
    Rules(CHAIN, 1, 1),
    Rules(TREE, 1, 2),
    Rules(TREE, 1, 3),
    Rules(FOREST, 1, 2),
    Rules(FOREST, 2, 2),
    Rules(FOREST, 2, 3),
    Rules(FOREST, 2, 8),
    Rules(FOREST, 3, 3),
    Rules(FOREST, 3, 4),
    Rules(FOREST, 4, 4),
]
RACKS = st.sampled_from([None, "r1", "r2", "r3"])
GIGABIT = 125_000_000  # bytes/s
SPEEDS = st.sampled_from([None, GIGABIT, 10 * GIGABIT, 10 * GIGABIT, 25 * GIGABIT])


def grow(rules, count):
    forest = shapes.empty(rules)
    for number in range(count):
        forest.join(Newcomer(f"h{number}"))
    return forest


def part_of(rules, forest, change):
    """Return what a change reads of the forest, which stays as it is."""
    part = shapes.empty(rules, [replace(totals) for totals in forest.totals])
    stored = Memory(forest, rules)
    read(part.taking(stored, change), stored)
    return part


def hosts_of(forest):
    return sorted(node.host for node in forest.nodes(0))


def edges_of(forest, hosts=None):
    stripes = range(forest.limits.stripes)
    return {h: [forest.edge(h, s) for s in stripes] for h in hosts or hosts_of(forest)}


def parents_of(forest):
    return {host: [edge.parent for edge in edges] for host, edges in edges_of(forest).items()}


def moves(before, after):
    """Return how many links differ between two results of parents_of."""
    return sum(
        old != new
        for host in before.keys() & after.keys()
        for old, new in zip(before[host], after[host], strict=True)
    )


def check(forest, always_accepting=True):
    """Assert all invariants; walking down from the source reaches every host once."""
    limits, hosts = forest.limits, hosts_of(forest)
    for stripe, totals in enumerate(forest.totals):
        walked = forest.breadth_first(stripe)
        assert sorted(host for host, _ in walked) == hosts
        assert totals.inner == sum(node.inner for node in forest.nodes(stripe))
        assert totals.at_source == len(forest.children(None, stripe))
        for host, depth in walked:
            node = forest.node(host, stripe)
            fed = forest.children(host, stripe)
            assert node.fed == len(fed) <= limits.fanout
            assert not fed or node.inner
            assert node.inner == (forest.inner_in(host) == (stripe,))
            assert all(forest.edge(child, stripe).parent == host for child in fed)
            check_level(forest, stripe, node, depth)
            assert node.foreign == sum(is_foreign(forest, stripe, child) for child in fed)
        check_source(forest, stripe)
        if always_accepting and limits.fanout > 1:
            deepest = max((depth for _, depth in walked), default=0)
            racks = {node.rack for node in forest.nodes(stripe)}
            more = math.ceil(math.log(len(racks), limits.fanout)) + 1 if len(racks) > 1 else 0
            assert deepest <= math.ceil(math.log(max(len(hosts), 2), limits.fanout)) + 2 + more


def check_level(forest, stripe, node, depth):
    """Assert that a host's level says how far it is from the source, or from its root."""
    parent = None if node.parent is None else forest.node(node.parent, stripe)
    if parent is None or forest.limits.fanout == 1:
        assert node.level == depth or (forest.limits.fanout == 1 and node.level > depth)
    elif node.is_entry or (parent.is_entry and not node.inner):
        assert parent.is_entry
        assert node.level == parent.level + 1 == depth
    elif parent.is_entry:
        assert node.level == ROOTS + parent.level + 1 == ROOTS + depth
    elif parent.level > INSIDE and (parent.rack == node.rack or not node.inner):
        assert node.level == parent.level + 1
    else:
        assert node.level > ROOTS
    assert node.stray == (not node.inner and is_foreign(forest, stripe, node.host))


def check_source(forest, stripe):
    """Assert that the source feeds spares only while no host has room for them."""
    slots, totals = forest.limits.source_slots, forest.totals[stripe]
    if slots is not None and totals.at_source > slots:
        fed = forest.children(None, stripe)
        spares = [host for host in fed if stripe not in forest.inner_in(host)]
        rooms = [node for node in forest.nodes(stripe) if node.has_room(forest.limits.fanout)]
        assert not (spares and rooms)


def held_up(forest):
    """Return inner hosts whose parents' links are much slower than their own."""
    return [
        (stripe, node.host)
        for stripe in range(len(forest.totals))
        for node in forest.nodes(stripe)
        if node.inner
        and node.parent is not None
        and forest.node(node.parent, stripe).holds_up(node)
    ]


def is_foreign(forest, stripe, host):
    node = forest.node(host, stripe)
    if node.parent is None or node.rack is None:
        return False
    return forest.node(node.parent, stripe).rack not in (None, node.rack)


class Life(RuleBasedStateMachine):
    """Hosts join, leave, die, are drained and overloaded, in any order.

    Each change is made twice: on the whole forest, and on the part of it that is said to
    be enough to decide. Joins must come to the same while every host may feed others, and neither
    racks nor speeds are known; else a part may choose another, but what it makes must be as right.
    """

    with_racks = True
    with_speeds = True

    @initialize(rules=st.sampled_from(SHAPES), limit=st.sampled_from([None, 0, 1, 2]))
    def start(self, rules, limit):
        if self.with_racks:
            rules = Rules(rules.shape, rules.stripes, rules.fanout, limit)
        self.rules = rules
        self.forest = shapes.empty(rules)
        self.number = 0
        self.draining = set()
        self.overloaded = set()
        self.is_free = not self.with_racks
        """Whether no host was ever kept from a place by its rack or by what it may feed."""

    def change(self, act, hosts=(), racks=None, joins=0, others=0):
        before = copy.deepcopy(self.forest)
        part = part_of(self.rules, before, Change(hosts, racks or {}, joins, others))
        act(self.forest)
        try:
            act(part)
        except PartTooSmall:
            assert others, "a join never needs more than its part"
            return
        self.check_written(before, part)
        if not (self.with_racks or self.with_speeds or self.overloaded or self.draining or others):
            for stripe in range(self.rules.stripes):
                old = {node.host: node.parent for node in before.nodes(stripe)}
                new = {node.host: node.parent for node in self.forest.nodes(stripe)}
                moved = {host for host in new if host not in old or new[host] != old[host]}
                told = {host: part.edge(host, stripe) for host in part.moved(stripe)}
                assert told == {host: self.forest.edge(host, stripe) for host in moved}

    def check_written(self, before, part):
        """Assert that storing what the part changed gives a right forest."""
        gone = set(hosts_of(before)) - set(hosts_of(self.forest))
        result = shapes.empty(self.rules, part.totals)
        for stripe in range(self.rules.stripes):
            for node in part.changed(stripe):
                result.restore(stripe, node)
            for node in before.nodes(stripe):
                if node.host not in gone:
                    result.restore(stripe, node)
        check(result, always_accepting=not self.overloaded)
        if self.is_free:
            assert not held_up(result)

    @rule(rack=RACKS, feeds=st.sampled_from([True, True, True, False]), speed=SPEEDS)
    def join(self, rack, feeds, speed):
        host = f"h{self.number:04}"
        self.number += 1
        if not feeds:
            self.draining.add(host)
        newcomer = Newcomer(host, rack if self.with_racks else None, feeds)
        if self.with_speeds:
            newcomer = replace(newcomer, speed=speed)
        racks = {newcomer.rack: 1} if newcomer.rack else {}
        joins, others = (1, 0) if feeds else (1, 1)
        self.change(lambda forest: forest.join(newcomer), (), racks, joins, others)

    @rule(count=st.integers(2, 12))
    def join_together(self, count):
        names = [f"h{self.number + one:04}" for one in range(count)]
        self.number += count
        speeds = (None, GIGABIT, 10 * GIGABIT, 25 * GIGABIT) if self.with_speeds else (None,)

        def act(forest):
            for number, host in enumerate(names):
                forest.join(Newcomer(host, speed=speeds[number % len(speeds)]))

        self.change(act, joins=count)

    def choose(self, data, hosts):
        return data.draw(st.sampled_from(sorted(hosts)))

    @precondition(lambda self: self.forest.nodes(0))
    @rule(data=st.data())
    def leave(self, data):
        host = self.choose(data, hosts_of(self.forest))
        self.draining.discard(host)
        self.overloaded.discard(host)
        self.change(lambda forest: forest.leave(host), [host], others=1)

    @precondition(lambda self: len(self.forest.nodes(0)) > 3)
    @rule(data=st.data())
    def die_together(self, data):
        some = st.lists(st.sampled_from(hosts_of(self.forest)), unique=True, min_size=2, max_size=6)
        hosts = data.draw(some)
        self.draining.difference_update(hosts)
        self.overloaded.difference_update(hosts)

        def act(forest):
            for host in hosts:
                forest.leave(host)

        self.change(act, hosts, others=len(hosts))

    @precondition(lambda self: self.forest.nodes(0))
    @rule(data=st.data())
    def drain_or_undrain(self, data):
        host = self.choose(data, hosts_of(self.forest))
        if host in self.draining:
            self.draining.discard(host)
            self.change(lambda forest: forest.relieve(host), [host], others=1)
        elif host not in self.overloaded:
            self.draining.add(host)
            self.change(lambda forest: forest.drain(host), [host], others=1)
            stripes = range(self.rules.stripes)
            assert not any(self.forest.children(host, stripe) for stripe in stripes)

    @precondition(lambda self: self.forest.nodes(0))
    @rule(data=st.data())
    def overload_or_relieve(self, data):
        host = self.choose(data, hosts_of(self.forest))
        if host not in self.draining:
            before = parents_of(self.forest)
            if host in self.overloaded:
                self.overloaded.discard(host)
                self.change(lambda forest: forest.relieve(host), [host], others=1)
            else:
                self.overloaded.add(host)
                self.is_free = False
                self.change(lambda forest: forest.overload(host), [host], others=1)
                assert parents_of(self.forest) == before

    @invariant()
    def all_is_well(self):
        if hasattr(self, "forest"):
            check(self.forest, always_accepting=not self.overloaded)
            if self.is_free:
                assert not held_up(self.forest)


class LifeWithoutRacks(Life):
    with_racks = False


class LifeOfEquals(LifeWithoutRacks):
    with_speeds = False


class TestLife(testtools.TestCase):
    def test_every_invariant_holds_through_any_life(self):
        run_state_machine_as_test(
            Life,
            settings=settings(
                deadline=None, max_examples=25, stateful_step_count=30, phases=(Phase.generate,)
            ),
        )

    def test_whom_a_host_feeds_that_gives_way_is_read_too(self):
        slow, fast, fastest = 125_000_000, 1_250_000_000, 3_125_000_000
        life = Life()
        life.start(Rules(FOREST, 2, 2), None)
        for feeds, rack, speed in (
            (True, "r1", fast), (False, None, fast), (False, "r2", None), (True, None, slow),
            (False, "r2", fastest), (False, "r3", fastest), (True, "r2", fastest),
            (True, None, fast), (True, "r3", fastest), (False, "r2", None), (False, "r1", fastest),
            (True, None, fast), (True, "r2", fastest), (True, "r2", fast), (True, "r1", fast),
            (False, "r2", fastest), (True, None, slow), (True, "r2", None),
        ):  # fmt: skip
            life.join(rack=rack, feeds=feeds, speed=speed)

    def test_no_slow_host_holds_up_one_that_feeds_others(self):
        run_state_machine_as_test(
            LifeWithoutRacks,
            settings=settings(
                deadline=None, max_examples=25, stateful_step_count=30, phases=(Phase.generate,)
            ),
        )

    def test_a_part_places_newcomers_like_the_whole(self):
        run_state_machine_as_test(
            LifeOfEquals,
            settings=settings(
                deadline=None, max_examples=25, stateful_step_count=30, phases=(Phase.generate,)
            ),
        )

    def test_forests_end(self):
        for rules in SHAPES:
            forest = grow(rules, 40)
            for host in random.Random(1).sample(hosts_of(forest), 40):
                forest.leave(host)
                check(forest)
            assert not forest.nodes(0)


class TestForest(testtools.TestCase):
    @settings(deadline=None, max_examples=60)
    @given(st.sampled_from(SHAPES), st.integers(1, 60))
    def test_the_standby_is_an_ancestor_of_the_parent_or_the_source(self, rules, count):
        forest = grow(rules, count)
        for host, edges in edges_of(forest).items():
            for stripe, edge in enumerate(edges):
                parent = forest.node(host, stripe).parent
                expected = None if parent is None else forest.node(parent, stripe).parent
                assert edge == Edge(parent, expected)

    def test_three_hosts_make_the_trees_of_the_design(self):
        forest = grow(Rules(FOREST, 2, 2), 3)
        assert [forest.inner_in(host) for host in ("h0", "h1", "h2")] == [(0,), (1,), (0,)]
        assert forest.children(None, 0) == ("h0",)
        assert forest.children("h0", 0) == ("h1", "h2")
        assert forest.children(None, 1) == ("h1",)
        assert forest.children("h1", 1) == ("h0", "h2")

    def test_a_new_inner_host_takes_the_place_of_a_leaf_nearer_to_the_root(self):
        forest = grow(Rules(FOREST, 2, 2), 3)
        before = parents_of(forest)
        forest.join(Newcomer("h3"))
        assert forest.inner_in("h3") == (1,)
        assert forest.children("h1", 1) == ("h2", "h3")
        assert forest.children("h3", 1) == ("h0",)
        assert moves(before, parents_of(forest)) == 1

    def test_one_stripe_is_the_tree_of_the_paper(self):
        forest = grow(Rules(TREE, 1, 2), 7)
        assert forest.breadth_first(0) == [
            (f"h{n}", 1 if n < 2 else 2 if n < 6 else 3) for n in range(7)
        ]

    def test_the_source_feeds_everybody_in_a_star(self):
        forest = grow(Rules(STAR, 1, 0), 20)
        assert {depth for _, depth in forest.breadth_first(0)} == {1}
        forest.leave("h7")
        assert len(forest.children(None, 0)) == 19

    def test_a_chain_closes_up_when_a_link_leaves(self):
        forest = grow(Rules(CHAIN, 1, 1), 4)
        before = parents_of(forest)
        forest.leave("h1")
        assert forest.breadth_first(0) == [("h0", 1), ("h2", 2), ("h3", 3)]
        assert moves(before, parents_of(forest)) == 1

    def test_the_source_feeds_more_only_while_no_host_can(self):
        forest = grow(Rules(FOREST, 3, 3), 2)
        assert forest.children(None, 2) == ("h0", "h1")
        forest.join(Newcomer("h2"))
        assert forest.children(None, 2) == ("h2",)

    def test_shapes_that_cannot_carry_every_host_are_refused(self):
        for shape in (
            Rules(FOREST, 0, 2),
            Rules(FOREST, 2, 1),
            Rules(FOREST, 3, 2),
            Rules(FOREST, 9, 9),
            Rules(TREE, 2, 2),
            Rules(TREE, 1, 0),
            Rules(STAR, 1, 2),
            Rules(CHAIN, 2, 2),
        ):
            self.assertRaises(errors.ShapeInvalid, shapes.check, shape)

    def test_joining_twice_and_leaving_unplaced_are_refused(self):
        forest = grow(Rules(FOREST, 2, 2), 1)
        self.assertRaises(errors.HostPlaced, forest.join, Newcomer("h0"))
        self.assertRaises(errors.HostUnknown, forest.leave, "h1")
        self.assertRaises(errors.HostUnknown, forest.edge, "h1", 0)

    def test_slow_hosts_feed_leaves_only_if_they_came_first(self):
        for rules in (Rules(FOREST, 2, 2), Rules(TREE, 1, 2)):
            forest = shapes.empty(rules)
            for number in range(60):
                forest.join(Newcomer(f"h{number:02}", speed=GIGABIT * (1 if number < 8 else 10)))
            check(forest)
            for stripe in range(rules.stripes):
                inner = {node.host for node in forest.nodes(stripe) if node.inner}
                for number in range(8):
                    assert not inner & set(forest.children(f"h{number:02}", stripe))

    def test_a_leaf_hangs_below_a_host_that_is_as_fast_if_that_has_room(self):
        forest = shapes.empty(Rules(FOREST, 2, 3))
        for number in range(60):
            forest.join(Newcomer(f"h{number:02}", speed=GIGABIT * (1 if number % 10 == 3 else 10)))
        check(forest)
        slow = [f"h{number:02}" for number in range(3, 60, 10)]
        assert not any(forest.children(host, stripe) for host in slow for stripe in (0, 1))

    def test_links_of_about_the_same_speed_change_no_places(self):
        even, uneven = shapes.empty(Rules(FOREST, 2, 2)), shapes.empty(Rules(FOREST, 2, 2))
        for number in range(60):
            even.join(Newcomer(f"h{number:02}"))
            uneven.join(Newcomer(f"h{number:02}", speed=10 * GIGABIT + number % 10 * GIGABIT))
        assert edges_of(even) == edges_of(uneven)

    def test_a_part_without_the_children_of_a_host_does_not_guess(self):
        forest = shapes.empty(Rules(CHAIN, 1, 1))
        forest.restore(0, Node("a", None, None, 1, inner=True, fed=1))
        self.assertRaises(PartTooSmall, forest.leave, "a")

    def test_a_host_is_handed_over_whose_place_in_a_third_tree_is_not_here(self):
        rules = Rules(FOREST, 3, 3)
        for donor, needy, other in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
            totals = [Totals(2, 1)] * 3
            totals[donor], totals[needy] = Totals(3, 1), Totals(1, 2)
            forest = shapes.empty(rules, [replace(one) for one in totals])
            forest.restore(donor, Node("lowest", None, None, 1, inner=True))
            forest.restore(needy, Node("lowest", None, None, 1, inner=False))
            forest.join(Newcomer("new", feeds=False))
            self.assertFalse(forest.holds("lowest", other))
            self.assertFalse(forest.node("lowest", donor).inner)
            self.assertTrue(forest.node("lowest", needy).inner)

    def test_a_part_is_small_however_many_hosts_there_are(self):
        rules = Rules(FOREST, 2, 2)
        for count in (100, 1000):
            forest = grow(rules, count)
            part = part_of(rules, forest, Change(joins=1))
            assert sum(len(part.nodes(stripe)) for stripe in (0, 1)) <= 50


class TestHostsThatShouldNotFeed(testtools.TestCase):
    def test_a_drained_hosts_children_go_elsewhere_and_none_come_back(self):
        forest = grow(Rules(FOREST, 2, 3), 30)
        forest.drain("h0")
        check(forest)
        for number in range(30, 60):
            forest.join(Newcomer(f"h{number}"))
        assert forest.inner_in("h0") == ()
        assert not forest.children("h0", 0) + forest.children("h0", 1)

    def test_a_host_that_is_no_longer_drained_feeds_again(self):
        forest = grow(Rules(FOREST, 2, 2), 12)
        forest.drain("h0")
        forest.relieve("h0")
        check(forest)
        assert forest.inner_in("h0")
        assert [totals.at_source for totals in forest.totals] == [1, 1]

    def test_an_overloaded_host_keeps_its_children_and_gets_no_new_one(self):
        forest = grow(Rules(FOREST, 2, 3), 40)
        [stripe] = forest.inner_in("h0")
        kept = set(forest.children("h0", stripe))
        assert kept
        forest.overload("h0")
        for number in range(40, 80):
            forest.join(Newcomer(f"h{number}"))
        assert set(forest.children("h0", stripe)) <= kept

    def test_the_source_helps_out_when_too_few_hosts_may_feed(self):
        forest = grow(Rules(FOREST, 2, 2), 10)
        for number in range(8):
            forest.drain(f"h{number}")
            check(forest)
        for number in range(8):
            forest.relieve(f"h{number}")
            check(forest)
        assert [totals.at_source for totals in forest.totals] == [1, 1]


class TestRacks(testtools.TestCase):
    def placed(self, fanout, limit=None, order=7):
        forest = shapes.empty(Rules(FOREST, 2, fanout, limit))
        numbers = list(range(120))
        random.Random(order).shuffle(numbers)
        for number in numbers:
            forest.join(Newcomer(f"h{number:03}", f"r{number % 6}"))
        check(forest)
        return forest

    def foreign(self, forest):
        return sum(
            is_foreign(forest, stripe, host)
            for stripe in range(forest.limits.stripes)
            for host in hosts_of(forest)
        )

    def test_most_links_stay_in_their_rack(self):
        blind = 2 * 120 * 5 / 6
        assert self.foreign(self.placed(2)) < 0.7 * blind
        assert self.foreign(self.placed(4)) < 0.4 * blind

    def test_no_host_feeds_more_leaves_of_other_racks_than_allowed_while_there_is_room(self):
        forest = self.placed(4, limit=1)
        for stripe in (0, 1):
            leaves = {node.host for node in forest.nodes(stripe) if not node.inner}
            for host in hosts_of(forest):
                fed = leaves.intersection(forest.children(host, stripe))
                assert sum(is_foreign(forest, stripe, child) for child in fed) <= 1


class TestMoves(testtools.TestCase):
    """How many hosts get another parent; few moves keep running VMs undisturbed."""

    def test_joins_and_leaves_move_few_hosts(self):
        dice = random.Random(7)
        for rules in (Rules(TREE, 1, 2), Rules(FOREST, 2, 2), Rules(FOREST, 2, 3)):
            forest = grow(rules, 200)
            joins, leaves = [], []
            for number in range(300):
                before = parents_of(forest)
                forest.leave(dice.choice(sorted(before)))
                between = parents_of(forest)
                leaves.append(moves(before, between))
                forest.join(Newcomer(f"n{number}"))
                joins.append(moves(between, parents_of(forest)))
            check(forest)
            self.addDetail(
                str(rules),
                testtools.content.text_content(
                    f"join: mean {sum(joins) / 300:.2f} max {max(joins)}; "
                    f"leave: mean {sum(leaves) / 300:.2f} max {max(leaves)}"
                ),
            )
            assert max(joins) <= 1
            assert sum(leaves) / 300 <= 2 * rules.fanout
            assert max(leaves) <= 3 * rules.fanout + rules.stripes

    def test_a_leaf_that_leaves_a_tree_with_room_moves_nobody(self):
        forest = grow(Rules(FOREST, 2, 4), 20)
        for stripe in (0, 1):
            leaf = next(node.host for node in forest.nodes(stripe) if not node.inner)
            part = copy.deepcopy(forest)
            before = [edge.parent for edge in (part.edge(h, stripe) for h in hosts_of(part))]
            hosts = hosts_of(part)
            part.leave(leaf)
            after = [None if host == leaf else part.edge(host, stripe).parent for host in hosts]
            changed = [h for h, a, b in zip(hosts, before, after, strict=True) if a != b]
            assert set(changed) <= {leaf}

    def test_what_is_picked_grows_with_the_changes_only(self):
        forest = grow(Rules(FOREST, 2, 2), 50)
        assert forest.picks(Change(joins=1)) == [
            Pick(LEAVES, 3),
            Pick(OPEN, 3),
            Pick(ENTRIES, 1),
        ]
        assert Pick(LOWEST, 4) in forest.picks(Change(joins=8, others=1))
        assert Pick(OPEN, 18) in forest.picks(Change(joins=8, others=1))

    def test_where_the_source_feeds_all_nothing_is_picked(self):
        assert not grow(Rules(STAR, 1, 0), 9).picks(Change(["h1"], {"r1": 8}, joins=8, others=1))
