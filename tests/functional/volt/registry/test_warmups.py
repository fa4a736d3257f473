"""Whom Volt asks to warm an image, and what it knows of how far they are."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.registry.base import NOW, portal
from tests.functional.volt.registry.test_profiles import ProfilesCase
from volt import errors
from volt.db.changes import Change, Changes
from volt.model.hosts import Report, Wiring
from volt.model.warmups import Chosen, Progress, Warming, Warmup

ALL = Chosen()


class TestWarmups(ProfilesCase):
    def setUp(self):
        super().setUp()
        self.warmups = self.ground.warmups
        self.store()
        for host in ("a", "b"):
            self.ground.hosts.heartbeat(host, Report({}))
        self.placements.join("x", "c", portal(), Wiring("r1"))

    def ask(self, chosen=ALL, workload="boot"):
        return {one.host: one.state for one in self.warmups.ask("v", workload, chosen, NOW)}

    def tell(self, host, *progress):
        """Have a host say how far it is with what it is asked just now."""
        (wish,) = self.warmups.of_host(host)
        self.warmups.tell("v", host, Progress(wish.generation, *progress))

    def wishes(self, host):
        return [(one.image, one.workload) for one in self.warmups.of_host(host)]

    def test_those_who_are_meant_are_asked(self):
        assert self.ask(Chosen(("a",))) == {"a": "asked"}
        assert self.ask(Chosen(rack="r1")) == {"c": "asked"}
        assert self.ask() == {"a": "asked", "b": "asked", "c": "asked"}
        assert self.warmups.index("v")[0] == Warmup(
            "a", "boot", Warming.ASKED, 0, 0, "", NOW, False
        )

    def test_who_is_not_there_is_named(self):
        for chosen, words in (
            (Chosen(("a", "z")), "not known: host z."),
            (Chosen(rack="r9"), "no host has reported in rack r9"),
        ):
            gone = self.assertRaises(errors.HostUnknown, self.ask, chosen)
            assert words in str(gone)
        assert self.warmups.index("v") == []

    def test_without_a_profile_nobody_is_asked(self):
        refused = self.assertRaises(errors.ProfileUnknown, self.warmups.ask, "x", "boot", ALL, NOW)
        assert "volt-manage profile import" in str(refused)
        self.assertRaises(errors.ImageUnknown, self.warmups.ask, "nope", "boot", ALL, NOW)

    def test_a_host_hears_of_it_until_it_has_said_how_it_ended(self):
        self.ask(Chosen(("a",)))
        assert self.wishes("a") == [("v", "boot")]
        self.tell("a", Warming.FETCHING, 100, 10, "")
        assert self.wishes("a") == [("v", "boot")]
        self.tell("a", Warming.FAILED, 100, 20, "no space")
        assert not self.warmups.of_host("a")
        (told,) = self.warmups.index("v")
        assert (told.state, told.wanted, told.there, told.detail) == ("failed", 100, 20, "no space")

    def test_who_is_about_it_goes_on_and_who_has_ended_begins_anew(self):
        self.ask(Chosen(("a", "b")))
        self.tell("a", Warming.FETCHING, 100, 10, "")
        self.tell("b", Warming.WARM, 100, 100, "")
        before = self.warmups.of_host("a")
        assert self.ask(Chosen(("a", "b"))) == {"a": "fetching", "b": "asked"}
        assert self.warmups.of_host("a") == before
        assert self.warmups.index("v")[1].there == 0

    def test_another_workload_is_another_wish(self):
        self.ask(Chosen(("a",)))
        self.tell("a", Warming.FETCHING, 100, 10, "")
        self.assertRaises(errors.ProfileUnknown, self.ask, Chosen(("a",)), "web")
        self.store(workload="web")
        (old,) = self.warmups.of_host("a")
        assert self.ask(Chosen(("a",)), "web") == {"a": "asked"}
        assert self.wishes("a") == [("v", "web")]
        late = Progress(old.generation, Warming.WARM, 100, 100, "")
        self.assertRaises(errors.WarmupUnknown, self.warmups.tell, "v", "a", late)

    def test_it_shows_who_still_has_the_image(self):
        self.ask(Chosen(("a", "b")))
        self.placements.join("v", "a", portal())
        assert [one.attached for one in self.warmups.index("v")] == [True, False]
        self.placements.leave("v", "a")
        assert [one.attached for one in self.warmups.index("v")] == [False, False]

    def test_those_who_wait_for_news_are_woken(self):
        changes = Changes(self.ground.engine)
        changes.following()
        self.ask(Chosen(("a",)))
        (change,) = changes.following()
        assert change == Change("v", "a", self.images.show("v").generation)
        self.ask(Chosen(("a",)))
        assert changes.following() == []

    def test_whoever_was_not_asked_is_told_so(self):
        done = Progress(0, Warming.WARM, 1, 1, "")
        self.assertRaises(errors.WarmupUnknown, self.warmups.tell, "v", "a", done)

    def test_it_ends_with_the_host_and_with_the_image(self):
        self.ask(Chosen(("a", "b")))
        self.ground.hosts.expire(["a"])
        assert [one.host for one in self.warmups.index("v")] == ["b"]
        self.images.delete("v")
        assert not self.warmups.of_host("b")

    def test_hosts_join_and_tell_while_they_are_asked(self):
        hosts = [f"h{number}" for number in range(12)]
        for host in hosts:
            self.ground.hosts.heartbeat(host, Report({}))
        ended = threading.Event()

        def be(host):
            while not self.warmups.of_host(host):
                time.sleep(0.02)
            self.placements.join("v", host, portal())
            for there in range(5):
                self.tell(host, Warming.FETCHING, 5, there, "")
                self.ground.hosts.heartbeat(host, Report({}))
            self.tell(host, Warming.WARM, 5, 5, "")

        def go_on_asking():
            while not ended.wait(0.05):
                self.warmups.ask("v", "boot", Chosen(("a",)), NOW)

        with ThreadPoolExecutor(len(hosts) + 1) as pool:
            asking = pool.submit(go_on_asking)
            self.ask(Chosen(tuple(hosts)))
            list(pool.map(be, hosts))
            ended.set()
            asking.result()
        found = {one.host: one for one in self.warmups.index("v")}
        assert {found[host].state for host in hosts} == {"warm"}
