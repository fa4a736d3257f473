"""What must hold in every ring, whatever happens to its hosts."""

import random
from collections import Counter
from dataclasses import replace

import testtools
from hypothesis import given, settings
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
from volt.placement.links import Newcomer
from volt.placement.part import Change, read
from volt.placement.rules import Rules, Shape

RULES = [
    Rules(Shape.RING, 16, 64),
    Rules(Shape.RING, 5, 3),
    Rules(Shape.RING, 1, 2),
    Rules(Shape.RING, 8, 4, 0),
    Rules(Shape.RING, 32, 6, 0),
]
RACKS = st.sampled_from([None, "r1", "r2", "r3"])


def grow(rules, count):
    ring = shapes.empty(rules)
    for number in range(count):
        ring.join(Newcomer(f"h{number}"))
    return ring


def hosts_of(ring):
    return sorted(node.host for node in ring.nodes(0))


def group_of(ring, host):
    return (ring.node(host, 0).level - 1) // 2


def owned(ring, group=0):
    """Return how many stripes each host of a group has."""
    hosts = [host for host in hosts_of(ring) if group_of(ring, host) == group]
    return {host: len(ring.inner_in(host)) for host in hosts}


def owners_of(ring):
    return {
        (stripe, group_of(ring, node.host)): node.host
        for stripe in range(len(ring.totals))
        for node in ring.nodes(stripe)
        if node.inner
    }


def parents_of(ring):
    stripes = range(len(ring.totals))
    return {(host, one): ring.edge(host, one).parent for host in hosts_of(ring) for one in stripes}


def check(ring, rules):
    """Assert that everybody reads every stripe from its owner, and nobody from itself."""
    hosts, groups = hosts_of(ring), {}
    for host in hosts:
        groups.setdefault(group_of(ring, host), []).append(host)
    for stripe, totals in enumerate(ring.totals):
        assert sorted(host for host, _ in ring.breadth_first(stripe)) == hosts  # no cycles
        nodes = {node.host: node for node in ring.nodes(stripe)}
        assert totals.inner == sum(node.inner for node in nodes.values())
        assert totals.at_source == len(ring.children(None, stripe))
        for group, members in groups.items():
            inner = [host for host in members if nodes[host].inner]
            assert len(members) <= rules.fanout
            assert len(inner) <= 1
            assert inner or not any(nodes[host].accepting for host in members)
            for host in members:
                node, parent = nodes[host], nodes.get(nodes[host].parent)
                assert node.fed == len(ring.children(host, stripe))
                assert not node.fed or node.inner
                assert (node.level - 1) // 2 == group
                assert node.parent != host
                if inner and host not in inner:
                    assert node.parent == inner[0]
                else:
                    assert parent is None or (parent.inner and parent.level < node.level)
                    assert not group or parent or group_of(ring, inner[0] if inner else host)
        if rules.foreign_children == 0:
            racks = [{nodes[host].rack for host in members} for members in groups.values()]
            assert all(len(one) == 1 for one in racks)


class Life(RuleBasedStateMachine):
    """Hosts join, leave, die, are drained and overloaded, in any order."""

    @initialize(rules=st.sampled_from(RULES))
    def start(self, rules):
        self.rules = rules
        self.ring = shapes.empty(rules)
        self.number = 0
        self.idle = set()
        self.is_even = True
        """Whether no host ever kept stripes while others got more."""

    def change(self, act, hosts=(), racks=None, joins=0, others=0):
        """Make a change of what is stored, and keep what was written."""
        before = parents_of(self.ring)
        part = shapes.empty(self.rules, [replace(totals) for totals in self.ring.totals])
        stored = Memory(self.ring, self.rules)
        read(part.taking(stored, Change(hosts, racks or {}, joins, others)), stored)
        owned = owners_of(self.ring)
        stored_hosts = set(hosts_of(self.ring))
        act(part)
        for stripe in range(self.rules.stripes):
            new = {node.host for node in part.changed(stripe)}
            for host in {node.host for node in part.nodes(stripe)} - new:
                assert part.node(host, stripe) == self.ring.node(host, stripe)
            for host in set(hosts_of(part)) & stored_hosts:
                moved = part.edge(host, stripe).parent != before[host, stripe]
                assert not moved or host in part.moved(stripe)
        self.ring = shapes.empty(self.rules, [replace(totals) for totals in part.totals])
        for stripe in range(self.rules.stripes):
            for node in part.nodes(stripe):
                self.ring.restore(stripe, replace(node))
        return owned

    @rule(rack=RACKS, feeds=st.sampled_from([True, True, True, False]))
    def join(self, rack, feeds):
        host = f"h{self.number:04}"
        self.number += 1
        if not feeds:
            self.idle.add(host)
        newcomer = Newcomer(host, rack, feeds)
        before = self.change(lambda ring: ring.join(newcomer), (), {}, 1, 0 if feeds else 1)
        group = group_of(self.ring, host)
        for (stripe, other), owner in owners_of(self.ring).items():
            assert owner == host or before.get((stripe, other)) == owner
            assert owner != host or other == group

    @precondition(lambda self: self.ring.nodes(0))
    @rule(data=st.data())
    def leave(self, data):
        host = data.draw(st.sampled_from(hosts_of(self.ring)))
        self.idle.discard(host)
        before = self.change(lambda ring: ring.leave(host), [host], others=1)
        after = owners_of(self.ring)
        for place, owner in before.items():
            assert owner == host or after[place] == owner

    @precondition(lambda self: len(self.ring.nodes(0)) > 3)
    @rule(data=st.data())
    def die_together(self, data):
        some = st.lists(st.sampled_from(hosts_of(self.ring)), unique=True, min_size=2, max_size=6)
        hosts = data.draw(some)
        self.idle.difference_update(hosts)

        def act(ring):
            for host in hosts:
                ring.leave(host)

        self.change(act, hosts, others=len(hosts))

    @precondition(lambda self: self.ring.nodes(0))
    @rule(data=st.data(), drains=st.booleans())
    def idle_or_relieve(self, data, drains):
        host = data.draw(st.sampled_from(hosts_of(self.ring)))
        if host in self.idle:
            self.idle.discard(host)
            self.change(lambda ring: ring.relieve(host), [host], others=1)
        elif drains:
            self.idle.add(host)
            self.change(lambda ring: ring.drain(host), [host], others=1)
            assert not self.ring.inner_in(host)
        else:
            self.idle.add(host)
            self.is_even = False
            before = parents_of(self.ring)
            self.change(lambda ring: ring.overload(host), [host], others=1)
            assert parents_of(self.ring) == before

    @precondition(lambda self: self.ring.nodes(0))
    @rule(data=st.data())
    def follow(self, data):
        hosts = hosts_of(self.ring)
        host = data.draw(st.sampled_from(hosts))
        traffic = data.draw(st.dictionaries(st.sampled_from(hosts), st.floats(0, 1e9)))
        self.is_even = False
        group, had = group_of(self.ring, host), owned(self.ring, group_of(self.ring, host))
        before = self.change(lambda ring: ring.follow(host, traffic, ()), [host], others=1)
        for place, owner in owners_of(self.ring).items():
            assert owner == before[place] or (before[place], place[1]) == (host, group)
            assert owner == before[place] or owner not in self.idle
        has = owned(self.ring, group)[host]
        assert has <= had[host] and (has or not had[host])

    @precondition(lambda self: self.ring.nodes(0))
    @rule(data=st.data())
    def part(self, data):
        host = data.draw(st.sampled_from(hosts_of(self.ring)))
        mates = owned(self.ring, group_of(self.ring, host))
        before = self.change(lambda ring: ring.follow(host, {}, (0.9,)), [host], others=1)
        racks = {}
        for mate in mates:
            racks.setdefault(self.ring.node(mate, 0).rack, set()).add(group_of(self.ring, mate))
        assert all(len(groups) == 1 for groups in racks.values())
        assert len(set().union(*racks.values())) == len(racks)
        had = {(stripe, owner) for (stripe, _), owner in before.items()}
        assert had <= {(stripe, owner) for (stripe, _), owner in owners_of(self.ring).items()}
        self.is_even = False

    @invariant()
    def all_is_well(self):
        if hasattr(self, "ring"):
            check(self.ring, self.rules)
            groups = {group_of(self.ring, host) for host in hosts_of(self.ring)}
            for group in groups if self.is_even else ():
                shares = [n for h, n in owned(self.ring, group).items() if h not in self.idle]
                assert not shares or max(shares) - min(shares) <= 1


class TestLife(testtools.TestCase):
    def test_every_invariant_holds_through_any_life(self):
        run_state_machine_as_test(
            Life, settings=settings(deadline=None, max_examples=40, stateful_step_count=40)
        )

    def test_rings_end(self):
        for rules in RULES:
            ring = grow(rules, 20)
            for host in random.Random(1).sample(hosts_of(ring), 20):
                ring.leave(host)
                check(ring, rules)
            assert not ring.nodes(0)
            assert [(one.inner, one.at_source) for one in ring.totals] == [(0, 0)] * rules.stripes


class TestRing(testtools.TestCase):
    @settings(deadline=None, max_examples=30)
    @given(st.integers(1, 60), st.integers(1, 64))
    def test_hosts_own_as_many_stripes_as_each_other(self, stripes, hosts):
        ring = grow(Rules(Shape.RING, stripes, 64), hosts)
        shares = owned(ring).values()
        assert sum(shares) == stripes
        assert max(shares) - min(shares) <= 1

    def test_the_source_sends_each_stripe_once(self):
        ring = grow(Rules(Shape.RING, 16, 64), 64)
        assert all(totals.at_source == 1 for totals in ring.totals)

    def test_a_join_moves_no_stripe_but_to_the_newcomer(self):
        ring = grow(Rules(Shape.RING, 16, 64), 7)
        before = owners_of(ring)
        ring.join(Newcomer("new"))
        after = owners_of(ring)
        assert {after[one] for one in after if after[one] != before[one]} == {"new"}
        assert sum(after[one] != before[one] for one in after) == 2

    def test_the_stripes_of_one_that_leaves_go_to_different_hosts(self):
        ring = grow(Rules(Shape.RING, 30, 64), 6)
        ring.leave("h0")
        assert owned(ring) == dict.fromkeys(["h1", "h2", "h3", "h4", "h5"], 6)

    def test_groups_read_from_groups_before_them(self):
        ring = grow(Rules(Shape.RING, 4, 3), 9)
        assert Counter(group_of(ring, host) for host in hosts_of(ring)) == {0: 3, 1: 3, 2: 3}
        owners = owners_of(ring)
        for (stripe, group), owner in owners.items():
            assert ring.edge(owner, stripe).parent == (owners[stripe, 0] if group else None)

    def test_groups_read_from_the_source_once_there_is_none_before(self):
        ring = grow(Rules(Shape.RING, 4, 3), 6)
        for host in ("h0", "h1", "h2"):
            ring.leave(host)
        check(ring, Rules(Shape.RING, 4, 3))
        assert all(totals.at_source == 1 for totals in ring.totals)

    def test_hosts_join_the_group_that_has_most_of_their_rack(self):
        ring = shapes.empty(Rules(Shape.RING, 4, 4))
        for number in range(5):
            ring.join(Newcomer(f"a{number}", "a"))
        ring.join(Newcomer("b0", "b"))
        ring.leave("a0")
        ring.join(Newcomer("b1", "b"))
        assert {group_of(ring, host) for host in ("a4", "b0", "b1")} == {1}

    def test_with_no_foreign_children_a_group_is_of_one_rack(self):
        ring = shapes.empty(Rules(Shape.RING, 4, 64, 0))
        for number in range(12):
            ring.join(Newcomer(f"h{number}", f"r{number % 3}"))
        assert [group_of(ring, f"h{number}") for number in range(6)] == [0, 1, 2, 0, 1, 2]

    def test_the_standby_of_all_but_owners_is_whom_the_owner_reads_from(self):
        ring = grow(Rules(Shape.RING, 4, 3), 6)
        owners = owners_of(ring)
        for host in hosts_of(ring):
            for stripe in range(4):
                if owners[stripe, 1] not in (host, None) and group_of(ring, host) == 1:
                    edge = ring.edge(host, stripe)
                    assert (edge.parent, edge.standby) == (owners[stripe, 1], owners[stripe, 0])

    def test_without_a_host_that_may_own_any_all_read_from_the_source(self):
        ring = grow(Rules(Shape.RING, 4, 64), 3)
        for host in hosts_of(ring):
            ring.drain(host)
        assert all(totals.at_source == 3 for totals in ring.totals)
        ring.relieve("h1")
        assert len(ring.inner_in("h1")) == 4

    def test_an_overloaded_host_gives_stripes_to_those_with_less_traffic(self):
        ring = grow(Rules(Shape.RING, 16, 64), 4)
        ring.overload("h0")
        traffic = {"h0": 900.0, "h1": 100.0, "h2": 100.0, "h3": 500.0}
        assert ring.follow("h0", traffic, ())
        assert owned(ring) == {"h0": 1, "h1": 6, "h2": 5, "h3": 4}
        assert not ring.follow("h0", traffic, ())
        ring.relieve("h0")
        assert owned(ring)["h0"] == 1
        check(ring, Rules(Shape.RING, 16, 64))

    def test_where_all_have_the_same_traffic_nothing_changes_hands(self):
        ring = grow(Rules(Shape.RING, 16, 64), 4)
        assert not ring.follow("h0", dict.fromkeys(hosts_of(ring), 7.0), ())
        assert not ring.follow("h0", {"h1": 7.0}, ())
        self.assertRaises(errors.HostUnknown, ring.follow, "h9", {}, ())

    def test_where_uplinks_are_busy_a_group_is_parted_by_racks(self):
        ring = shapes.empty(Rules(Shape.RING, 6, 64))
        for number in range(6):
            ring.join(Newcomer(f"h{number}", f"r{number % 3}"))
        before = owners_of(ring)
        assert not ring.follow("h1", {}, (0.9, 0.7))
        assert owners_of(ring) == before
        assert ring.follow("h1", {}, (0.9, 0.81, 0.7))
        assert [group_of(ring, f"h{number}") for number in range(6)] == [0, 1, 2, 0, 1, 2]
        assert owned(ring, 1) == {"h1": 3, "h4": 3}
        assert {(one, owner) for (one, _), owner in before.items()} <= {
            (one, owner) for (one, _), owner in owners_of(ring).items()
        }
        assert all(totals.at_source == 1 for totals in ring.totals)
        assert not ring.follow("h1", {}, (0.9, 0.9, 0.9))
        check(ring, Rules(Shape.RING, 6, 64, 0))

    def test_trees_do_not_follow_traffic(self):
        assert not grow(Rules(Shape.FOREST, 2, 2), 4).follow("h0", {"h0": 7.0}, ())

    def test_who_could_feed_a_host_is_the_owner(self):
        ring = grow(Rules(Shape.RING, 2, 64), 2)
        [(stripe, owner), *_] = ((one, host) for (one, _), host in owners_of(ring).items())
        [other] = set(hosts_of(ring)) - {owner}
        assert [node.host for node in ring.parents_for(other, None, stripe)] == [owner]
        assert [node.host for node in ring.parents_for("new", None, stripe)] == [owner]
        assert not ring.parents_for(owner, None, stripe)

    def test_rings_that_cannot_be_are_refused(self):
        for rules in (
            Rules(Shape.RING, 0, 64),
            Rules(Shape.RING, 61, 64),
            Rules(Shape.RING, 16, 1),
            Rules(Shape.RING, 16, 65),
            Rules(Shape.RING, 16, 64, 1),
        ):
            self.assertRaises(errors.ShapeInvalid, shapes.check, rules)

    def test_joining_twice_and_leaving_unplaced_are_refused(self):
        ring = grow(RULES[0], 1)
        self.assertRaises(errors.HostPlaced, ring.join, Newcomer("h0"))
        self.assertRaises(errors.HostUnknown, ring.leave, "h1")
        self.assertRaises(errors.HostUnknown, ring.relieve, "h1")
        self.assertRaises(errors.HostUnknown, ring.drain, "h1")
