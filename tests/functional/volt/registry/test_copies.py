"""Hosts that have all of an image are known, and one of them may stand for the source."""

from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.registry.base import NOW, TreesCase, portal
from volt import errors
from volt.model.hosts import ImageReport, Report
from volt.model.images import CopyPolicy, Hydration, NewImage
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

    def test_a_host_with_all_of_some_stripes_is_counted_there_and_no_event(self):
        self.join("a", "b")
        self.beat("a")
        report = ImageReport(self.generation("b"), copied=256, complete=(1,))
        self.ground.hosts.heartbeat("b", Report({"x": report}))
        assert (self.copies(), self.images.show("x").complete) == (1, (1, 2))
        found = self.images.figures()
        assert (found.copies["x"].whole, found.copies["x"].stripes) == (1, (1, 2))
        assert found.wanted == {}
        assert [one.host for one in self.ground.hosts.events() if "whole" in one.kind] == ["a"]
        self.placements.leave("x", "a")
        assert self.images.show("x").complete == (0, 1)

    def test_reads_are_the_sum_of_what_hosts_said_last(self):
        self.join("a", "b")
        for host, hits, misses in (("a", 9, 9), ("a", 5, 2), ("b", 1, 0)):
            report = ImageReport(self.generation(host), hits=hits, misses=misses)
            self.ground.hosts.heartbeat(host, Report({"x": report, "gone": report}))
        assert self.images.figures().reads == {"x": (6, 2)}

    def told(self, host):
        """Parents and standbys of a host, by name; the source is 'source', nobody is None."""
        return [
            tuple(one and (one.host or "source") for one in (feed.parent, feed.standby))
            for feed in self.placements.show("x", host).stripes
        ]

    def test_a_host_with_all_of_it_stands_by_for_the_source(self):
        names = [f"h{number}" for number in range(9)]
        self.join(*names)
        before = {host: (self.told(host), self.generation(host)) for host in names}
        near = {host for host, (told, _) in before.items() if "source" in sum(told, ())}
        assert len(near) < len(names)
        self.beat("h7")
        for host, (told, generation) in before.items():
            assert (self.generation(host) > generation) == (host in near)
            for then, (parent, standby) in zip(told, self.told(host), strict=True):
                assert parent == then[0]
                assert standby not in (parent, host)
                spare = None if parent == "source" else "source"
                wanted = "h7" if "h7" not in (host, parent) else spare
                assert standby == (wanted if then[1] in (None, "source") else then[1])
        self.beat("h7", whole=False)
        assert {host: self.told(host) for host in names} == {
            host: told for host, (told, _) in before.items()
        }

    def test_who_stood_by_and_goes_is_replaced_and_all_hear_of_it(self):
        self.join("a", "b", "c", "d")
        self.beat("c")
        self.beat("d")
        first = self.fed_by_source().pop()
        for gone, left in (("c", "d"), ("d", None)):
            before = self.generation(first)
            if first != gone:
                self.placements.remove("x", gone)
                assert self.generation(first) > before
            told = dict(self.told("a"))
            assert set(told.values()) <= {left, "source", "b", "c", "d", None} - {gone}
        assert self.told("a")[0][1] in (None, "source", "b")

    def test_a_whole_hosts_new_portal_is_told_to_those_for_whom_it_stands_by(self):
        self.join("a", "b", "c")
        self.beat("c")
        [first, *_] = sorted(self.fed_by_source() - {"c"})
        before = self.generation(first)
        self.placements.join("x", "c", portal(9))
        assert self.generation(first) > before
        standbys = [one.standby for one in self.placements.show("x", first).stripes]
        assert portal(9) in [one.portal for one in standbys if one]

    def test_a_leaf_hangs_below_a_host_with_all_of_it_if_that_has_room(self):
        self.join("a", "b", "c")
        roomy = {
            stripe: {one.host for one in self.images.parents("x", "z", 9) if one.stripe == stripe}
            for stripe in (0, 1)
        }
        whole = sorted(roomy[0])[-1]
        self.beat(whole)
        best = [one.host for one in self.images.parents("x", "z", 9) if one.stripe == 0]
        assert best[0] == whole

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
        kinds = [(one.kind, one.host) for one in self.ground.hosts.events()]
        assert kinds.index(("home_gone", "b")) < kinds.index(("rehome", "b"))
        assert self.images.figures().sources_gone == {}

    def test_no_host_that_shall_feed_fewer_takes_the_place_if_another_can(self):
        self.join("a", "b", "c", "d")
        for host in "abcd":
            self.beat(host)
        self.ground.hosts.drain("b", True)
        report = {"x": ImageReport(self.generation("c"), whole=True)}
        self.ground.hosts.heartbeat("c", Report(report, overloaded=True))
        self.images.rehome("x", "a")
        self.placements.remove("x", "a")
        assert self.images.show("x").home == "d"
        self.placements.remove("x", "d")
        assert self.images.show("x").home == "c"
        self.placements.remove("x", "c")
        assert self.images.show("x").home == "b"

    def test_nobody_stands_for_a_source_that_was_removed_until_a_host_has_all_again(self):
        self.join("a", "b")
        self.beat("a")
        self.images.withdraw("x")
        assert self.images.figures().sources_gone == {"x": True}
        self.placements.remove("x", "a")
        assert self.images.figures().sources_gone == {"x": False}
        assert ("home_gone", "a") in [(one.kind, one.host) for one in self.ground.hosts.events()]
        self.beat("b")
        assert self.images.show("x").home == "b"
        assert self.images.figures().sources_gone == {"x": True}

    def test_a_source_that_is_back_is_not_gone(self):
        self.join("a")
        self.images.withdraw("x", forced=True)
        assert self.images.figures().sources_gone == {"x": False}
        self.create("x")
        assert self.images.figures().sources_gone == {}
        self.images.withdraw("x", forced=True)
        self.images.rehome("x", None)
        assert self.images.figures().sources_gone == {}
        self.beat("a")
        assert self.images.show("x").home is None

    def test_a_source_goes_if_a_host_has_all_of_the_image(self):
        self.join("a", "b")
        refused = self.assertRaises(errors.ImageLastCopy, self.images.withdraw, "x")
        assert "'volt-manage image hydrate x --copies 2'" in str(refused)
        assert "by 2 hosts" in str(refused)
        self.beat("b")
        before = self.generation("a")
        assert self.images.withdraw("x").home == "b"
        assert self.generation("a") > before
        assert set(self.parents("a")) <= {"b"}
        assert self.images.withdraw("x").home == "b"

    def test_a_home_that_is_whole_no_more_is_no_copy(self):
        self.join("a", "b")
        self.beat("a")
        self.images.rehome("x", "a")
        self.beat("a", whole=False)
        self.assertRaises(errors.ImageLastCopy, self.images.withdraw, "x")
        self.beat("b")
        assert self.images.withdraw("x").home == "b"

    def test_the_last_copy_goes_only_by_force_and_hosts_keep_their_places(self):
        self.join("a")
        assert self.images.withdraw("x", forced=True).home is None
        assert self.images.show("x").hosts == 1
        assert ("source_gone", None) in [(one.kind, one.host) for one in self.ground.hosts.events()]

    def test_disks_of_hosts_without_a_place_need_the_last_copy_too(self):
        self.ground.hosts.heartbeat("a", Report({}, disks={"x": 1}))
        refused = self.assertRaises(errors.ImageLastCopy, self.images.withdraw, "x")
        assert "by disks of host a" in str(refused)

    def test_an_image_that_nobody_needs_is_forgotten_with_its_source(self):
        assert self.images.withdraw("x") is None
        self.assertRaises(errors.ImageUnknown, self.images.withdraw, "x")

    def test_hosts_hear_at_once_that_they_shall_copy_an_image_and_when(self):
        self.create_hashed("y")
        self.join("a", image="y")
        before = self.placements.show("y", "a").generation
        assert self.images.hydrate("y", CopyPolicy(60, 5)).hydrate == CopyPolicy(60, 5)
        self.join("b", image="y")
        for host in "ab":
            assert self.placements.show("y", host).hydrate == Hydration(60, 5)
        assert self.placements.show("y", "a").generation > before
        self.images.hydrate("y", None)
        assert self.placements.show("y", "a").hydrate is None
        assert self.images.show("y").hydrate is None

    def test_an_image_without_hashes_is_not_copied(self):
        self.assertRaises(errors.HashesUnknown, self.images.hydrate, "x", CopyPolicy(0, 0))

    def want(self, copies, *hosts):
        """Have so many copies of an image that these hosts have joined, and have all said so."""
        self.create_hashed("y")
        self.join(*hosts, image="y")
        self.say(*hosts)
        self.images.hydrate("y", CopyPolicy(0, 0, copies))

    def say(self, *hosts, room=1 << 30, rate=0, **report):
        for host in hosts:
            generation = self.placements.show("y", host).generation
            said = {"y": ImageReport(generation, **report)}
            self.ground.hosts.heartbeat(host, Report(said, rate, rate, room=room))

    def chosen(self):
        return {one.host for one in self.ground.copies.index("y") if one.chosen}

    def asked(self, *hosts):
        return {host for host in hosts if self.placements.show("y", host).hydrate is not None}

    def test_as_many_hosts_as_are_wanted_are_asked_and_hear_of_it(self):
        self.create_hashed("y")
        self.join(*"abcd", image="y")
        self.say(*"abcd")
        before = {host: self.placements.show("y", host).generation for host in "abcd"}
        assert self.images.hydrate("y", CopyPolicy(9, 5, 2)).hydrate == CopyPolicy(9, 5, 2)
        assert self.asked(*"abcd") == self.chosen() == {"a", "b"}
        assert self.placements.show("y", "a").hydrate == Hydration(9, 5)
        assert self.placements.show("y", "a").generation > before["a"]
        self.ground.copies.tend()
        assert self.chosen() == {"a", "b"}
        self.images.hydrate("y", CopyPolicy(9, 5))
        assert self.asked(*"abcd") == set("abcd")
        assert self.chosen() == set()
        self.images.hydrate("y", None)
        assert self.asked(*"abcd") == set()

    def test_who_joins_later_is_asked_if_others_lack(self):
        self.want(2, "a")
        assert self.chosen() == {"a"}
        self.join("b", "c", image="y")
        self.say("b", "c")
        self.ground.copies.tend()
        assert self.chosen() == {"a", "b"}
        before = self.placements.show("y", "c").generation
        self.ground.copies.tend()
        assert self.placements.show("y", "c").generation == before

    def test_who_goes_dies_or_declines_is_replaced(self):
        self.want(2, *"abcde")
        self.say("a", copied=512, whole=True)
        self.placements.remove("y", "a")
        self.ground.copies.tend()
        assert self.chosen() == {"b", "c"}
        self.ground.hosts.expire(["b"])
        self.ground.copies.tend()
        assert self.chosen() == {"c", "d"}
        self.say("c", declines=True)
        self.ground.copies.tend()
        assert self.chosen() == self.asked(*"cde") == {"d", "e"}

    def test_a_copy_that_is_given_back_is_replaced_and_one_that_rots_is_not(self):
        self.want(1, *"abc")
        self.say("a", copied=512, whole=True)
        self.say("a", copied=256)
        self.ground.copies.tend()
        assert self.chosen() == {"a"}
        self.say("a", copied=512, whole=True)
        self.say("a", declines=True)
        self.ground.copies.tend()
        assert self.chosen() == {"b"}

    def test_who_comes_back_is_one_of_many_again(self):
        self.want(1, "a", "b")
        self.say("a", copied=512, whole=True, complete=(0, 1))
        self.placements.leave("y", "a")
        self.ground.copies.tend()
        assert self.chosen() == {"b"}
        self.join("a", image="y")
        assert self.chosen() == {"b"}
        assert (self.images.show("y").copies, self.images.show("y").complete) == (0, (0, 0))
        self.say("a", copied=512, whole=True)
        assert self.images.show("y").copies == 1

    def test_a_copy_that_nobody_asked_for_counts_too(self):
        self.create_hashed("y")
        self.join(*"abc", image="y")
        self.say("c", copied=512, whole=True)
        self.images.hydrate("y", CopyPolicy(0, 0, 2))
        assert self.chosen() == {"a"}
        [first, other] = self.ground.copies.index("y")
        assert (first.host, first.chosen, first.whole) == ("a", True, False)
        assert (other.host, other.copied, other.whole) == ("c", 512, True)

    def test_hosts_with_space_and_an_idle_link_are_asked_first(self):
        self.create_hashed("y")
        self.join(*"abcd", image="y")
        self.say("a", room=0)
        self.say("b", rate=10**9)
        self.say("c", "d")
        self.images.hydrate("y", CopyPolicy(0, 0, 3))
        assert self.chosen() == {"b", "c", "d"}

    def test_an_unknown_image_has_no_copies(self):
        self.assertRaises(errors.ImageUnknown, self.ground.copies.index, "z")

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
