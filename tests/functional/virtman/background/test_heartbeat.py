"""What a heartbeat finds amiss on its node it mends, and it asks the kernel little for that."""

import fixtures

from tests.functional.virtman.base import TestCase
from virtman.background.liveness import Pulse
from virtman.errors import CoordinatorUnreachable
from virtman.image.attachment import look
from virtman.stack.transport import transport

STRIPE, ORIGIN = "virtman_debian_stripe", "virtman_debian_origin"


class BeatTest(TestCase):
    def setUp(self):
        super().setUp()
        self.node = self.bed.node(warm=1e-9)
        self.node.create("vm1")
        self.node.settle()
        self.whole = self.node.kernel.state()["dm"]

    def verbs(self):
        """Return the root verbs of a heartbeat."""
        self.node.kernel.log.clear()
        self.node.beat()
        return [verb for verb, _ in self.node.kernel.log]

    def test_one_verb_looks_at_all_images(self):
        self.assertEqual(["statuses"], self.verbs())
        for image in ("fedora", "suse"):
            self.bed.register(image)
            self.node.create(f"{image}1", image)
        self.node.settle()
        self.assertEqual(["statuses"], self.verbs())

    def test_connections_are_looked_at_once_for_all_images(self):
        self.bed.register("fedora")
        self.node.create("fedora1", "fedora")
        self.node.settle()
        patch = fixtures.MockPatchObject(transport, "cut_off", wraps=transport.cut_off)
        looks = self.useFixture(patch).mock
        self.node.beat()
        self.node.settle()
        self.assertEqual(1, looks.call_count)
        with self.node.process.here():
            Pulse(self.node.agent.images).tell()
        self.assertEqual(2, looks.call_count)

    def assert_mended(self):
        self.node.beat()
        self.assertEqual(self.whole, self.node.kernel.state()["dm"])
        self.assertEqual(["statuses"], self.verbs())

    def test_a_device_that_lies_on_nothing_is_put_right(self):
        stripe = self.node.kernel.mappings[STRIPE]
        stripe.table = [(0, stripe.sectors, "error", "")]
        self.assertNotEqual(self.whole, self.node.kernel.state()["dm"])
        self.assert_mended()

    def test_a_device_that_was_suspended_goes_on(self):
        self.node.kernel.mappings[ORIGIN].suspended = True
        self.assert_mended()
        self.assertFalse(self.node.kernel.mappings[ORIGIN].suspended)

    def test_a_failed_path_is_tried_again_while_volt_is_away(self):
        origin = self.node.kernel.mappings[ORIGIN]
        origin.failed.update(origin.below)
        self.bed.volt.silence()
        self.assertRaises(CoordinatorUnreachable, self.node.beat)
        self.node.settle()
        self.assertEqual(set(), origin.failed)

    def test_only_paths_are_looked_at_while_all_else_is_well(self):
        stripe = self.node.kernel.mappings["virtman_debian_s0"]
        stripe.failed.update(stripe.below)
        verbs = set(self.verbs())
        self.assertEqual(set(), stripe.failed)
        self.assertEqual(set(), verbs & {"reload", "resume", "serves", "require", "attach"})

    def warm_up(self):
        self.reads(1)
        self.reads(0)

    def reads(self, misses):
        """Have so many more reads miss the cache, and let the agent see that."""
        (member,) = self.node.kernel.members.values()
        member.reads = (1, member.reads[1] + misses, 0)
        (attachment,) = self.node.agent.images.attachments()
        with self.node.process.here():
            attachment.mend(look([attachment]), transport.cut_off())
        self.node.settle()

    def test_what_a_beat_could_not_finish_the_next_one_does(self):
        self.warm_up()
        self.reads(9999999)
        cold = self.node.kernel.state()["dm"]
        for verb in range(2, 60):  # the first one is the look
            self.warm_up()
            self.assertNotEqual(cold, self.node.kernel.state()["dm"])
            self.node.process.fate(fail_at=verb)
            self.reads(9999999)
            fired = self.node.process.fired
            self.node.process.fate()
            self.reads(9999999)
            self.assertEqual(cold, self.node.kernel.state()["dm"], fired)
            if not fired:
                return
        self.fail("more verbs than expected")
