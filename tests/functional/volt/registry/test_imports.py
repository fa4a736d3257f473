"""Images that hosts wait for are made by one importer at a time."""

from dataclasses import replace

from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.registry.base import TreesCase
from volt import errors
from volt.db.clock import ClockTable
from volt.model.hosts import Report
from volt.model.imports import Import, Importing, Told
from volt.registry import imports

WANTED, RUNNING, FAILED = Importing.WANTED, Importing.RUNNING, Importing.FAILED


class TestImports(TreesCase):
    def setUp(self):
        super().setUp()
        self.imports = self.ground.imports
        for host, disks in (("a", {"new": 0, "x": 1}), ("b", {"new": 0})):
            self.ground.hosts.heartbeat(host, Report({}, disks=disks))

    def tell(self, importer, state=RUNNING, image="new", detail="converting"):
        return self.imports.tell(image, Told(importer, state, 10, 100, detail))

    def pass_ticks(self, ticks):
        clock = ClockTable(self.ground.engine)
        now = clock.read()
        clock.move(now, replace(now, tick=now.tick + ticks))

    def test_what_hosts_wait_for_is_listed(self):
        expected = Import("new", WANTED, None, 0, 0, "", 2, None)
        assert self.imports.index() == [expected]
        assert self.imports.show("new") == expected
        self.assertRaises(errors.ImportUnknown, self.imports.show, "x")

    def test_one_that_nobody_waits_for_any_more_is_not_wanted(self):
        for host in "ab":
            self.ground.hosts.heartbeat(host, Report({}))
        assert self.imports.index() == []

    def test_an_importer_tells_how_far_it_is(self):
        told = self.tell("s1")
        assert told == Import("new", RUNNING, "s1", 10, 100, "converting", 2, 0)
        self.pass_ticks(3)
        assert self.imports.show("new") == replace(told, silent=3)

    def test_another_one_takes_over_only_from_one_that_is_silent(self):
        self.tell("s1")
        self.pass_ticks(imports.LEASE)
        refused = self.assertRaises(errors.ImportTaken, self.tell, "s2")
        assert "made by s1" in str(refused)
        assert self.imports.show("new").state == RUNNING
        self.pass_ticks(1)
        assert self.imports.show("new").state == WANTED
        assert self.tell("s2").importer == "s2"
        self.assertRaises(errors.ImportTaken, self.tell, "s1")

    def test_after_a_failure_anybody_may_try_again(self):
        self.tell("s1", FAILED, detail="wrong hash")
        self.tell("s2")

    def test_a_failure_lasts_a_minute_if_hosts_wait(self):
        self.tell("s1", FAILED, detail="wrong hash")
        self.tell("s1", FAILED, image="other")
        self.pass_ticks(imports.AGAIN)
        assert self.imports.show("new").state == FAILED
        self.pass_ticks(1)
        assert (self.imports.show("new").state, self.imports.show("new").detail) == (
            WANTED,
            "wrong hash",
        )
        assert self.imports.show("other").state == FAILED

    def test_a_failure_is_forgotten_at_a_word_or_in_time(self):
        self.tell("s1", FAILED)
        self.imports.retry("new")
        assert self.imports.show("new").state == WANTED
        self.tell("s1", FAILED)
        self.pass_ticks(24 * 3600 + 1)
        self.tell("s1", FAILED, image="other")
        assert self.imports.show("new").state == WANTED

    def test_it_ends_once_the_image_is_known(self):
        self.tell("s1")
        self.create("new")
        assert self.imports.index() == []
        self.assertRaises(errors.ImageExists, self.tell, "s1")
        self.assertRaises(errors.ImageInUse, self.images.delete, "new")

    def test_one_that_was_made_before_is_made_again(self):
        self.create("new")
        for host in "ab":
            self.ground.hosts.heartbeat(host, Report({}))
        self.images.delete("new")
        self.ground.hosts.heartbeat("a", Report({}, disks={"new": 0}))
        assert self.tell("s1").waiting == 1
