"""VMs wait if they spend a good part of the time on reads that take long."""

import fixtures
import testtools

from virtman.image import demand
from virtman.image.demand import Demand

DEVICE = "/dev/mapper/virtman_debian_origin"


class DemandTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.now, self.seen, self.is_read = 0.0, (0, 0.0), False
        for name in ("read_times", "is_read"):
            patch = fixtures.MockPatchObject(demand.sysfs, name, getattr(self, f"told_{name}"))
            self.useFixture(patch)
        self.demand = Demand(DEVICE, lambda: self.now)

    def told_read_times(self, device):
        self.assertEqual(DEVICE, device)
        if self.seen is None:
            raise FileNotFoundError(device)
        return self.seen

    def told_is_read(self, device):
        return self.is_read

    def look(self, reads, seconds, passed=5.0):
        """Return whether VMs wait once so many reads have taken so many seconds in all."""
        self.now += passed
        self.seen = (self.seen[0] + reads, self.seen[1] + seconds)
        self.demand.look()
        return self.demand.waits

    def test_nothing_is_known_before_the_second_look(self):
        self.assertFalse(self.look(1000, 5.0))
        self.assertFalse(self.look(0, 0.0))

    def test_they_wait_if_reads_take_long_and_are_not_few(self):
        self.look(0, 0.0)
        self.assertTrue(self.look(50, 0.1))
        self.assertFalse(self.look(50, 0.09))
        self.assertFalse(self.look(1000, 0.9))
        self.assertTrue(self.look(1000, 1.01))
        self.assertFalse(self.look(0, 0.0))

    def test_they_wait_if_nothing_is_answered(self):
        self.look(0, 0.0)
        self.is_read = True
        self.assertTrue(self.look(0, 0.0))
        self.assertFalse(self.look(5, 0.0))

    def test_they_wait_on_while_a_guest_thinks(self):
        self.look(0, 0.0)
        self.assertTrue(self.look(50, 1.0, passed=1.0))
        self.assertTrue(self.look(0, 0.0, passed=4.9))
        self.assertTrue(self.look(1, 1.0, passed=0.05))
        self.assertFalse(self.look(0, 0.0))

    def test_that_they_begin_to_wait_is_told_once(self):
        told = []
        for reads in (0, 50, 50, 0, 50):
            self.now += 5.0
            self.seen = (self.seen[0] + reads, self.seen[1] + reads)
            told.append(self.demand.look())
        self.assertEqual([False, True, False, False, True], told)

    def test_a_device_that_goes_or_is_made_anew_tells_nothing(self):
        self.look(10, 10.0)
        self.seen = None
        self.demand.look()
        self.assertFalse(self.demand.waits)
        self.seen = (0, 0.0)
        self.assertFalse(self.look(1000, 10.0))
        self.seen = (0, 0.0)
        self.assertFalse(self.look(10, 9.0))
        self.assertTrue(self.look(10, 9.0))
