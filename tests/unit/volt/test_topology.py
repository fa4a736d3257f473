"""What must hold in every forest after any joins and leaves."""

import math
import random

import testtools
from hypothesis import given, settings
from hypothesis import strategies as st

from volt import errors
from volt.topology import Edge, Forest

SHAPES = st.sampled_from([(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 8), (3, 3), (3, 4), (4, 4)])
# Each step: join a new host, or let the n-th of those present leave.
STEPS = st.lists(st.one_of(st.none(), st.integers(0, 10_000)), max_size=90)


def grow(stripes, fanout, count):
    forest = Forest(stripes, fanout)
    for number in range(count):
        forest.join(f"h{number}")
    return forest


def hosts_of(forest):
    return [member.host for member in forest.members()]


def parents_of(forest):
    return {member.host: member.parents for member in forest.members()}


def check(forest, stripes, fanout):
    """Assert all invariants; walking up from each host proves that there is no cycle."""
    hosts = hosts_of(forest)
    limit = math.inf if fanout == 1 else math.ceil(math.log(max(len(hosts), 2), fanout)) + 2
    for stripe in range(stripes):
        seen = forest.breadth_first(stripe)
        assert sorted(host for host, _ in seen) == sorted(hosts)
        assert all(depth == forest.depth(host, stripe) <= limit for host, depth in seen)
        for host in hosts:
            fed = forest.children(host, stripe)
            assert len(fed) <= fanout
            assert not fed or forest.colour(host) == stripe
            assert all(forest.parent(child, stripe) == host for child in fed)
        inner = sum(forest.colour(host) == stripe for host in hosts)
        slots = fanout if stripes == 1 else max(1, len(hosts) - fanout * inner)
        assert len(forest.children(None, stripe)) <= slots
        assert stripes > 2 or len(forest.children(None, stripe)) <= (fanout if stripes == 1 else 1)


def play(stripes, fanout, steps, after=lambda forest: None):
    forest = Forest(stripes, fanout)
    for number, step in enumerate(steps):
        hosts = hosts_of(forest)
        if step is None or not hosts:
            forest.join(f"h{number}")
        else:
            forest.leave(hosts[step % len(hosts)])
        after(forest)
    return forest


class TestForest(testtools.TestCase):
    @settings(deadline=None, max_examples=150)
    @given(SHAPES, STEPS)
    def test_every_invariant_holds_after_any_joins_and_leaves(self, shape, steps):
        forest = play(*shape, steps, after=lambda forest: check(forest, *shape))
        for host in hosts_of(forest):
            forest.leave(host)
            check(forest, *shape)
        assert forest.members() == []

    @settings(deadline=None, max_examples=60)
    @given(SHAPES, STEPS)
    def test_a_restored_forest_goes_on_like_the_one_that_was_stored(self, shape, steps):
        first = Forest(*shape)
        for number, step in enumerate(steps):
            second = Forest.restore(*shape, first.members())
            hosts = hosts_of(first)
            if step is None or not hosts:
                assert first.join(f"h{number}") == second.join(f"h{number}")
            else:
                leaver = hosts[step % len(hosts)]
                assert first.leave(leaver) == second.leave(leaver)
            assert first.members() == second.members()

    @settings(deadline=None, max_examples=60)
    @given(SHAPES, STEPS)
    def test_the_changed_are_exactly_those_with_a_new_parent_or_standby(self, shape, steps):
        forest = play(*shape, steps)

        def edges():
            return {h: [forest.edge(h, s) for s in range(shape[0])] for h in hosts_of(forest)}

        before = edges()
        changed = forest.join("new")
        assert changed == {host for host, now in edges().items() if before.get(host) != now}
        before = edges()
        changed = forest.leave(sorted(before)[0])
        assert changed == {host for host, now in edges().items() if before[host] != now}

    @settings(deadline=None, max_examples=60)
    @given(SHAPES, STEPS)
    def test_the_standby_is_an_ancestor_of_the_parent_or_the_source(self, shape, steps):
        forest = play(*shape, steps)
        for host in hosts_of(forest):
            for stripe in range(shape[0]):
                parent = forest.parent(host, stripe)
                expected = None if parent is None else forest.parent(parent, stripe)
                assert forest.edge(host, stripe) == Edge(parent, expected)

    @settings(deadline=None, max_examples=100)
    @given(SHAPES, STEPS)
    def test_a_join_moves_at_most_as_many_others_as_there_are_stripes(self, shape, steps):
        forest = play(*shape, steps)
        before = parents_of(forest)
        forest.join("new")
        after = parents_of(forest)
        assert sum(after[host] != parents for host, parents in before.items()) <= shape[0]

    def test_three_hosts_make_the_trees_of_the_design(self):
        forest = grow(2, 2, 3)
        assert [forest.colour(host) for host in ("h0", "h1", "h2")] == [0, 1, 0]
        assert forest.children(None, 0) == ("h0",)
        assert forest.children("h0", 0) == ("h1", "h2")
        assert forest.children(None, 1) == ("h1",)
        assert forest.children("h1", 1) == ("h0", "h2")

    def test_a_new_inner_host_takes_the_place_of_a_leaf_nearer_to_the_root(self):
        forest = grow(2, 2, 3)
        changed = forest.join("h3")
        assert forest.colour("h3") == 1
        assert forest.children("h1", 1) == ("h2", "h3")
        assert forest.children("h3", 1) == ("h0",)
        assert changed == {"h0", "h3"}

    def test_one_stripe_is_the_tree_of_the_paper(self):
        forest = grow(1, 2, 7)
        assert forest.breadth_first(0) == [
            (f"h{n}", 1 if n < 2 else 2 if n < 6 else 3) for n in range(7)
        ]

    def test_a_chain_closes_up_when_a_link_leaves(self):
        forest = grow(1, 1, 4)
        assert forest.leave("h1") == {"h2", "h3"}
        assert forest.breadth_first(0) == [("h0", 1), ("h2", 2), ("h3", 3)]

    def test_the_source_feeds_more_only_while_no_host_can(self):
        forest = grow(3, 3, 2)
        assert forest.children(None, 2) == ("h0", "h1")
        forest.join("h2")
        assert forest.children(None, 2) == ("h2",)

    def test_too_small_a_fanout_is_refused(self):
        for shape in ((0, 2), (2, 1), (3, 2), (1, 0)):
            self.assertRaises(errors.ShapeInvalid, Forest, *shape)

    def test_joining_twice_and_leaving_unplaced_are_refused(self):
        forest = grow(2, 2, 1)
        self.assertRaises(errors.HostPlaced, forest.join, "h0")
        self.assertRaises(errors.HostUnknown, forest.leave, "h1")
        self.assertRaises(errors.HostUnknown, forest.parent, "h1", 0)


class TestMoves(testtools.TestCase):
    """How many hosts get another parent; few moves keep running VMs undisturbed."""

    def test_joins_and_leaves_move_few_hosts_on_average(self):
        dice = random.Random(7)
        for stripes, fanout in ((1, 2), (2, 2), (2, 3), (3, 3)):
            forest = grow(stripes, fanout, 200)
            joins, leaves = [], []
            for number in range(300):
                before = parents_of(forest)
                leaver = dice.choice(sorted(before))
                forest.leave(leaver)
                between = parents_of(forest)
                leaves.append(sum(between[host] != before[host] for host in between))
                forest.join(f"n{number}")
                after = parents_of(forest)
                joins.append(sum(after[host] != between[host] for host in between))
                check(forest, stripes, fanout)
            mean_joins, mean_leaves = sum(joins) / len(joins), sum(leaves) / len(leaves)
            self.addDetail(
                f"k={stripes} f={fanout}",
                testtools.content.text_content(
                    f"join: mean {mean_joins:.2f} max {max(joins)}; "
                    f"leave: mean {mean_leaves:.2f} max {max(leaves)}"
                ),
            )
            assert mean_joins <= 1.5
            assert mean_leaves <= 2 * fanout
            assert max(leaves) <= 6 * fanout + math.log2(200)
