"""What hosts say of themselves, and what the trees make of it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

from sqlalchemy import event
from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.base import TestCase
from tests.functional.volt.registry.base import TreesCase, portal
from volt import errors
from volt.background.brake import FEW
from volt.background.reaper import Reaper
from volt.db.clock import ClockTable
from volt.model.hosts import ImageReport, Report, Wiring
from volt.model.placements import State
from volt.placement import shapes
from volt.placement.rules import Shape
from volt.registry.hosts import Hosts

NOBODY = ()
TOGETHER = 48


class HostsCase(TreesCase):
    def setUp(self):
        super().setUp()
        self.hosts = self.ground.hosts

    def children(self, host, image="x"):
        """Whom the host feeds, in any tree."""
        trees = self.images.trees(image).trees
        return {node.host for tree in trees for node in tree.nodes if node.parent == host}

    def feeder(self, image="x"):
        """A host that feeds others, whoever it is."""
        trees = self.images.trees(image).trees
        return min(node.parent for tree in trees for node in tree.nodes if node.parent)

    def overload(self, host, overloaded):
        self.hosts.heartbeat(host, Report({}, overloaded=overloaded))

    def turn(self, tick):
        """Let Volt's clock show that tick."""
        clock = ClockTable(self.ground.engine)
        seen = clock.read()
        assert clock.move(seen, type(seen)("somebody", tick))


class TestDraining(HostsCase):
    def test_children_in_every_image_get_other_parents_until_it_ends(self):
        self.create("y")
        hosts = [f"h{number}" for number in range(9)]
        for image in "xy":
            self.join(*hosts, image=image)
        one = self.feeder()
        assert self.children(one, "y") == self.children(one, "x")
        assert self.hosts.drain(one, True).draining
        for image in "xy":
            assert self.children(one, image) == set()
            self.check_trees(hosts, image)
        self.join("late", image="y")
        assert self.children(one, "y") == set()
        assert not self.hosts.drain(one, False).draining
        more = [f"m{number}" for number in range(9)]
        self.join(*more)
        assert self.children(one)
        self.check_trees(hosts + more)

    def test_draining_is_told_once_and_only_of_known_hosts(self):
        self.join("a")
        for _ in range(2):
            self.hosts.drain("a", True)
        assert [one.kind for one in self.hosts.events()].count("drain") == 1
        self.assertRaises(errors.HostUnknown, self.hosts.drain, "b", True)

    def test_who_drains_before_it_joins_feeds_nobody(self):
        self.hosts.heartbeat("a", Report({}))
        self.hosts.drain("a", True)
        self.join("a", "b", "c", "d")
        assert self.children("a") == set()


class TestOverload(HostsCase):
    def test_children_stay_and_no_new_ones_come_until_it_is_relieved(self):
        self.join("a", "b")
        before = self.children("a")
        assert before == {"b"}
        self.overload("a", True)
        assert self.hosts.show("a").report.overloaded
        self.join("c", "d", "e", "f")
        assert self.children("a") == before
        self.overload("a", False)
        self.join(*(f"h{number}" for number in range(8)))
        assert len(self.children("a")) == 2

    def test_trees_that_were_not_told_follow_with_the_next_heartbeat(self):
        hosts = [f"h{number}" for number in range(8)]
        self.create("y")
        for image in "xy":
            self.join("a", "b", image=image)
        for overloaded in (True, False):
            self.die_unless_told("a", overloaded)
            self.overload("a", overloaded)
            for image in "xy":
                assert self.named("a", image) != overloaded
        self.join(*hosts)
        assert len(self.children("a")) == 2

    def test_trees_that_were_not_told_that_a_host_drains_follow_too(self):
        self.join("a", "b")
        with mock.patch.object(self.hosts, "_reconsider", side_effect=SystemExit):
            self.assertRaises(SystemExit, self.hosts.drain, "a", True)
        self.overload("a", False)
        assert self.children("a") == set()

    def die_unless_told(self, host, overloaded):
        """Let a worker die once it was written down what the host says."""
        dying = Hosts(self.ground.engine, self.placements)
        with mock.patch.object(self.placements, "reconsider", side_effect=SystemExit):
            report = Report({}, overloaded=overloaded)
            self.assertRaises(SystemExit, dying.heartbeat, host, report)

    def named(self, host, image):
        """Tell whether the host could be given a child."""
        return host in {one.host for one in self.images.parents(image, "new", 64)}


class TestHeartbeats(HostsCase):
    def test_a_lost_ready_is_repaired(self):
        self.join("a")
        report = Report({"x": ImageReport(self.generation("a"))})
        assert self.hosts.heartbeat("a", report).placements == NOBODY
        assert self.placements.show("x", "a").state == State.READY

    def test_an_old_generation_confirms_nothing(self):
        self.join("a", "b")
        news = self.hosts.heartbeat("a", Report({"x": ImageReport(1)}))
        assert [one.generation for one in news.placements] == [self.generation("a")]
        assert self.placements.show("x", "a").state == State.JOINING

    def test_many_at_once_are_all_heard_and_each_gets_its_own_news(self):
        hosts = [f"h{number}" for number in range(TOGETHER)]
        self.join(*hosts[::2])

        def beat(number):
            report = Report({"x": ImageReport(0, sent=number)}, overloaded=number % 5 == 0)
            return self.hosts.heartbeat(hosts[number], report)

        with ThreadPoolExecutor(TOGETHER) as pool:
            news = list(pool.map(beat, range(TOGETHER)))
        for number, one in enumerate(news):
            placed = number % 2 == 0
            assert [each.host for each in one.placements] == ([hosts[number]] if placed else [])
            assert one.unknown == (() if placed else ("x",))
            about = self.hosts.show(hosts[number])
            assert about.report.images["x"].sent == number
            assert about.report.overloaded == (number % 5 == 0)

    def test_a_host_may_report_as_many_images_as_the_api_lets_pass(self):
        most = ImageReport(2**60, 2**60, 2**60, 2**60)
        images = {f"{number:048}": most for number in range(10_000)}
        self.hosts.heartbeat("a", Report(images))
        assert self.hosts.show("a").report.images == images


class TestExpiry(HostsCase):
    def test_who_reported_meanwhile_stays(self):
        self.join("a", "b", "c")
        self.turn(20)
        self.hosts.heartbeat("b", Report({}))
        assert self.hosts.silent(10, 100) == ["a", "c"]
        assert self.hosts.expire(["a", "b", "c"], before=10) == 2
        self.check_trees(["b"])
        assert [one.host for one in self.hosts.index()] == ["b"]

    def test_nobody_is_expired_while_nobody_is_heard(self):
        assert self.hosts.silence(100) == (0, 0)
        self.join("a", "b", "c")
        reaper = Reaper(self.hosts, expiry=15)

        def reap(tick):
            self.turn(tick)
            if tick > 60:
                self.hosts.heartbeat("b", Report({}))
            reaper.reap(tick)

        for tick in (16, 31, 46, 60, 65, 70, 75):
            reap(tick)
            self.check_trees(["a", "b", "c"])
        assert self.hosts.events(limit=1)[0].kind == "deaf"
        reap(76)
        self.check_trees(["b"])

    def test_most_hosts_are_kept_until_an_operator_says_that_they_are_dead(self):
        near, far = ["n0", "n1"], [f"f{number}" for number in range(FEW + 1)]
        self.join(*near, *far)
        reaper = Reaper(self.hosts, expiry=15)
        for tick in range(5, 300, 5):
            self.turn(tick)
            for host in near:
                self.hosts.heartbeat(host, Report({}))
            reaper.reap(tick)
        self.check_trees([*near, *far])
        events = [one for one in self.hosts.events() if one.kind in ("deaf", "expire")]
        assert [one.detail for one in events] == ["9 of 11 hosts not heard for 7 s"]
        assert self.hosts.expire_silent(15) == len(far)
        self.check_trees(near)
        assert self.hosts.expire_silent(15) == 0

    def test_half_of_the_hosts_die_in_the_usual_time(self):
        living, dead = ([f"{rack}{number}" for number in range(FEW + 1)] for rack in "ab")
        self.join(*living, *dead)
        reaper = Reaper(self.hosts, expiry=15)
        for tick in (5, 10, 15, 16):
            self.turn(tick)
            for host in living:
                self.hosts.heartbeat(host, Report({}))
            reaper.reap(tick)
        self.check_trees(living)

    def test_their_children_are_placed_again_in_every_image(self):
        self.create("y")
        hosts = [f"h{number}" for number in range(12)]
        for image in "xy":
            self.join(*hosts, image=image)
        dead = [self.feeder(), *hosts[-2:]]
        self.hosts.expire(dead)
        for image in "xy":
            self.check_trees(set(hosts) - set(dead), image)
        expired = {one.host for one in self.hosts.events() if one.kind == "expire"}
        assert expired == set(dead)

    def test_an_image_whose_trees_fail_keeps_its_dead_hosts_and_no_others(self):
        self.create("y")
        self.join("a", "b")
        self.join("b", "c", "d", image="y")
        expel = self.placements.expel

        def fail(image, names, before):
            if image == "x":
                raise errors.HostUnknown("the trees of x are broken")
            return expel(image, names, before)

        with mock.patch.object(self.placements, "expel", fail):
            assert self.hosts.expire(["a", "b", "c"]) == 1
        self.check_trees("ab")
        self.check_trees("d", "y")
        assert [one.host for one in self.hosts.index()] == ["a", "b", "d"]

    def test_a_database_that_is_away_is_told_once(self):
        self.join("a")
        away = errors.DatabaseUnreachable("the database does not answer")
        with mock.patch.object(self.placements, "expel", side_effect=away):
            self.assertRaises(errors.DatabaseUnreachable, self.hosts.expire, ["a"])


class TestTogether(HostsCase):
    def test_joins_share_transactions(self):
        commits = []
        event.listen(self.ground.engine, "commit", commits.append)
        hosts = [f"h{number}" for number in range(TOGETHER)]
        begin = threading.Barrier(TOGETHER)

        def join(host):
            begin.wait()
            return self.placements.join("x", host, portal())

        with ThreadPoolExecutor(TOGETHER) as pool:
            placed = list(pool.map(join, hosts))
        writing = len(commits)
        assert [placement.host for placement, _ in placed] == hosts
        assert all(is_new for _, is_new in placed)
        assert writing < TOGETHER, writing
        self.check_trees(hosts)


class TestRacks(HostsCase):
    def test_hosts_read_from_their_own_rack(self):
        self.create("paper", stripes=1, fanout=4)
        racks = {f"h{number:02}": f"r{number % 3}" for number in range(30)}
        for host, rack in racks.items():
            self.placements.join("paper", host, portal(), Wiring(rack))
        (tree,) = self.images.trees("paper").trees
        across = [n.host for n in tree.nodes if n.parent and racks[n.parent] != racks[n.host]]
        # By chance two of three links would cross.
        assert len(across) < len(racks) / 3, across

    def test_the_search_names_those_of_the_rack_first(self):
        for number in range(12):
            self.placements.join("x", f"h{number}", portal(number), Wiring(f"r{number % 2}"))
        self.hosts.heartbeat("asker", Report({}))
        self.placements.join("x", "asker", portal(), Wiring("r1"))
        named = self.images.parents("x", "asker", 4)
        assert named
        for stripe in (0, 1):
            found = [one for one in named if one.stripe == stripe]
            crossing = [one.rack != "r1" for one in found]
            assert crossing == sorted(crossing)
            for one in found:
                assert one.room == 2 - self.fed(one.host, stripe) > 0
                assert one.portal.ip == f"192.0.2.{one.host[1:]}"

    def fed(self, host, stripe):
        nodes = self.images.trees("x").trees[stripe].nodes
        return [node.parent for node in nodes].count(host)


class TestParents(HostsCase):
    def test_neither_the_asker_nor_who_must_not_feed_is_named(self):
        self.join(*(f"h{number}" for number in range(8)))
        named = {one.host for one in self.images.parents("x", "new", 64)}
        assert named
        drained = min(named)
        self.hosts.drain(drained, True)
        after = {one.host for one in self.images.parents("x", "new", 64)}
        assert drained not in after
        for host in after:
            assert host not in {one.host for one in self.images.parents("x", host, 64)}

    def test_the_limit_is_of_each_stripe(self):
        self.join(*(f"h{number}" for number in range(16)))
        stripes = [one.stripe for one in self.images.parents("x", "new", 1)]
        assert stripes == [0, 1]

    def test_an_image_must_be_known(self):
        self.assertRaises(errors.ImageUnknown, self.images.parents, "nope", "a", 8)


class TestShapes(TestCase):
    """Through the REST API, on SQLite: a shape is the same to all databases."""

    def setUp(self):
        super().setUp()
        self.client = self.ground.client()
        iqn = "iqn.2003-01.org.example:s"
        self.source = {"ip": "127.0.0.1", "port": self.ground.source_port, "iqn": iqn, "lun": 0}

    def nodes(self, shape, hosts=7):
        """Make an image of a shape with so many hosts; return the nodes of its one tree."""
        body = {"name": shape, "size": 512, "shape": shape, "source": self.source}
        assert self.client.post("/v1/images", json=body).status_code == 201
        for number in range(hosts):
            where = {"portal": self.source | {"ip": f"192.0.2.{number}"}}
            path = f"/v1/images/{shape}/hosts/h{number}"
            assert self.client.put(path, json=where).status_code == 201
        (tree,) = self.client.get(f"/v1/images/{shape}/trees").json["trees"]
        return tree["nodes"]

    def test_in_a_star_the_source_feeds_all(self):
        assert [node["parent"] for node in self.nodes("star")] == [None] * 7

    def test_in_a_chain_each_feeds_one(self):
        nodes = self.nodes("chain")
        assert [node["depth"] for node in nodes] == [1, 2, 3, 4, 5, 6, 7]
        assert nodes[-1]["parent"] == nodes[-2]["host"]

    def test_a_tree_is_as_low_as_its_fan_out_allows(self):
        fanout = shapes.usual(Shape.TREE).fanout
        hosts = fanout + fanout**2
        nodes = self.nodes("tree", hosts)
        assert max(node["depth"] for node in nodes) == 2
        assert [node["depth"] for node in nodes].count(1) == fanout

    def test_a_shape_keeps_its_own_stripes(self):
        body = {"name": "star", "size": 512, "shape": "star", "stripes": 2, "source": self.source}
        answer = self.client.post("/v1/images", json=body)
        assert (answer.status_code, answer.json["error"]["code"]) == (400, "volt.image.shape")
