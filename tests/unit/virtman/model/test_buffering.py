"""How much must be there before a VM goes on."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.model import buffering

LINE = buffering.Connection(rate=100, round_trip_s=0.1)
_demands = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 1000)), max_size=10).map(sorted)


class BufferingTest(testtools.TestCase):
    def test_what_the_line_brings_in_time_is_not_waited_for(self):
        """As in vTube's Figure 8: up to a point all comes first, then the line is fast enough."""
        demands = [(0.0, 100), (1.0, 300), (10.0, 200), (60.0, 500)]
        self.assertEqual(300, buffering.head(demands, 100))
        self.assertEqual(100, buffering.head(demands, 1000))
        self.assertEqual(1100 - 60, buffering.head(demands, 1))

    def test_a_burst_that_comes_late_may_need_the_most(self):
        self.assertEqual(900, buffering.head([(0.0, 100), (10.0, 1800)], 100))

    def test_until_the_line_is_measured_all_comes_first(self):
        demands = [(0.0, 100), (10.0, 200 << 20)]
        everything = 100 + (200 << 20)
        self.assertEqual(everything, buffering.needed(demands, 0, 0.0))
        self.assertEqual(everything, buffering.needed(demands, (1 << 20) - 1, 0.1))
        self.assertEqual(100 << 20, buffering.needed(demands, 50 << 20, 5.0) - 100)

    def test_nothing_wanted_is_nothing_waited_for(self):
        self.assertEqual(0, buffering.head([], 100))
        self.assertEqual(0, buffering.pause(0, LINE))

    def test_a_pause_has_a_round_trip(self):
        self.assertAlmostEqual(3.1, buffering.pause(300, LINE))

    @given(_demands, st.integers(1, 500))
    def test_it_is_enough_and_no_more(self, demands, rate):
        amount = buffering.head(demands, rate)

        def suffices(first):
            total = 0.0
            for after_s, size in demands:
                total += size
                if total > first + rate * after_s:
                    return False
            return True

        self.assertTrue(suffices(amount))
        self.assertFalse(amount and suffices(amount - 1))
        self.assertTrue(0 <= amount <= sum(size for _, size in demands))
