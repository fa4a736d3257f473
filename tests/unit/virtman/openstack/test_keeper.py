"""The keeper: what compute nodes hold is served, what nobody holds is given back."""

import testtools

from tests.functional.virtman.openstack.doubles import FakeCinderClient, FakeTime
from virtman.errors import CoordinatorRefused
from virtman.openstack.cinder import Cinder, Connection
from virtman.openstack.golden import MARK, Goldens, made_of
from virtman.openstack.keeper import Keeper

IMAGE = "snapshot-0c0ffee0-1111-2222-3333-444455556666"


class FakeSources:
    def __init__(self):
        self.served = {}
        self.in_use = set()

    def add(self, image, path):
        self.served[image] = path

    def remove(self, image):
        if image in self.in_use:
            raise CoordinatorRefused("in use")
        self.served.pop(image, None)


class FakeInitiator:
    def __init__(self):
        self.connected = []

    def properties(self):
        return {"initiator": "iqn.keeper"}

    def connect(self, connection):
        if connection not in self.connected:
            self.connected.append(connection)
        return f"/dev/{1 + self.connected.index(connection)}"

    def disconnect(self, connection):
        self.connected.remove(connection)


class KeeperTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.client = FakeCinderClient()
        self.time = FakeTime()
        self.sources = FakeSources()
        self.initiator = FakeInitiator()
        self.keeper = self.restarted()
        self.node = self.compute("node1")

    def restarted(self):
        cinder = Cinder(self.client)
        return Keeper(cinder, self.sources, self.initiator, "store", 100, self.time.now)

    def compute(self, host):
        clock = (self.time.now, self.time.pause)
        return Goldens(lambda: Cinder(self.client), "virtman", host, 60, *clock)

    def later(self, seconds):
        self.time.seconds += seconds
        self.keeper.tend()

    def test_what_a_node_holds_is_served_read_only(self):
        self.node.hold(IMAGE, 1)
        self.keeper.tend()
        self.assertEqual({IMAGE: "/dev/1"}, self.sources.served)
        flat = {"target_iqn": "iqn.cinder:v1", "access_mode": "ro"}
        self.assertEqual([Connection("iscsi", flat)], self.initiator.connected)

    def test_rounds_without_news_ask_cinder_once(self):
        self.node.hold(IMAGE, 1)
        self.keeper.tend()
        self.client.calls.clear()
        self.keeper.tend()
        self.assertEqual(["list"], self.client.calls)

    def test_volume_stays_as_long_as_any_node_holds_it(self):
        self.node.hold(IMAGE, 1)
        other = self.compute("node2")
        other.hold(IMAGE, 1)
        self.keeper.tend()
        self.node.release(IMAGE)
        for _ in range(5):
            self.later(90)
        self.assertIn(IMAGE, self.sources.served)
        self.assertEqual(1, len(self.client.kept))

    def test_unused_volume_is_given_back_after_its_time(self):
        self.node.hold(IMAGE, 1)
        self.keeper.tend()
        self.node.release(IMAGE)
        self.later(1)
        self.later(99)
        self.assertIn(IMAGE, self.sources.served)
        self.later(2)
        self.assertEqual({}, self.sources.served)
        self.assertEqual([], self.initiator.connected)
        self.assertEqual({}, self.client.kept)

    def test_volume_that_is_used_again_in_time_begins_anew(self):
        self.node.hold(IMAGE, 1)
        self.keeper.tend()
        self.node.release(IMAGE)
        self.later(1)
        self.later(90)
        self.node.hold(IMAGE, 1)
        self.later(20)
        self.node.release(IMAGE)
        self.later(1)
        self.later(90)
        self.assertIn(IMAGE, self.sources.served)

    def test_volume_that_is_still_being_made_is_not_unused(self):
        self.client.polls = 4
        Cinder(self.client).create(IMAGE, 1, "virtman", {MARK: IMAGE}, made_of(IMAGE))
        self.later(60)
        self.later(60)
        while self.client.kept["v1"].status == "creating":
            self.later(60)
        self.assertEqual(["v1"], list(self.client.kept))
        self.node.hold(IMAGE, 1)
        self.later(60)
        self.assertEqual({IMAGE: "/dev/1"}, self.sources.served)

    def test_nodes_that_made_one_each_share_one(self):
        self.client.polls = 1
        seen, other = self.client.volumes.list, self.compute("node2")
        made = [Cinder(self.client).create(IMAGE, 1, "virtman", {MARK: IMAGE}, made_of(IMAGE))]

        def blind(**asked):
            self.client.volumes.list = seen
            return []

        self.client.volumes.list = blind
        other.hold(IMAGE, 1)
        self.node.hold(IMAGE, 1)
        self.assertEqual(["v1", "v2"], list(self.client.kept))
        self.keeper.tend()
        self.keeper.tend()
        self.assertEqual([made[0].id], list(self.client.kept))
        holders = {self.node.holder, other.holder, self.keeper.holder}
        self.assertEqual({"v1": sorted(holders)}, self.client.holders())

    def test_volume_stays_while_hosts_of_volt_read_it(self):
        self.node.hold(IMAGE, 1)
        self.keeper.tend()
        self.node.release(IMAGE)
        self.sources.in_use.add(IMAGE)
        self.later(1)
        self.later(200)
        self.assertEqual(1, len(self.client.kept))
        self.assertEqual(1, len(self.initiator.connected))
        self.sources.in_use.clear()
        self.later(1)
        self.assertEqual({}, self.client.kept)

    def test_node_that_takes_hold_at_the_last_moment_is_served_again(self):
        self.node.hold(IMAGE, 1)
        self.keeper.tend()
        self.node.release(IMAGE)
        self.later(1)
        late, gone = self.compute("node2"), self.sources.remove

        def remove(image):
            gone(image)
            late.hold(IMAGE, 1)

        self.sources.remove = remove
        self.later(200)
        self.assertEqual({}, self.sources.served)
        self.later(1)
        self.assertEqual({IMAGE: "/dev/1"}, self.sources.served)
        self.assertEqual(["v1"], list(self.client.kept))

    def test_restart_takes_over_what_is_served(self):
        self.node.hold(IMAGE, 1)
        self.keeper.tend()
        made = self.client.holders()
        self.initiator.connected.clear()
        self.sources.served.clear()
        self.keeper = self.restarted()
        self.keeper.tend()
        self.assertEqual(made, self.client.holders())
        self.assertEqual({IMAGE: "/dev/1"}, self.sources.served)

    def test_removal_that_was_interrupted_is_finished_after_a_restart(self):
        self.node.hold(IMAGE, 1)
        self.keeper.tend()
        self.node.release(IMAGE)
        self.later(1)
        disconnect, self.initiator.disconnect = self.initiator.disconnect, None
        self.later(200)
        self.assertEqual({}, self.sources.served)
        self.initiator.disconnect = disconnect
        self.keeper = self.restarted()
        self.later(1)
        self.later(200)
        self.assertEqual({}, self.client.kept)
        self.assertEqual([], self.initiator.connected)

    def test_second_volume_of_a_snapshot_is_never_served_beside_the_first(self):
        self.node.hold(IMAGE, 1)
        self.keeper.tend()
        twin = self.client.create(1, IMAGE, "virtman", {MARK: IMAGE})
        self.client.kept[twin.id].created_at = "2026-11-19T10:00:00"
        other = self.compute("node2")
        other.hold(IMAGE, 1)
        self.keeper.tend()
        self.assertEqual(1, len(self.initiator.connected))
        self.node.release(IMAGE)
        self.later(1)
        self.later(200)
        self.assertIn(IMAGE, self.sources.served)  # node2 needs the image, if not this volume
        other.release(IMAGE)
        self.later(1)
        self.later(200)
        self.assertEqual({}, self.client.kept)

    def test_attachment_that_nobody_completes_is_ended(self):
        self.node.hold(IMAGE, 1)
        self.client.attach("v1", None, "somebody who died", "ro")
        self.later(1)
        self.later(59)
        self.assertEqual("reserved", self.client.kept["v1"].status)
        self.later(2)
        self.later(1)
        self.assertEqual("in-use", self.client.kept["v1"].status)
        self.assertIn(IMAGE, self.sources.served)

    def test_volume_that_failed_is_given_back_too(self):
        self.client.becomes = "error"
        self.client.create(1, IMAGE, "virtman", {MARK: IMAGE})
        self.keeper.tend()
        self.assertEqual({}, self.sources.served)
        self.later(101)
        self.assertEqual({}, self.client.kept)

    def test_one_image_that_fails_keeps_no_other_from_being_served(self):
        other = "image-11111111-1111-2222-3333-444455556666-1"
        self.node.hold(IMAGE, 1)
        self.node.hold(other, 1)
        add = self.sources.add

        def fail(image, path):
            if image == IMAGE:
                raise CoordinatorRefused("no")
            add(image, path)

        self.sources.add = fail
        self.keeper.tend()
        self.assertEqual([other], list(self.sources.served))
        self.sources.add = add
        self.keeper.tend()
        self.assertEqual(2, len(self.sources.served))
        self.assertEqual(2, len(self.initiator.connected))

    def test_other_volumes_of_the_project_are_left_alone(self):
        self.client.create(1, "data", "lvm", {})
        self.keeper.tend()
        self.later(500)
        self.assertEqual(["v1"], list(self.client.kept))
        self.assertEqual({}, self.sources.served)
