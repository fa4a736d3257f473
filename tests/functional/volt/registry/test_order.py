"""In which order hosts follow changes: nobody may wait for himself meanwhile."""

import random

from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.registry.base import NOW, TreesCase
from volt.errors import PlacementStale
from volt.model.images import NewImage
from volt.model.placements import State
from volt.placement.rules import Shape
from volt.transport import Portal

STRIPES = 3


class Agents:
    """What the hosts of an image read from: each from whom it was told, once that one is ready."""

    def __init__(self, placements):
        self.placements = placements
        self.used = {}  # of each host, its parents by stripe
        self.standbys = {}

    def follow(self, host):
        """Let a host follow its placement as far as it may; return in which stripes it does."""
        place = self.placements.show("y", host)
        told = {feed.stripe: feed for feed in place.stripes}
        before = self.used.setdefault(host, {one: told[one].parent.host for one in told})
        standbys = self.standbys.setdefault(host, {})
        for stripe, feed in told.items():
            if feed.ready or feed.parent.host == before[stripe]:
                before[stripe] = feed.parent.host
                standbys[stripe] = feed.standby and feed.standby.host
        follows = {one for one in told if before[one] == told[one].parent.host}
        if place.state != State.LEAVING:
            stripes = None if len(follows) == len(told) else follows
            self.placements.ready("y", host, place.generation, stripes)
        return follows

    def lose(self, host):
        """End a host: whom it fed reads from standbys."""
        del self.used[host]
        for child, parents in self.used.items():
            for stripe, parent in parents.items():
                if parent == host:
                    parents[stripe] = self.standbys[child][stripe]

    def children(self, host):
        return {child for child, parents in self.used.items() if host in parents.values()}

    def circle(self):
        """Return a stripe and hosts that wait for each other there; None if nobody does."""
        for stripe in range(STRIPES):
            for host in self.used:
                way, parent = [host], self.used[host][stripe]
                while parent in self.used and parent not in way:
                    way.append(parent)
                    parent = self.used[parent][stripe]
                if parent in way:
                    return stripe, way
        return None


class TestOrder(TreesCase):
    def setUp(self):
        super().setUp()
        self.choose = random.Random(1)
        self.agents = Agents(self.placements)

    def begin(self, shape, fanout, count=12):
        source = Portal("127.0.0.1", self.ground.source_port, "iqn.2003-01.org.example:s", 0)
        self.images.create(NewImage("y", 512, shape, STRIPES, fanout, source), NOW)
        for number in range(count):
            self.arrive(f"h{number}")
        self.follow_all()

    def arrive(self, host):
        self.join(host, image="y")
        self.follow(host)

    def follow(self, host):
        follows = self.agents.follow(host)
        assert self.agents.circle() is None, self.agents.circle()
        return len(follows) == STRIPES

    def follow_all(self):
        """Let all hosts follow, in any order: nobody has to ask more often than there are hosts."""
        waiting = sorted(self.agents.used)
        for _ in range(len(waiting)):
            self.choose.shuffle(waiting)
            waiting = [host for host in waiting if not self.follow(host)]
        assert waiting == []

    def change(self, number):
        """Let something happen to a host."""
        hosts = sorted(self.agents.used)
        host = self.choose.choice(hosts)
        kinds = ("drain", "undrain", "leave", "die") if len(hosts) > STRIPES else ()
        what = self.choose.choice((*kinds, "join", "join"))
        if what in ("drain", "undrain"):
            self.ground.hosts.drain(host, what == "drain")
        elif what == "leave":
            self.placements.leave("y", host)
        elif what == "die":
            self.follow_all()  # a standby of before may read from whom it shall stand by for
            self.ground.hosts.expire([host])
            self.agents.lose(host)
        else:
            self.arrive(f"n{number}")

    def let_go(self):
        """Remove who is not needed any more: only others who leave still read there."""
        places = {host: self.placements.show("y", host) for host in self.agents.used}
        leaving = {host for host, one in places.items() if one.state == State.LEAVING}
        for host in sorted(leaving):
            if not self.placements.show("y", host).needed:
                assert self.agents.children(host) <= leaving
                self.placements.remove("y", host)
                self.agents.lose(host)

    def check(self):
        for number in range(40):
            self.change(number)
            for host in self.choose.choices(sorted(self.agents.used), k=5):
                self.follow(host)
            self.let_go()
        self.follow_all()

    def test_a_parent_is_ready_in_the_stripes_that_it_named(self):
        self.begin(Shape.FOREST, 3)
        self.placements.leave("y", "h0")
        stripe, parent = next(
            (feed.stripe, feed.parent.host)
            for host in sorted(self.agents.used)
            for feed in self.placements.show("y", host).stripes
            if not feed.ready
        )

        def is_ready():
            """Tell what all children hear of that parent."""
            feeds = [self.placements.show("y", host).stripes for host in self.agents.used]
            (said,) = {one[stripe].ready for one in feeds if one[stripe].parent.host == parent}
            return said

        generation = self.placements.show("y", parent).generation
        earlier = generation - 1
        self.assertRaises(PlacementStale, self.placements.ready, "y", parent, earlier, [stripe])
        self.placements.ready("y", parent, generation, {*range(STRIPES)} - {stripe})
        assert not is_ready()
        self.placements.ready("y", parent, generation, [stripe])
        assert is_ready()
        assert self.placements.show("y", parent).state == State.READY

    def test_who_joins_waits_for_nobody(self):
        self.begin(Shape.FOREST, 2, 1)
        for number in range(8):
            self.join(f"n{number}", image="y")
            assert all(feed.ready for feed in self.placements.show("y", f"n{number}").stripes)

    def test_in_trees(self):
        self.begin(Shape.FOREST, 3)
        self.check()

    def test_in_a_ring(self):
        self.begin(Shape.RING, 64)
        self.check()
