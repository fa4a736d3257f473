"""For how long reads have waited, by what devices have answered."""

import logging
from types import SimpleNamespace

import fixtures
import testtools

from virtman.background import waiting
from virtman.background.waiting import Waiting


class WaitingTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.answered = {"s0": 0, "s1": 0}
        self.owed = set()
        self.image = SimpleNamespace(
            info=SimpleNamespace(name="debian"), multipaths=["s0", "s1", "gone"],
            parents=["node1", "source"], waiting=0.0,
            demand=SimpleNamespace(look=lambda: self.begins),
        )  # fmt: skip
        self.attached = [self.image]
        for name, stand_in in (("reads", self.answered.__getitem__), ("is_read", self.is_read)):
            self.useFixture(fixtures.MockPatchObject(waiting.sysfs, name, stand_in))
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        images = SimpleNamespace(attachments=lambda: self.attached)
        self.begins, self.hastened = False, 0
        self.waiting = Waiting(images, self.hasten, lambda: self.now)

    def hasten(self):
        self.hastened += 1

    def is_read(self, device):
        if device not in self.answered:
            raise FileNotFoundError(device)
        return device in self.owed

    def look(self, seconds, *owed, **answers):
        """Let time pass, in which devices give answers; return for how long reads wait then."""
        self.now += seconds
        self.owed = set(owed)
        for device, count in answers.items():
            self.answered[device] += count
        self.waiting.look()
        return self.image.waiting

    def test_it_is_since_a_read_was_owed_and_none_answered(self):
        self.assertEqual([0.0, 1.0, 3.0], [self.look(seconds, "s0") for seconds in (5, 1, 2)])
        self.assertEqual(0.0, self.look(1, "s0", s0=1))
        self.assertEqual(2.0, self.look(2, "s0"))
        self.assertEqual(0.0, self.look(1))

    def test_a_stripe_that_answers_hides_none_that_does_not(self):
        self.look(0, "s0", "s1")
        self.assertEqual([2.0, 4.0], [self.look(2, "s0", "s1", s1=9) for _ in range(2)])
        self.assertEqual(0.0, self.look(2, "s1", s1=9))

    def test_what_is_asked_nothing_does_not_wait(self):
        self.assertEqual({0.0}, {self.look(60) for _ in range(3)})

    def test_an_operator_is_told_once_and_again_when_it_is_over(self):
        for seconds in (0, 9, 2, 5):
            self.look(seconds, "s1")
        (told,) = self.log.output.splitlines()
        self.assertIn("image debian: VMs wait", told)
        self.assertIn("node1, source for 11 s", told)
        self.look(1, "s1", s1=1)
        self.look(1)
        self.assertEqual(2, len(self.log.output.splitlines()))
        self.assertIn("again", self.log.output)

    def test_an_image_that_was_left_is_told_of_anew(self):
        for _ in range(2):
            self.attached = [self.image]
            self.look(0, "s0")
            self.look(20, "s0")
            self.attached = []
            self.look(1)
        self.assertEqual(2, self.log.output.count("VMs wait"))
        self.assertNotIn("again", self.log.output)

    def test_volt_hears_at_once_that_vms_begin_to_wait(self):
        self.look(1)
        self.assertEqual(0, self.hastened)
        self.begins = True
        self.look(1)
        self.assertEqual(1, self.hastened)
