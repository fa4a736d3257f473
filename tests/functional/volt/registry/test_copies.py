"""Hosts that have all of an image are known, and one of them may stand for the source."""

from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.registry.base import NOW, TreesCase
from volt import errors
from volt.model.objects import Hydration, ImageReport, NewImage, Report
from volt.placement.rules import Shape
from volt.transport import Portal


class TestCopies(TreesCase):
    def beat(self, host, whole=True):
        report = ImageReport(self.generation(host), copied=512, whole=whole)
        return self.ground.hosts.heartbeat(host, Report({"x": report}))

    def copies(self):
        return self.images.show("x").copies

    def parents(self, host):
        return [feed.parent.host for feed in self.placements.show("x", host).stripes]

    def fed_by_source(self):
        return {
            node.host
            for tree in self.images.trees("x").trees
            for node in tree.nodes
            if node.parent is None
        }

    def test_they_are_counted_as_hosts_say(self):
        self.join("a", "b", "c")
        self.beat("a")
        self.beat("b")
        self.beat("c", whole=False)
        assert self.copies() == 2
        assert self.ground.hosts.show("a").report.images["x"].copied == 512
        self.beat("a", whole=False)
        assert self.copies() == 1
        self.placements.leave("x", "b")
        assert self.copies() == 0
        kinds = [(one.kind, one.host) for one in self.ground.hosts.events()]
        assert {("whole", "a"), ("whole", "b"), ("not_whole", "a")} < set(kinds)

    def test_only_a_host_with_all_of_it_may_stand_for_the_source(self):
        self.join("a")
        self.assertRaises(errors.ImageNotWhole, self.images.rehome, "x", "a")
        self.assertRaises(errors.HostUnknown, self.images.rehome, "x", "z")
        self.assertRaises(errors.ImageUnknown, self.images.rehome, "y", "a")
        assert self.images.show("x").home is None

    def test_whom_the_source_fed_its_home_feeds_and_nobody_is_fed_twice_by_it(self):
        names = [f"h{number}" for number in range(9)]
        self.join(*names)
        home = "h4"
        self.beat(home)
        before = {host: self.generation(host) for host in names}
        assert self.images.rehome("x", home).home == home
        for host in names:
            assert self.generation(host) > before[host]
            for feed in self.placements.show("x", host).stripes:
                if host == home:
                    assert (feed.parent.host, feed.standby) == (None, None)
                    continue
                assert feed.parent.host is not None
                assert feed.parent.host != host
                if feed.standby is not None:
                    assert feed.standby.host not in (None, host, feed.parent.host)
        assert self.fed_by_source() == {
            host
            for host in names
            for parent, node in zip(self.parents(host), self.nodes(host), strict=True)
            if node.parent is None
        }
        assert all(home in self.parents(host) for host in self.fed_by_source() - {home})

    def nodes(self, host):
        return [
            node
            for tree in self.images.trees("x").trees
            for node in tree.nodes
            if node.host == host
        ]

    def test_who_joins_later_reads_from_the_home(self):
        self.join("a")
        self.beat("a")
        self.images.rehome("x", "a")
        self.join("b")
        assert set(self.parents("b")) == {"a"}

    def test_another_one_takes_the_place_of_a_home_that_goes(self):
        self.join("a", "b", "c")
        self.beat("a")
        self.beat("b")
        self.images.rehome("x", "a")
        before = self.generation("c")
        self.placements.remove("x", "a")
        assert self.images.show("x").home == "b"
        assert self.generation("c") > before
        self.ground.hosts.expire(["b"])
        assert self.images.show("x").home is None
        assert self.parents("c") == [None, None]

    def test_hosts_hear_at_once_that_they_shall_copy_an_image_and_when(self):
        self.create_hashed("y")
        self.join("a", image="y")
        before = self.placements.show("y", "a").generation
        assert self.images.hydrate("y", Hydration(60, 5)).hydrate == Hydration(60, 5)
        self.join("b", image="y")
        for host in "ab":
            assert self.placements.show("y", host).hydrate == Hydration(60, 5)
        assert self.placements.show("y", "a").generation > before
        self.images.hydrate("y", None)
        assert self.placements.show("y", "a").hydrate is None
        assert self.images.show("y").hydrate is None

    def test_an_image_without_hashes_is_not_copied(self):
        self.assertRaises(errors.HashesUnknown, self.images.hydrate, "x", Hydration(0, 0))

    def create_hashed(self, name):
        source = Portal("127.0.0.1", self.ground.source_port, "iqn.2003-01.org.example:s", 0)
        hashes = {"root_hash": "a" * 64, "salt": "b" * 64, "upper_hashes": bytes(4096)}
        new = NewImage(name, 1 << 20, Shape.FOREST, 2, 2, source, **hashes)
        self.images.create(new, NOW)

    def test_the_source_can_serve_itself_again(self):
        self.join("a", "b")
        self.beat("a")
        self.images.rehome("x", "a")
        self.images.rehome("x", None)
        assert self.images.show("x").home is None
        assert None in self.parents("b") or None in self.parents("a")
