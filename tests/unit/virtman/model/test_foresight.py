"""What is fetched by which policy."""

import testtools

from virtman.model.foresight import Foresight
from virtman.model.prefetch_order import Policy
from virtman.model.profile import Profile, merged

ROOT = "0f" * 32
MENU = {1: 0.0, 2: 0.0}
RUNS = (
    MENU | {10: 30.0, 11: 30.0} | {20: 60.0},
    MENU | {10: 35.0, 11: 35.0},
    MENU | {30: 50.0} | {10: 90.0, 11: 90.0},
)


class ForesightTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.profile = None
        for run in RUNS:
            self.profile = merged(self.profile, run, ROOT)

    def test_in_order_all_that_half_of_the_runs_read_comes_whatever_is_read(self):
        for policy in (Policy.IN_ORDER, Policy.WINDOW_RANDOM):
            found = Foresight(self.profile, policy)
            self.assertFalse(found.follows)
            self.assertEqual((1, 2, 10, 11), found.begin())
            self.assertEqual((), found.after([1, 10, 20]))
            self.assertEqual([(0.0, 2), (51.0, 2)], list(found.demands()))

    def test_a_stream_follows_what_is_read(self):
        found = Foresight(self.profile, Policy.STREAM)
        self.assertTrue(found.follows)
        self.assertEqual((1, 2, 10, 11, 30, 20), found.begin())
        self.assertEqual([(0.5, 2), (30.5, 2), (50.5, 1), (60.5, 1)], list(found.demands()))
        self.assertEqual((11, 20), found.after([10]))
        self.assertEqual((10, 11), found.after([30]))
        self.assertEqual((10, 20), found.after([30, 11]))
        self.assertEqual((), found.after([]))
        self.assertEqual((), found.after([99]))

    def test_with_no_runs_nothing_comes(self):
        found = Foresight(Profile(ROOT, 65536, 0, 1000, ()), Policy.STREAM)
        self.assertEqual(((), ()), (found.begin(), found.after([1])))
