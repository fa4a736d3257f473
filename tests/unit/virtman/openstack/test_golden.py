"""The golden volume: made once, and kept while any node needs it."""

import testtools

from tests.functional.virtman.openstack.doubles import FakeCinderClient, FakeTime, Refusal
from virtman.errors import InvalidName
from virtman.openstack.cinder import Cinder, VolumeFailed
from virtman.openstack.golden import MARK, Goldens, holder_of, made_of

SNAPSHOT = "0c0ffee0-1111-2222-3333-444455556666"
IMAGE = f"snapshot-{SNAPSHOT}"
GLANCE = "1a9e0000-1111-2222-3333-444455556666"


class GoldensTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.client = FakeCinderClient()
        self.time = FakeTime()
        self.goldens = self.node("node1")

    def node(self, host):
        return Goldens(
            lambda: Cinder(self.client), "virtman", host, 60, self.time.now, self.time.pause
        )

    def test_first_node_makes_it_and_others_hold_it(self):
        self.goldens.hold(IMAGE, 3)
        self.node("node2").hold(IMAGE, 3)
        (volume,) = self.client.kept.values()
        self.assertEqual((3, {"snapshot_id": SNAPSHOT}, "virtman"), volume.described)
        self.assertEqual((IMAGE, {MARK: IMAGE}), (volume.name, volume.metadata))
        self.assertEqual(
            sorted([holder_of("node1"), holder_of("node2")]), self.client.holders()[volume.id]
        )
        self.assertEqual("in-use", volume.status)

    def test_holding_twice_is_holding_once(self):
        self.goldens.hold(IMAGE, 1)
        self.client.calls.clear()
        self.goldens.hold(IMAGE, 1)
        self.assertEqual(["list"], self.client.calls)
        self.assertEqual([[holder_of("node1")]], list(self.client.holders().values()))

    def test_it_waits_while_cinder_makes_it(self):
        self.client.polls = 5
        self.goldens.hold(IMAGE, 1)
        self.assertEqual([[holder_of("node1")]], list(self.client.holders().values()))

    def test_cinder_that_takes_too_long_is_an_error(self):
        self.client.polls = 1000
        error = self.assertRaises(VolumeFailed, self.goldens.hold, IMAGE, 1)
        self.assertIn("golden_timeout", str(error))

    def calls(self, seconds):
        """Return how often Cinder is called if it takes so long to make a volume."""
        client, time = FakeCinderClient(polls=1), FakeTime()

        def go_on():
            for volume in client.kept.values():
                volume.polls = int(time.now() < seconds)

        time.then = go_on
        Goldens(lambda: Cinder(client), "virtman", "a", 3600, time.now, time.pause).hold(IMAGE, 1)
        self.assertLess(time.now(), max(seconds + 1, 1.3 * seconds))
        return len(client.calls)

    def test_how_often_cinder_is_called_does_not_depend_on_how_slow_it_is(self):
        calls = [self.calls(seconds) for seconds in (10, 100, 1000)]
        self.assertLess(max(calls[1] - calls[0], calls[2] - calls[1]), 12)
        self.assertLess(calls[2], 40)

    def test_a_cinder_that_takes_too_long_is_waited_for_no_longer_than_it_may(self):
        self.client.polls = 1000
        self.assertRaises(VolumeFailed, self.goldens.hold, IMAGE, 1)
        self.assertAlmostEqual(60, self.time.now(), 3)

    def test_volume_that_failed_is_named(self):
        self.client.becomes = "error"
        error = self.assertRaises(VolumeFailed, self.goldens.hold, IMAGE, 1)
        self.assertIn("v1", str(error))

    def test_volume_that_failed_is_not_used_again(self):
        self.client.becomes = "error"
        self.assertRaises(VolumeFailed, self.goldens.hold, IMAGE, 1)
        self.client.becomes = "available"
        self.goldens.hold(IMAGE, 1)
        self.assertEqual([[], [holder_of("node1")]], list(self.client.holders().values()))

    def test_node_that_takes_hold_at_the_same_moment_is_waited_for(self):
        self.goldens.hold(IMAGE, 1)
        begun = self.client.attach("v1", None, holder_of("node2"), "ro")
        self.time.then = lambda: self.client.complete(begun["id"])
        self.node("node3").hold(IMAGE, 1)
        self.assertEqual(
            sorted(map(holder_of, ("node1", "node2", "node3"))), self.client.holders()["v1"]
        )

    def test_node_that_took_hold_between_two_looks_is_no_refusal(self):
        self.goldens.hold(IMAGE, 1)
        attach = self.client.attachments.create

        def be_second(*arguments, **settings):
            self.client.attachments.create = attach
            begun = attach("v1", None, holder_of("node2"), "ro")
            try:
                return attach(*arguments, **settings)
            finally:
                self.client.complete(begun["id"])

        self.client.attachments.create = be_second
        self.node("node3").hold(IMAGE, 1)
        self.assertEqual(
            sorted(map(holder_of, ("node1", "node2", "node3"))), self.client.holders()["v1"]
        )

    def test_volume_that_takes_no_more_is_told_soon(self):
        def refuse(*arguments, **settings):
            raise Refusal(400, "no multiattach")

        self.client.attachments.create = refuse
        self.assertRaises(Refusal, self.goldens.hold, IMAGE, 1)
        self.assertLess(self.time.now(), 2)

    def test_refusal_for_another_reason_is_not_waited_for(self):
        def refuse(*arguments, **settings):
            raise Refusal(403, "not allowed")

        self.client.attachments.create = refuse
        self.assertRaises(Refusal, self.goldens.hold, IMAGE, 1)
        self.assertEqual(0, self.time.now())

    def test_release_leaves_other_nodes_alone(self):
        self.goldens.hold(IMAGE, 1)
        other = self.node("node2")
        other.hold(IMAGE, 1)
        self.goldens.release(IMAGE)
        self.goldens.release(IMAGE)
        self.assertEqual({"v1": [holder_of("node2")]}, self.client.holders())
        self.assertRaises(Refusal, self.client.delete, "v1")
        self.assertEqual([], self.goldens.held())
        self.assertEqual([IMAGE], other.held())

    def test_volumes_of_others_are_none_of_its_own(self):
        self.client.create(1, "backup", "lvm", {})
        self.client.complete(self.client.attach("v1", None, holder_of("node1"), "rw")["id"])
        self.assertEqual([], self.goldens.held())

    def test_image_of_glance_has_a_volume_of_each_size(self):
        for size in (2, 3):
            self.goldens.hold(f"image-{GLANCE}-{size}", size)
        self.assertEqual(
            [(size, {"imageRef": GLANCE}, "virtman") for size in (2, 3)],
            [volume.described for volume in self.client.kept.values()],
        )
        self.assertEqual([f"image-{GLANCE}-{size}" for size in (2, 3)], self.goldens.held())

    def test_name_says_what_the_volume_is_made_of(self):
        self.assertEqual({"snapshot_id": SNAPSHOT}, made_of(IMAGE))
        self.assertEqual({"imageRef": GLANCE}, made_of(f"image-{GLANCE}-10"))

    def test_other_names_make_no_volume(self):
        wrong = (f"image-{GLANCE}", f"image-{GLANCE}-0", f"{IMAGE}-1", "debian", "snapshot-../etc")
        for name in wrong:
            self.assertRaises(InvalidName, self.goldens.hold, name, 1)
        self.assertEqual([], self.client.calls)
