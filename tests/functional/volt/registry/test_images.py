"""What the use cases of images leave in the database."""

from datetime import timedelta, timezone

from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.registry.base import NOW, TreesCase
from volt import errors
from volt.model.placements import State


class TestImages(TreesCase):
    def test_times_are_utc(self):
        cet = timezone(timedelta(hours=1))
        self.create("y", now=NOW.astimezone(cet))
        created = self.images.show("y").created_at
        assert (created, created.utcoffset()) == (NOW, timedelta(0))

    def test_hosts_are_counted_until_they_are_removed(self):
        self.join("a", "b")
        self.placements.leave("x", "a")
        assert self.images.show("x").hosts == 2
        assert self.placements.show("x", "a").state == State.LEAVING
        self.assertRaises(errors.ImageInUse, self.images.delete, "x")
        for host in "ab":
            self.placements.remove("x", host)
        self.images.delete("x")
        self.assertRaises(errors.ImageUnknown, self.images.show, "x")
