"""How evenly hosts are loaded if a ring follows their other traffic."""

from statistics import mean, pstdev

import testtools

from planning.errors import Invalid
from planning.ring import balance


class BalanceTest(testtools.TestCase):
    def test_traffic_is_as_uneven_as_asked(self):
        found = list(balance.traffic(4000, 2.0, 0.8, seed=1).values())
        self.assertAlmostEqual(2.0, mean(found), delta=0.1)
        self.assertAlmostEqual(0.8, pstdev(found) / mean(found), delta=0.05)
        self.assertEqual({"host00000": 2.0}, balance.traffic(1, 2.0, 0.0, seed=1))

    def test_parts_that_follow_traffic_even_it_out(self):
        own = balance.traffic(32, 2.0, 0.4, seed=1)
        equal, inverse, room = balance.balances(own, 32.0)
        self.assertEqual(
            ("equal", "inverse", "room"), (equal.weights, inverse.weights, room.weights)
        )
        self.assertEqual(0.0, equal.moved)
        self.assertLess(inverse.cv, equal.cv)
        self.assertLess(room.cv, inverse.cv)
        self.assertLess(room.busiest, inverse.busiest)

    def test_where_all_is_even_nothing_moves(self):
        for one in balance.balances(balance.traffic(32, 2.0, 0.0, seed=1), 32.0):
            self.assertEqual((0.0, 0.0), (one.cv, one.moved))

    def test_what_cannot_be_is_refused(self):
        self.assertRaises(Invalid, balance.traffic, 2, -1.0, 0.0, 1)
        self.assertRaises(Invalid, balance.traffic, 2, 1.0, -1.0, 1)
        self.assertRaises(Invalid, balance.balances, {"a": 1.0}, 0.0)
