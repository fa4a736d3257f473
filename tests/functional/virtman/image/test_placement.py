"""Nodes feed each other, and move when Volt says so."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import fixtures

from tests.functional.virtman.base import FOREVER, TestCase
from virtman.background.recovery import Recovery
from virtman.errors import CoordinatorUnreachable, KernelFailure
from virtman.image import following
from virtman.model.address import iqn
from virtman.model.placement import Feed, Parent
from virtman.stack.transport.iscsi import path


class PlacementCase(TestCase):
    def parents(self, node, stripe):
        """Hosts under a stripe of a node, best first."""
        ((_, _, _, words),) = node.kernel.state()["dm"][f"virtman_debian_s{stripe}"][0]
        return [word.split("_")[-1] for word in words.split() if f"_verity{stripe}_" in word]

    def settle(self, *nodes):
        """Beat until no node hears anything new."""
        for _ in range(3):
            for node in nodes:
                node.beat()

    def pair(self, **times):
        """Two nodes: each feeds the other in one stripe, at last."""
        one, two = self.bed.node("a", **times), self.bed.node("b", **times)
        one.create("vm1")
        two.create("vm1")
        self.settle(one, two)
        return one, two


class FeedingTest(PlacementCase):
    def test_each_of_two_nodes_feeds_the_other(self):
        one, two = self.pair()
        self.assertEqual(["source"], self.parents(one, 0))
        self.assertEqual(["b", "source"], self.parents(one, 1))
        self.assertEqual(["a", "source"], self.parents(two, 0))
        self.assertEqual(["source"], self.parents(two, 1))
        self.assertEqual(["iqn.node:b"], one.kernel.children(iqn("a", "debian")))
        self.assertEqual(["iqn.node:a"], two.kernel.children(iqn("b", "debian")))

    def test_a_child_reads_the_image_behind_the_header(self):
        _, two = self.pair()
        ((start, length, target, words),) = two.kernel.state()["dm"]["virtman_debian_path0_a"][0]
        self.assertEqual((0, 16384, "linear"), (start, length, target))
        self.assertEqual(f"LUN 0 of {iqn('a', 'debian')} 2048", words)

    def test_a_new_agent_swaps_no_table_although_there_are_standbys(self):
        one, _ = self.pair()
        before = one.kernel.state()
        reloads = [device.reloads for device in one.kernel.mappings.values()]
        one.stop()
        one.start()
        self.assertEqual([], one.recover())
        one.settle()
        self.assertEqual(before, one.kernel.state())
        self.assertEqual(reloads, [device.reloads for device in one.kernel.mappings.values()])

    def test_many_nodes_at_once_come_up(self):
        nodes = [self.bed.node(f"n{number}") for number in range(6)]
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda node: node.create("vm1"), nodes))
        self.settle(*nodes)
        self.assertEqual({node.name for node in nodes}, self.bed.volt.hosts("debian"))
        for tree in self.bed.volt.trees("debian").trees:
            for place in tree.nodes:
                node = next(one for one in nodes if one.name == place.host)
                self.assertEqual(place.parent or "source", self.parents(node, tree.stripe)[0])
                self.assertEqual("ready", place.state)


class SilentParentTest(PlacementCase):
    """A parent that does not answer, while Volt does not either."""

    def recovered(self, node, parent):
        """Reboot a node, without Volt and one of its parents."""
        del self.bed.network.targets[parent.ip, 3260, iqn(parent.name, "debian")]
        self.rebooted(node)

    def rebooted(self, node):
        """Reboot a node, without Volt."""
        node.settle()
        self.bed.volt.silence()
        node.stop()
        node.reboot()
        self.assertEqual([], list(node.recover()))
        node.settle()

    def fed(self, node):
        return [self.parents(node, stripe) for stripe in (0, 1)]

    def beat_alone(self, node):
        self.assertRaises(CoordinatorUnreachable, node.beat)
        node.settle()

    def test_paths_to_others_are_used_again_once_they_are_back(self):
        one, two = self.pair()
        self.recovered(two, one)
        self.assertEqual([["source"], ["source"]], self.fed(two))
        tops = [two.kernel.mappings[f"virtman_debian_{name}"] for name in ("leaves", "s0", "s1")]
        for top in tops:
            top.failed.update(top.below)
        asked, connect = [], path._connect
        self.useFixture(
            fixtures.MockPatchObject(
                path, "_connect", lambda portal: (asked.append(portal.ip), connect(portal))
            )
        )
        self.beat_alone(two)
        self.assertEqual([set()] * 3, [top.failed for top in tops])
        self.assertEqual([one.ip], asked)

    def test_one_that_shows_no_disk_is_left_and_asked_again(self):
        one, two = self.pair()
        self.useFixture(fixtures.MockPatchObject(path, "_DISK_DEADLINE", 0.05))
        before = self.fed(two)
        luns = self.bed.network.targets[one.ip, 3260, iqn(one.name, "debian")].luns
        disks = dict(luns)
        luns.clear()
        self.rebooted(two)
        self.assertEqual([["source"], ["source"]], self.fed(two))
        self.assertEqual([], [one for one in two.kernel.sessions if not one.disks])
        luns.update(disks)
        for name in ("leaves", "s0", "s1"):
            top = two.kernel.mappings[f"virtman_debian_{name}"]
            top.failed.update(top.below)
        self.beat_alone(two)
        self.assertEqual(sorted(before), sorted(self.fed(two)))

    def test_a_disk_that_came_after_the_session_is_found(self):
        node = self.bed.node("a")
        node.create("vm1")
        self.bed.register("other", target="debian", lun=2)
        node.create("vm2", "other")
        (session,) = node.kernel.sessions
        self.assertEqual({0, 1, 2, 3}, set(session.disks))

    def test_standbys_of_other_stripes_are_connected(self):
        nodes = [self.bed.node(name) for name in "abcd"]
        for node in nodes:
            node.create("vm1")
        self.settle(*nodes)
        child = nodes[-1]
        first, second = self.fed(child)
        self.assertEqual((2, 2), (len(first), len(second)))
        self.recovered(child, next(node for node in nodes if node.name == first[0]))
        self.assertEqual([first[1:], second], self.fed(child))

    def test_a_cache_that_is_back_is_used(self):
        one, two = self.pair()
        self.recovered(two, one)
        two.kernel.lose_ssd()
        stripe = two.kernel.mappings["virtman_debian_s1"]
        for return_ in (lambda: None, two.kernel.return_ssd):
            return_()
            stripe.failed.update(stripe.below)
            self.beat_alone(two)
        self.assertEqual([True], [attached for _, attached, _ in two.kernel.state()["caches"]])

    def test_it_is_read_from_as_far_as_it_serves(self):
        _, two = self.pair()
        (session,) = (one for one in two.kernel.sessions if one.key[2] == self.bed.source.iqn)
        for luns in (session.disks, self.bed.network.targets[session.key].luns):
            del luns[1]  # of the leaves
        stripe = two.kernel.mappings["virtman_debian_s1"]
        stripe.failed.update(stripe.below)
        two.beat()
        self.assertEqual([["a", "source"], ["source"]], self.fed(two))
        self.assertEqual(
            {"virtman_debian_leafverity_a": "A"}, two.kernel.path_states("virtman_debian_leaves")
        )
        self.assertEqual(set(), stripe.failed)

    def test_mends_do_not_queue_up_behind_each_other(self):
        one, _ = self.pair()
        (image,) = one.agent.images.attachments()
        mend, mended, busy = image._life.mend, [], threading.Event()
        image._life.mend = lambda *found: (mended.append(found), mend(*found))
        image._worker.submit(busy.wait)
        with one.process.here():
            for _ in range(5):
                one.heartbeat.beat()
        busy.set()
        one.settle()
        self.assertEqual(1, len(mended))
        one.beat()
        self.assertEqual(2, len(mended))


class OrderTest(PlacementCase):
    """A new parent that may still read from this node."""

    def setUp(self):
        super().setUp()
        self.one, self.two = self.pair()
        three = self.bed.node("c")
        three.create("vm1")
        self.settle(self.one, self.two, three)
        (self.image,) = self.one.agent.images.attachments()
        (other,) = three.agent.images.attachments()
        self.before = self.image._life.assembly.wanted.placement
        self.assertEqual(["b", "source"], self.parents(self.one, 1))
        self.new = Feed(
            Parent("c", other._life.assembly.wanted.portal, self.before.proof), ready=False
        )
        self.told = []
        coordinator = self.one.agent.coordinator
        for name, double in ("placement", lambda _: self.placement()), ("ready", self.ready):
            self.useFixture(fixtures.MockPatchObject(coordinator, name, double))

    def placement(self):
        """Return a newer placement of node a, with another feed of stripe 1."""
        feeds = (self.before.feeds[0], self.new)
        return replace(self.before, feeds=feeds, generation=self.before.generation + 1)

    def ready(self, image, generation, stripes=None):
        self.told.append((stripes, self.parents(self.one, 1)))

    @contextlib.contextmanager
    def following(self):
        with self.one.process.here(), ThreadPoolExecutor(1) as pool:
            done = pool.submit(self.image.use, self.placement())
            self.await_(lambda: self.told)
            yield
            done.result()

    def test_it_is_used_once_it_is_ready(self):
        with self.following():
            self.assertEqual([({0}, ["b"])], self.told)
            self.new = replace(self.new, ready=True)
        self.assertEqual((None, ["c"]), self.told[-1])
        self.assertEqual(2, len(self.told))

    def test_the_standby_serves_meanwhile_if_the_parent_of_before_dies(self):
        with self.following():
            (session,) = (
                one for one in self.one.kernel.sessions if one.key[2] == iqn("b", "debian")
            )
            session.is_cut = True
            self.await_(lambda: self.parents(self.one, 1) == ["source"])
            self.new = replace(self.new, ready=True)
        self.assertEqual(["c"], self.parents(self.one, 1))

    def test_it_is_not_waited_for_without_end(self):
        self.useFixture(fixtures.MockPatchObject(following, "_ORDER", 0.1))
        with self.following():
            pass
        self.assertEqual([({0}, ["b"]), (None, ["c"])], self.told)


class MovingTest(PlacementCase):
    def test_a_new_placement_moves_the_stripe_and_nothing_else(self):
        one, two = self.pair()
        made = {device.name: device.number for device in one.kernel.mappings.values()}
        two.destroy("vm1")
        two.settle()
        with two.process.here(), ThreadPoolExecutor(1) as pool:
            left = pool.submit(two.drop)
            self.await_(lambda: self.bed.volt.hosts("debian") == {"a"})
            one.beat()
            left.result()
        self.assertEqual(["source"], self.parents(one, 1))
        self.assertEqual([self.bed.source.iqn], [key[2] for key in one.kernel.state()["sessions"]])
        now = {device.name: device.number for device in one.kernel.mappings.values()}
        made = {name: one for name, one in made.items() if not name.endswith("_b")}
        self.assertEqual(made, now)
        self.assertTrue(two.kernel.is_clean(), two.kernel.state())

    def test_a_node_that_leaves_serves_until_its_children_have_gone(self):
        one, two = self.pair(keep=0)
        target = iqn("a", "debian")
        with one.process.here(), ThreadPoolExecutor(1) as pool:
            pool.submit(one.destroy, "vm1").result()
            self.await_(lambda: self.bed.volt.hosts("debian") == {"b"})
            self.assertEqual(["iqn.node:b"], one.kernel.children(target))
            self.assertIn("virtman_debian_export0", one.kernel.state()["dm"])
            two.beat()
        self.assert_nothing_is_left(one)
        self.assertEqual(["source"], self.parents(two, 0))

    def test_a_node_whose_children_stay_goes_on_serving_and_says_so(self):
        one, two = self.pair(leave=0.1)
        before = one.kernel.state()
        one.destroy("vm1")
        error = self.assertRaises(KernelFailure, one.drop)
        self.assertEqual("image debian: children moving on did not happen within 0.1 s", str(error))
        after = one.kernel.state()
        gone = {"virtman_debian_vm_vm1", "virtman_debian_store_s1"}
        self.assertEqual(gone, before["dm"].keys() - after["dm"].keys())
        self.assertEqual(before["targets"], after["targets"])
        two.beat()
        one.drop()
        self.assert_nothing_is_left(one)

    def test_a_node_that_wants_back_while_it_leaves_is_placed_again(self):
        one, two = self.pair(leave=0.1)
        one.destroy("vm1")
        self.assertRaises(KernelFailure, one.drop)
        one.create("vm2")
        self.settle(one, two)
        self.assertEqual({"a", "b"}, self.bed.volt.hosts("debian"))
        self.assertEqual("b", self.parents(one, 1)[0])

    def test_an_image_that_is_opened_again_is_looked_after_meanwhile(self):
        one, two = self.pair(leave=0.1)
        one.destroy("vm1")
        self.assertRaises(KernelFailure, one.drop)
        join, seen = one.agent.coordinator.join, []

        def look_and_join(*where):
            (image,) = one.agent.images.attachments()
            seen.append((image.is_moving(), len(image.verified()), image.faults({}) != []))
            raise CoordinatorUnreachable("Volt is away")

        one.agent.coordinator.join = look_and_join
        self.assertRaises(CoordinatorUnreachable, one.create, "vm2")
        one.agent.coordinator.join = join
        self.assertEqual([(True, 4, True)], seen)
        self.assertEqual(["debian"], [image.info.name for image in one.agent.images.attachments()])
        one.create("vm2")
        self.settle(one, two)
        self.assertEqual({"a", "b"}, self.bed.volt.hosts("debian"))

    def test_an_image_that_could_not_be_opened_is_not_attached(self):
        node = self.bed.node(attach=0)
        node.create("vm1")
        node.stop()
        node.start()
        before = node.kernel.state()
        self.bed.volt.silence()
        node.agent.coordinator.memory.forget("debian")
        self.assertEqual(["vm1"], node.recover())
        self.assertEqual([], node.agent.images.attachments())
        self.assertEqual(before, node.kernel.state())


class HeartbeatTest(PlacementCase):
    def test_a_node_that_volt_forgot_joins_again(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before = node.kernel.state()
        self.bed.volt.forget("debian", "a")
        self.assertEqual(set(), self.bed.volt.hosts("debian"))
        self.settle(node)
        self.assertEqual({"a"}, self.bed.volt.hosts("debian"))
        self.assertEqual(before, node.kernel.state())

    def test_an_image_that_volt_forgot_can_be_left(self):
        node = self.bed.node()
        node.create("vm1")
        node.destroy("vm1")
        self.bed.volt.forget("debian", "a")
        node.drop()
        self.assert_nothing_is_left(node)

    def test_an_image_that_was_deleted_can_be_left(self):
        node = self.bed.node()
        node.create("vm1")
        node.destroy("vm1")
        self.bed.volt.forget("debian", "a")
        self.bed.volt.ground.images.delete("debian")
        node.drop()
        self.assertTrue(node.kernel.is_clean(), node.kernel.state())

    def test_a_warm_image_needs_no_volt(self):
        node = self.bed.node()
        node.create("vm1")
        self.bed.volt.silence()
        self.assertRaises(CoordinatorUnreachable, node.beat)
        node.create("vm2")
        node.destroy("vm1")
        self.assertIn("virtman_debian_vm_vm2", node.kernel.state()["dm"])

    def test_a_cold_image_without_volt_is_a_clear_error(self):
        node = self.bed.node()
        self.bed.volt.silence()
        error = self.assertRaises(CoordinatorUnreachable, node.create, "vm1")
        self.assertIn(f"Volt does not answer at {self.bed.volt.url}", str(error))
        self.assertTrue(node.kernel.is_clean())
        self.assertEqual([], node.records.all())

    def test_a_placement_that_could_not_be_used_comes_again(self):
        one = self.bed.node("a", attach=0.05)
        two = self.bed.node("b")
        one.create("vm1")
        two.create("vm1")
        served = dict(self.bed.network.targets)
        for key in served:
            if key[2] == iqn("b", "debian"):
                del self.bed.network.targets[key]
        one.beat()
        self.assertEqual(["source"], self.parents(one, 1))
        self.bed.network.targets.update(served)
        self.settle(one, two)
        self.assertEqual(["b", "source"], self.parents(one, 1))

    def test_heartbeats_and_recovery_bring_back_what_a_reboot_and_volt_forgot(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before = node.kernel.state()
        node.stop()
        node.reboot()
        self.bed.volt.forget("debian", "a")
        recovery = Recovery(node.agent, FOREVER)
        with node.process.here():
            recovery.start()
            node.heartbeat.start()
        self.addCleanup(node.heartbeat.stop)
        self.addCleanup(recovery.stop)
        self.await_(lambda: node.kernel.state() == before, node.kernel.state)
