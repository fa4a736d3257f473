"""When an image counts as warm."""

import testtools

from virtman.warmth import Warmth

MIB = 1024 * 1024


class WarmthTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.warmth = Warmth()

    def test_an_image_of_which_all_was_fetched_is_cold(self):
        self.assertFalse(self.warmth.look(0, 0))
        self.assertFalse(self.warmth.look(100 * MIB, 100 * MIB))

    def test_it_is_warm_once_nearly_nothing_is_fetched(self):
        self.warmth.look(100 * MIB, 100 * MIB)
        self.assertTrue(self.warmth.look(200 * MIB, 101 * MIB))

    def test_it_stays_so_until_much_is_fetched_again(self):
        self.warmth.look(100 * MIB, 0)
        self.assertTrue(self.warmth.look(200 * MIB, 5 * MIB))
        self.assertFalse(self.warmth.look(300 * MIB, 20 * MIB))
        self.assertFalse(self.warmth.look(400 * MIB, 25 * MIB))

    def test_a_few_reads_say_nothing(self):
        self.assertFalse(self.warmth.look(3 * MIB, 0))
        self.assertTrue(self.warmth.look(4 * MIB, 0))
        self.assertTrue(self.warmth.look(6 * MIB, 2 * MIB))
        self.assertFalse(self.warmth.look(9 * MIB, 2 * MIB))

    def test_counters_that_begin_anew_say_nothing(self):
        self.assertTrue(self.warmth.look(100 * MIB, 0))
        self.assertTrue(self.warmth.look(5 * MIB, 5 * MIB))
        self.assertFalse(self.warmth.look(10 * MIB, 10 * MIB))
