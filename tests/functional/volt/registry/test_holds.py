"""An image stays for the disks of hosts, also of those that are gone."""

from concurrent.futures import ThreadPoolExecutor

from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.registry.base import TreesCase
from volt import errors
from volt.model.hosts import ImageReport, Report
from volt.model.images import Hold


class TestHolds(TreesCase):
    def setUp(self):
        super().setUp()
        self.holds = self.ground.holds
        self.hosts = self.ground.hosts

    def beat(self, host, **disks):
        self.hosts.heartbeat(host, Report({}, disks=disks))

    def kept(self):
        return {(one.image, one.host): one.disks for one in self.holds.index()}

    def test_they_follow_what_a_host_says(self):
        self.beat("a", x=2, y=1)
        self.beat("b", x=1)
        assert self.kept() == {("x", "a"): 2, ("x", "b"): 1, ("y", "a"): 1}
        self.beat("a", x=3, z=0)
        assert self.kept() == {("x", "a"): 3, ("x", "b"): 1, ("z", "a"): 0}
        self.beat("a")
        self.beat("b", x=1)
        assert self.kept() == {("x", "b"): 1}

    def test_many_hosts_at_once(self):
        names = [f"h{number}" for number in range(60)]
        with ThreadPoolExecutor(8) as pool:
            for disks in ({"x": 1, "y": 2}, {"x": 2}, {}, {"y": 1}):
                list(pool.map(lambda host, said=disks: self.beat(host, **said), names))
                expected = {(image, host): n for host in names for image, n in disks.items()}
                assert self.kept() == expected

    def test_since_is_when_the_first_disk_came(self):
        self.beat("a", x=1)
        (first,) = self.holds.index()
        self.beat("a", x=2)
        (second,) = self.holds.index()
        assert first == Hold("x", "a", 1, second.since, first.silent, True)

    def test_an_image_that_disks_need_is_not_forgotten(self):
        self.beat("a", x=1)
        refused = self.assertRaises(errors.ImageInUse, self.images.delete, "x")
        assert "host a: 'volt-manage hold list --image x'" in str(refused)
        self.beat("a")
        self.images.delete("x")

    def test_nor_after_the_host_has_expired(self):
        self.join("a")
        self.hosts.heartbeat("a", Report({"x": ImageReport(1)}, disks={"x": 1, "y": 0}))
        self.hosts.expire(["a"])
        assert self.images.show("x").hosts == 0
        assert [(one.image, one.silent, one.known) for one in self.holds.index()] == [
            ("x", None, True)
        ]
        self.assertRaises(errors.ImageInUse, self.images.delete, "x")
        assert self.holds.release("x", "a")
        assert not self.holds.release("x", "a")
        self.images.delete("x")
        assert [(one.kind, one.host) for one in self.hosts.events()][1] == ("release", "a")

    def test_a_host_that_comes_back_lets_go_of_what_it_has_no_more(self):
        self.beat("a", x=1, y=1)
        self.hosts.expire(["a"])
        self.beat("a", y=1)
        assert self.kept() == {("y", "a"): 1}

    def test_only_a_host_itself_lets_go_while_it_is_heard(self):
        self.beat("a", x=1)
        self.assertRaises(errors.HoldLive, self.holds.release, "x", "a")
        assert self.holds.release("x", "a", by_itself=True)
        assert self.kept() == {}
        self.beat("a", x=1)
        assert self.kept() == {("x", "a"): 1}

    def test_they_are_counted(self):
        self.beat("a", x=1)
        self.beat("b", x=2, y=1)
        self.hosts.expire(["b"])
        assert self.images.figures().holds == {"x": (2, 1), "y": (1, 1)}
