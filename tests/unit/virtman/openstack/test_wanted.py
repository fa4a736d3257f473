"""Images of Glance: waited for once, then as good as there."""

import testtools

from tests.functional.virtman.openstack.doubles import FakeAgent, FakeTime
from virtman.api.client import Client
from virtman.errors import ImageUnknown, ImportFailed, InstanceExists
from virtman.openstack.disks import Disks
from virtman.openstack.wanted import ImageLate, WantedImages, name_of

IMAGE = name_of("0c0ffee0-1111-2222-3333-444455556666")
SIZE = 2361393152


class WaitingTest(testtools.TestCase):
    """Over the real client, whose agent says one thing after the other."""

    def setUp(self):
        super().setUp()
        self.time = FakeTime()
        self.states = []

    def images(self, timeout=600):
        client = Client("/nowhere")
        client.want = self.want
        return WantedImages(client, timeout, self.time.now, self.time.pause)

    def want(self, image):
        self.assertEqual(IMAGE, image)
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        size = SIZE if state == "known" else None
        told = {"importer": "storage1", "done": 5, "total": 9, "detail": "converting"}
        return {"image": image, "state": state, "size": size} | told

    def test_image_is_there_once_somebody_made_it(self):
        self.states = ["wanted", "running", "running", "known"]
        self.assertEqual(SIZE, self.images().size(IMAGE))

    def test_image_that_cannot_be_made_says_why(self):
        self.states = ["running", "failed"]
        error = self.assertRaises(ImportFailed, self.images().size, IMAGE)
        self.assertIn("at storage1", str(error))

    def test_image_that_takes_too_long_says_how_far_it_is(self):
        self.states = ["running"]
        error = self.assertRaises(ImageLate, self.images(300).size, IMAGE)
        self.assertIn("converting, 5 of 9 bytes", str(error))
        self.assertIn("image_timeout", str(error))
        self.assertAlmostEqual(300, self.time.now(), delta=2)

    def test_nobody_who_makes_it_is_found_out_before_that(self):
        self.states = ["wanted"]
        self.assertRaises(ImageUnknown, self.images().size, IMAGE)
        self.assertLess(self.time.now(), 150)


class DisksTest(testtools.TestCase):
    """Root disks over images of Glance."""

    def setUp(self):
        super().setUp()
        self.agent, self.time = FakeAgent(), FakeTime()
        images = WantedImages(self.agent, 60, self.time.now, self.time.pause)
        self.disks = Disks(self.agent, images, 0, 30, self.time.now, self.time.pause)

    def test_disk_may_be_longer_than_its_image(self):
        self.disks.create("s1", IMAGE, size=5)
        self.assertEqual(5, self.disks.size("s1"))
        self.assertTrue(self.disks.exists("s1"))
        self.assertFalse(self.disks.exists("s2"))
        self.assertRaises(InstanceExists, self.disks.create, "s1", IMAGE, size=5)

    def test_disk_grows_and_never_shrinks(self):
        self.disks.create("s1", IMAGE, size=5)
        for size in (7, 3, 7):
            self.disks.grow("s1", size)
            self.assertEqual(7, self.disks.size("s1"))

    def test_image_that_is_not_there_leaves_nothing(self):
        self.agent.served = set()
        self.assertRaises(ImageUnknown, self.disks.create, "s1", IMAGE, size=5)
        self.assertEqual({}, self.agent.vms)

    def test_copy_is_of_now_and_goes(self):
        self.disks.create("s1", IMAGE, size=5)
        with self.disks.snapshot("s1") as device:
            self.assertEqual("/dev/mapper/s1-copy", device)
            copy = self.agent.vms["s1-copy"]
            self.assertEqual((IMAGE, 5, True), (copy["image"], copy["size"], copy["temporary"]))
        self.assertEqual(["s1"], list(self.agent.vms))

    def test_copy_that_somebody_left_makes_room_for_the_next(self):
        self.disks.create("s1", IMAGE, size=5)
        self.agent.create("s1-copy", original="s1", temporary=True)
        with self.disks.snapshot("s1"):
            pass
        self.assertEqual(["s1"], list(self.agent.vms))

    def test_copy_that_is_still_read_is_left_to_go(self):
        self.disks.create("s1", IMAGE, size=5)
        self.agent.busy = {"s1-copy"}
        with self.disks.snapshot("s1"):
            pass
        self.assertIn("s1-copy", self.agent.vms)

    def test_space_counts_what_disks_have(self):
        self.agent.room = {"free": 101 * 1024**3, "promised": 0}
        self.disks.create("s1", IMAGE, size=3 * 1024**3)
        self.assertEqual((103, 3), (self.disks.space(), self.disks.used()))

    def test_disk_moves_without_anybody_holding_its_image(self):
        other = FakeAgent()
        self.agent.peers = {"node2": other}
        self.disks.create("s1", IMAGE, size=5)
        self.disks.move("s1", "node2")
        self.assertEqual(5, other.vms["s1"]["size"])
        self.disks.sweep(lambda server: False)
        self.assertEqual({}, self.agent.vms)
