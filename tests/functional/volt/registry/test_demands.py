"""Who copies an image hears whether VMs of any host wait for what they read of it."""

from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.registry.base import TreesCase
from volt.model.hosts import ImageReport, Report


class TestDemands(TreesCase):
    def setUp(self):
        super().setUp()
        self.hosts = self.ground.hosts

    def beat(self, host, waits=(), ahead=()):
        """Have a host report; return of which of the images that it copies VMs wait."""
        images = {
            image: ImageReport(0, ahead=image in ahead, waits=image in waits)
            for image in {*waits, *ahead}
        }
        return self.hosts.heartbeat(host, Report(images)).read

    def test_who_copies_hears_it_until_they_wait_no_more(self):
        assert self.beat("a", ahead="x") == ()
        assert self.beat("b", waits="x") == ()
        assert self.beat("a", ahead="x") == ("x",)
        assert self.beat("c", waits="x") == ()
        assert self.beat("b") == ()
        assert self.beat("a", ahead="x") == ("x",)
        assert self.beat("c") == ()
        assert self.beat("a", ahead="x") == ()

    def test_vms_of_other_images_do_not_count_and_its_own_do(self):
        self.beat("b", waits="yz")
        assert self.beat("a", ahead="x") == ()
        assert self.beat("a", ahead="xyz") == ("y", "z")
        self.beat("b")
        assert self.beat("a", ahead="xy", waits="x") == ("x",)

    def test_a_host_that_dies_waits_no_more(self):
        self.beat("b", waits="x")
        self.hosts.expire(["b"])
        assert self.beat("a", ahead="x") == ()

    def test_reports_of_many_at_once_are_heard_together(self):
        reports = {
            "a": Report({"x": ImageReport(0, ahead=True)}),
            "b": Report({"x": ImageReport(0, waits=True), "y": ImageReport(0, ahead=True)}),
        }
        found = self.hosts._beat(list(reports.items()))
        assert [news.read for news in found] == [("x",), ()]
