"""A part of the trees that is read from a database is the one that memory would give."""

import random
import threading
from collections import Counter

from sqlalchemy import event
from sqlalchemy.orm import Session
from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.registry.base import TreesCase, portal
from tests.places import Memory
from volt.db import forests, reading
from volt.db.models import ImageRow
from volt.model.hosts import Report, Wiring
from volt.placement import part, shapes
from volt.placement.part import LOWEST_FAST_OF_RACK, Ask, Change, Pick
from volt.placement.rules import Rules, Shape

HOSTS = 60
GIGABIT = 125_000_000  # bytes/s
RULES = Rules(Shape.FOREST, 2, 3, 1)


class TestParts(TreesCase):
    def setUp(self):
        super().setUp()
        self.create("y", RULES.stripes, RULES.fanout)
        dice = random.Random(3)
        for number in range(HOSTS):
            rack = dice.choice([None, "r1", "r2", "r3"])
            self.placements.join("y", f"h{number:02}", portal(), Wiring(rack))
        for number in range(0, HOSTS, 7):
            self.ground.hosts.drain(f"h{number:02}", True)
            report = Report({}, overloaded=True)
            self.ground.hosts.heartbeat(f"h{(number + 1) % HOSTS:02}", report)

    def places(self, places):
        """Everything that is known of each host here, by stripe."""
        return [
            sorted(places.nodes(stripe), key=lambda node: node.host)
            for stripe in range(RULES.stripes)
        ]

    def test_it_holds_the_same_hosts_whatever_changes(self):
        with Session(self.ground.engine) as session:
            image = session.get(ImageRow, "y")
            whole = forests.whole(session, image)
            for change in (
                Change(joins=1),
                Change(racks={"r1": 3, "r3": 1}, joins=5),
                Change(["h05"], others=1),
                Change(["h00", "h31", "h59"], {"r2": 2}, joins=2, others=3),
                Change(["h40"], others=HOSTS),
            ):
                expected = shapes.empty(RULES, whole.totals)
                stored = Memory(whole, RULES)
                part.read(expected.taking(stored, change), stored)
                found = forests.part(session, image, change)
                assert self.places(found) == self.places(expected), change

    def test_what_changes_of_several_images_read_is_what_each_reads_alone(self):
        self.create("z", 3, 3)
        for number in range(20):
            self.placements.join(
                "z", f"h{number:02}", portal(), Wiring("r1" if number % 3 else None)
            )
        with Session(self.ground.engine) as session:
            changes = {
                session.get(ImageRow, "x"): Change(joins=2),  # nobody is there
                session.get(ImageRow, "y"): Change(racks={"r1": 3, "r3": 1}, joins=5),
                session.get(ImageRow, "z"): Change(["h05"], {"r1": 1}, joins=1, others=1),
            }
            found = forests.parts(session, changes)
            for image, change in changes.items():
                alone = forests.part(session, image, change)
                for stripe in range(image.stripes):
                    held, expected = (
                        sorted(places.nodes(stripe), key=lambda node: node.host)
                        for places in (found[image], alone)
                    )
                    assert held == expected, (image.name, stripe)

    def test_a_change_makes_few_statements_however_many_hosts_there_are(self):
        assert (
            self.statements(lambda: self.placements.join("y", "new", portal(), Wiring("r1"))) <= 26
        )
        assert self.statements(lambda: self.ground.hosts.heartbeat("new", Report({}))) <= 5
        assert self.statements(lambda: self.placements.leave("y", "new")) <= 17

    def statements(self, act):
        """Count what the caller of ``act`` has the database do."""
        made, me = [], threading.get_ident()

        def note(connection, cursor, statement, *rest):
            if threading.get_ident() == me:
                made.append(statement)

        event.listen(self.ground.engine, "before_cursor_execute", note)
        try:
            act()
        finally:
            event.remove(self.ground.engine, "before_cursor_execute", note)
        return len(made)


class TestRacks(TreesCase):
    """Racks in trees that a database holds: each change sees a part of them only."""

    SIZE, COUNT = 8, 6

    def setUp(self):
        super().setUp()
        joining = [f"r{rack}-{one}" for rack in range(self.COUNT) for one in range(self.SIZE)]
        random.Random(1).shuffle(joining)
        for host in joining:
            self.placements.join("x", host, portal(), Wiring(host[:2]))

    def ways_in(self, hosts):
        """Return how many hosts of each rack are fed from elsewhere, in each stripe."""
        self.check_trees(hosts)
        return [
            Counter(
                node.rack
                for node in tree.nodes
                if node.parent is None or not node.parent.startswith(node.rack)
            )
            for tree in self.images.trees("x").trees
        ]

    def hosts(self, *racks):
        return [f"r{rack}-{one}" for rack in racks for one in range(self.SIZE)]

    def test_a_stripe_comes_into_a_rack_once_or_twice(self):
        for ways in self.ways_in(self.hosts(*range(self.COUNT))):
            assert max(ways.values()) <= 3
            assert ways.total() <= 2 * self.COUNT

    def test_a_rack_that_is_gone_is_in_the_way_of_no_other(self):
        assert self.placements.expel("x", self.hosts(2), None) == self.SIZE
        for ways in self.ways_in(self.hosts(0, 1, 3, 4, 5)):
            assert max(ways.values()) <= 4
        for host in self.hosts(2):
            self.placements.join("x", host, portal(), Wiring("r2"))
        for ways in self.ways_in(self.hosts(*range(self.COUNT))):
            assert max(ways.values()) <= 4

    def test_who_could_feed_a_host_is_as_deep_as_the_tree_says(self):
        trees = self.images.trees("x").trees
        depths = [{node.host: node.depth for node in tree.nodes} for tree in trees]
        found = self.images.parents("x", "r1-0", 8)
        assert found
        assert [one.depth for one in found] == [depths[one.stripe][one.host] for one in found]


class TestSpeeds(TreesCase):
    """Slow hosts in trees that a database holds."""

    def held_up(self):
        """Return inner hosts that much slower ones feed."""
        with Session(self.ground.engine) as session:
            places = forests.whole(session, session.get(ImageRow, "x"))
        return [
            (stripe, node.host)
            for stripe in range(len(places.totals))
            for node in places.nodes(stripe)
            if node.inner and node.parent and places.node(node.parent, stripe).holds_up(node)
        ]

    def test_hosts_that_came_first_and_are_slow_hold_up_nobody_who_feeds_others(self):
        speeds = [GIGABIT] * 6 + [10 * GIGABIT] * 12 + [25 * GIGABIT] * 6
        for number, speed in enumerate(speeds):
            self.placements.join("x", f"h{number:02}", portal(), Wiring(speed=speed))
            assert self.held_up() == []
        joined = [f"h{number:02}" for number in range(len(speeds))]
        self.check_trees(joined)
        for host in joined[6:20:2]:
            self.placements.leave("x", host)
            assert self.held_up() == []
        self.placements.join("x", joined[6], portal(), Wiring(speed=GIGABIT))
        assert self.held_up() == []
        assert self.ground.hosts.show(joined[6]).speed == GIGABIT

    def test_a_change_reads_the_lowest_of_those_that_are_fast_enough(self):
        for number in range(24):
            rack, speed = (None, "r1")[number % 2], (None, GIGABIT, 10 * GIGABIT)[number % 3]
            self.placements.join("x", f"h{number:02}", portal(), Wiring(rack, speed))
        with Session(self.ground.engine) as session:
            image = session.get(ImageRow, "x")
            whole = forests.whole(session, image)
            rules = Rules(Shape.FOREST, image.stripes, image.fanout)
            stored = reading._Stored(session.connection(), image), Memory(whole, rules)
            for rack in (None, "r1"):
                for speed in (GIGABIT, 10 * GIGABIT, 11 * GIGABIT):
                    ask = Ask(picks=[Pick(LOWEST_FAST_OF_RACK, 2, rack, speed)])
                    found, expected = (
                        sorted((stripe, node.host) for (stripe, node), _ in one.read(ask))
                        for one in stored
                    )
                    assert found == expected
