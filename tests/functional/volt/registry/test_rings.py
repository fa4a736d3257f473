"""A ring that a database holds: who owns which stripes, and who is told."""

from collections import Counter
from dataclasses import replace

from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.registry.base import NOW, TreesCase, portal
from volt.model.hosts import ImageReport, Report, Wiring
from volt.model.images import NewImage
from volt.placement.rules import Shape
from volt.registry.batches import Turns
from volt.registry.placements import Placements
from volt.transport import Portal


class TestRing(TreesCase):
    STRIPES = 12

    def setUp(self):
        super().setUp()
        source = Portal("127.0.0.1", self.ground.source_port, "iqn.2003-01.org.example:s", 0)
        new = NewImage("ring", 512, Shape.RING, self.STRIPES, 64, source)
        self.images.create(new, NOW)
        self.images.create(replace(new, name="small", fanout=2), NOW)

    def owners(self, image="ring"):
        """Return the owner of each stripe in the group that reads from the source."""
        return [
            next(node.host for node in tree.nodes if node.inner and node.parent is None)
            for tree in self.images.trees(image).trees
        ]

    def check_ring(self, hosts):
        owners = self.owners()
        shares = Counter(owners)
        assert max(shares.values()) - min(shares[host] for host in hosts) <= 1
        for host in hosts:
            told = [feed.parent.host for feed in self.placements.show("ring", host).stripes]
            assert told == [None if owner == host else owner for owner in owners]

    def test_each_reads_from_the_owners_as_hosts_come_and_go(self):
        hosts = [f"h{number}" for number in range(7)]
        for number, host in enumerate(hosts):
            self.join(host, image="ring")
            self.check_ring(hosts[: number + 1])
        before = self.owners()
        self.placements.leave("ring", "h3")
        self.check_ring([host for host in hosts if host != "h3"])
        kept = [(old, new) for old, new in zip(before, self.owners(), strict=True) if old != "h3"]
        assert all(old == new for old, new in kept)

    def test_dead_hosts_stripes_are_owned_by_others_at_once(self):
        hosts = [f"h{number}" for number in range(5)]
        self.join(*hosts, image="ring")
        assert self.ground.hosts.expire(["h1", "h4"]) == 2
        self.check_ring(["h0", "h2", "h3"])

    def test_a_drained_host_owns_none_and_reads_on(self):
        hosts = [f"h{number}" for number in range(4)]
        self.join(*hosts, image="ring")
        self.ground.hosts.drain("h2", True)
        assert "h2" not in self.owners()
        assert None not in [one.parent.host for one in self.placements.show("ring", "h2").stripes]
        self.ground.hosts.drain("h2", False)
        self.check_ring(hosts)

    def test_a_new_generation_is_told_to_those_whose_owners_changed(self):
        self.join("a", "b", "c", image="ring")
        before = {host: self.placements.show("ring", host) for host in "abc"}
        self.ground.hosts.drain("c", True)
        for host in "abc":
            assert self.placements.show("ring", host).generation > before[host].generation

    def test_a_host_that_stays_overloaded_owns_less(self):
        hosts = ["a", "b", "c"]
        self.join(*hosts, image="ring")
        for host in hosts:
            self.report(host, 100)
        self.report("a", 1000, overloaded=True)
        assert self.owners().count("a") == 4
        generation = self.placements.show("ring", "b").generation
        self.report("a", 1000, overloaded=True)
        assert Counter(self.owners()) == {"a": 1, "b": 6, "c": 5}
        assert self.placements.show("ring", "b").generation > generation
        generation = self.placements.show("ring", "b").generation
        self.report("a", 1000, overloaded=True)
        assert self.placements.show("ring", "b").generation == generation
        self.report("a", 100)
        assert self.owners().count("a") == 1

    def test_where_uplinks_are_busy_an_overloaded_hosts_group_is_parted_by_racks(self):
        racks = {"a": "r1", "b": "r2", "c": "r1", "d": "r2"}
        for host, rack in racks.items():
            self.placements.join("ring", host, portal(), Wiring(rack))
        for host in racks:
            self.report(host, 500)
        owners = self.owners()
        for uplink in (0, 1250):  # not known; 1000 of these 1250 are no more than 80 %
            Placements(self.ground.engine, Turns(), uplink).follow("a")
            assert self.owners() == owners
        before = {host: self.placements.show("ring", host) for host in racks}
        Placements(self.ground.engine, Turns(), 1249).follow("a")
        for host, rack in racks.items():
            placement = self.placements.show("ring", host)
            assert placement.generation > before[host].generation
            parents = {feed.parent.host for feed in placement.stripes} - {None}
            mates = {one for one in racks if racks[one] == rack}
            assert parents - mates == (set() if rack == "r1" else {"a", "c"} & parents)
        assert len({host for host in self.owners() if racks[host] == "r1"}) == 2

    def report(self, host, traffic, overloaded=False):
        said = Report({}, received_rate=traffic, sent_rate=traffic, overloaded=overloaded)
        self.ground.hosts.heartbeat(host, said)

    def test_groups_feed_each_other(self):
        self.join("a", "b", "c", "d", image="small")
        parents = {node.parent for tree in self.images.trees("small").trees for node in tree.nodes}
        assert parents > {None, "a", "b"}
        for tree in self.images.trees("small").trees:
            assert sum(node.parent is None for node in tree.nodes) == 1
            assert max(node.depth for node in tree.nodes) == 3

    def test_who_could_feed_a_host_are_the_owners(self):
        self.join("a", "b", image="ring")
        found = self.images.parents("ring", "new", 8)
        assert [one.host for one in sorted(found, key=lambda one: one.stripe)] == self.owners()

    def test_a_copy_of_each_stripe_is_counted(self):
        self.placements.join("ring", "a", portal(), Wiring())
        generation = self.placements.show("ring", "a").generation
        used = ImageReport(generation, complete=(0, self.STRIPES - 1))
        self.ground.hosts.heartbeat("a", Report({"ring": used}))
        assert self.images.show("ring").complete == (1, *[0] * (self.STRIPES - 2), 1)
