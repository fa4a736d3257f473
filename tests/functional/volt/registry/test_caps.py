"""What hosts may fetch ahead under the caps of images and racks."""

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import event
from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.registry.base import TreesCase, portal
from volt import errors
from volt.model.caps import Cap, CapKind
from volt.model.hosts import ImageReport, Report, Wiring

IMAGE, RACK, HOST = CapKind


class CapsCase(TreesCase):
    def setUp(self):
        super().setUp()
        self.caps = self.ground.caps
        self.hosts = self.ground.hosts

    def beat(self, host, *ahead, others=()):
        """Report in which images a host fetches ahead; return its shares."""
        images = {image: ImageReport(0, ahead=True) for image in ahead}
        images |= {image: ImageReport(0) for image in others}
        return self.hosts.heartbeat(host, Report(images)).shares

    def shares(self, *hosts, image="x"):
        return [self.beat(host, image).get(image) for host in hosts]

    def join_rack(self, rack, *hosts, image="x"):
        for host in hosts:
            self.placements.join(image, host, portal(), Wiring(rack))

    def takers(self):
        return {(cap.kind, cap.name): (cap.takers, cap.granted) for cap in self.caps.index()}


class TestCaps(CapsCase):
    def test_they_are_set_changed_and_cleared(self):
        first = Cap(IMAGE, "x", 100, 0, 0)
        assert self.caps.put(IMAGE, "x", 100) == (first, True)
        assert self.caps.put(IMAGE, "x", 2**60) == (Cap(IMAGE, "x", 2**60, 0, 0), False)
        assert self.caps.put(RACK, "x", 3)[1]
        assert [(cap.kind, cap.rate) for cap in self.caps.index()] == [(IMAGE, 2**60), (RACK, 3)]
        assert self.caps.clear(IMAGE, "x")
        assert not self.caps.clear(IMAGE, "x")
        assert [cap.kind for cap in self.caps.index()] == [RACK]

    def test_only_an_image_that_is_known_gets_one(self):
        self.assertRaises(errors.ImageUnknown, self.caps.put, IMAGE, "nope", 1)
        assert self.caps.index() == []

    def test_one_goes_with_its_image(self):
        for kind in CapKind:
            self.caps.put(kind, "x", 100)
        self.beat("a", "x")
        self.images.delete("x")
        assert [cap.kind for cap in self.caps.index()] == [HOST, RACK]
        self.create("x")
        assert self.shares("a") == [None]


class TestShares(CapsCase):
    def test_hosts_come_to_equal_parts_and_never_beyond_the_cap(self):
        self.caps.put(IMAGE, "x", 120)
        assert self.shares("a", "b", "c") == [120, 0, 0]
        assert self.shares("a", "b", "c") == [40, 40, 40]
        assert self.takers() == {(IMAGE, "x"): (3, 120)}

    def test_a_cap_that_is_lowered_has_all_come_down(self):
        self.caps.put(IMAGE, "x", 120)
        self.shares("a", "b")
        self.shares("a", "b")
        self.caps.put(IMAGE, "x", 20)
        assert self.takers() == {(IMAGE, "x"): (2, 120)}
        assert self.shares("a", "b") == [0, 10]
        assert self.shares("a", "b") == [10, 10]

    def test_all_images_of_a_racks_hosts_share_its_cap(self):
        self.create("y")
        self.join_rack("r", "a", "b")
        self.join_rack("s", "c")
        self.caps.put(RACK, "r", 90)
        for _ in range(2):
            both = self.beat("a", "x", "y")
            assert self.shares("b", "c") == [30 if both["y"] == 30 else 0, None]
        assert both == {"x": 30, "y": 30}

    def test_the_least_of_both_caps_counts(self):
        self.join_rack("r", "a")
        self.caps.put(RACK, "r", 10)
        self.caps.put(IMAGE, "x", 100)
        assert self.shares("a", "b") == [10, 50]
        assert self.takers() == {(IMAGE, "x"): (2, 60), (RACK, "r"): (1, 10)}

    def test_all_images_of_a_host_share_its_cap(self):
        self.create("y")
        self.join_rack("r", "a", "b")
        self.caps.put(HOST, "a", 30)
        self.caps.put(RACK, "r", 90)
        for _ in range(2):
            both = self.beat("a", "x", "y")
            assert self.shares("b") == [30]
        assert both == {"x": 15, "y": 15}
        assert self.takers() == {(HOST, "a"): (2, 30), (RACK, "r"): (3, 60)}

    def test_a_host_keeps_its_cap_when_it_expires(self):
        self.caps.put(HOST, "a", 30)
        assert self.shares("a", "b") == [30, None]
        self.hosts.expire(["a"])
        assert self.takers() == {(HOST, "a"): (0, 0)}
        assert self.shares("a") == [30]

    def test_who_does_not_fetch_ahead_takes_nothing(self):
        self.caps.put(IMAGE, "x", 100)
        assert self.beat("a", others=("x",)) == {}
        assert self.shares("b") == [100]

    def test_what_a_host_gives_back_others_get(self):
        self.caps.put(IMAGE, "x", 100)
        self.shares("a", "b")
        assert self.beat("a") == {}
        assert self.shares("b") == [100]
        self.shares("a", "b")
        assert self.beat("b", others=("x",)) == {}  # as an agent that was started anew says
        assert self.shares("a") == [100]

    def test_what_a_dead_host_had_others_get(self):
        self.caps.put(IMAGE, "x", 100)
        self.shares("a", "b")
        self.hosts.expire(["a"])
        assert self.takers() == {(IMAGE, "x"): (1, 0)}
        assert self.shares("b") == [100]

    def test_without_a_cap_there_is_no_share(self):
        self.caps.put(IMAGE, "x", 100)
        self.shares("a", "b")
        self.caps.clear(IMAGE, "x")
        assert self.shares("a") == [None]
        self.caps.put(IMAGE, "x", 100)
        assert self.takers() == {(IMAGE, "x"): (1, 0)}

    def test_an_image_that_nobody_knows_counts_in_the_rack(self):
        self.join_rack("r", "a")
        self.caps.put(RACK, "r", 100)
        assert self.beat("a", "gone") == {"gone": 100}

    def test_racks_that_differ_in_case_only_do_no_harm(self):
        self.join_rack("r1", "a")
        self.join_rack("R1", "b")
        self.caps.put(RACK, "r1", 100)
        for _ in range(2):  # MariaDB takes both for one
            shares = self.shares("b", "a")
        assert shares[0] is None
        assert shares[1] >= 50

    def test_many_at_once_share_what_there_is(self):
        hosts = [f"h{number}" for number in range(24)]
        self.join_rack("r", *hosts[:8])
        self.caps.put(IMAGE, "x", 2400)
        self.caps.put(RACK, "r", 80)
        for _ in range(3):
            with ThreadPoolExecutor(24) as pool:
                shares = list(pool.map(lambda host: self.beat(host, "x")["x"], hosts))
            assert self.takers()[IMAGE, "x"][1] <= 2400
            assert self.takers()[RACK, "r"][1] <= 80
        assert shares == [10] * 8 + [100] * 16

    def test_joins_and_heartbeats_of_takers_do_not_stop_each_other(self):
        self.caps.put(IMAGE, "x", 2400)
        hosts = [f"h{number}" for number in range(24)]

        def boot(host):
            self.placements.join("x", host, portal(), Wiring("r"))
            return self.beat(host, "x")

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(boot, hosts))
        assert self.takers()[IMAGE, "x"][0] == 24
        self.check_trees(hosts)


class TestCost(CapsCase):
    def asked(self, *ahead, others=()):
        """Return what a heartbeat of a host asks of the tables of caps."""
        found = []

        def note(connection, cursor, statement, *more):
            if "caps" in statement or "takers" in statement:
                found.append(statement)

        event.listen(self.ground.engine, "before_cursor_execute", note)
        self.beat("a", *ahead, others=others)
        event.remove(self.ground.engine, "before_cursor_execute", note)
        return found

    def test_heartbeats_of_hosts_that_do_not_fetch_ahead_ask_nothing_of_caps(self):
        assert not self.asked(others=("x",))
        self.caps.put(IMAGE, "x", 100)
        assert not self.asked(others=("x",))
        assert self.asked("x")
        assert self.asked(others=("x",))  # it gives its share back
        assert not self.asked(others=("x",))


class TestPlacements(CapsCase):
    def capped(self, image="x"):
        return [self.placements.show(image, host).capped for host in "ab"]

    def test_they_tell_whether_a_cap_applies(self):
        self.create("y")
        for image in "xy":
            self.join_rack("r", "a", image=image)
            self.join("b", image=image)
        assert self.capped() == [False, False]
        self.caps.put(RACK, "r", 100)
        assert self.capped() == self.capped("y") == [True, False]
        self.caps.put(IMAGE, "x", 100)
        assert self.capped() == [True, True]
        assert [place.capped for place in self.placements.of_host("b")] == [True, False]
        self.caps.clear(RACK, "r")
        assert (self.capped(), self.capped("y")) == ([True, True], [False, False])
        self.caps.put(HOST, "b", 100)
        assert (self.capped(), self.capped("y")) == ([True, True], [False, True])

    def test_who_joins_is_told_at_once(self):
        self.caps.put(RACK, "r", 100)
        joined, _ = self.placements.join("x", "a", portal(), Wiring("r"))
        assert joined.capped is True
