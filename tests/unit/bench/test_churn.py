"""When memory counts as flat."""

import testtools

from bench.churn import growth


class GrowthTest(testtools.TestCase):
    def test_a_tenth_more_is_no_fault(self):
        for early, late in ((200_000_000, 220_000_000), (200_000_000, 150_000_000)):
            self.assertEqual([], growth(early, late))

    def test_more_than_that_is_one(self):
        (fault,) = growth(200_000_000, 221_000_000)
        self.assertIn("grew from 200,000,000 to 221,000,000 bytes", fault)
