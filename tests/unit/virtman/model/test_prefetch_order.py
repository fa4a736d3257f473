"""Each piece is fetched once, no further ahead than the policy allows."""

from collections import Counter
from random import Random

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.model.prefetch_order import AHEAD, Policy, order

PIECES = st.lists(st.integers(0, 10_000), unique=True, max_size=60)


class Least:
    """Dice that always fall on the same side."""

    def __init__(self, last=False):
        self.last = last

    def randrange(self, count):
        return count - 1 if self.last else 0


class OrderTest(testtools.TestCase):
    def test_policies_have_names(self):
        self.assertEqual(["in-order", "window-random"], [str(one) for one in Policy])
        self.assertEqual(300, AHEAD)

    @given(PIECES)
    def test_in_order_is_in_order(self, pieces):
        self.assertEqual(pieces, list(order(Policy.IN_ORDER, pieces, Random(0))))
        self.assertEqual(pieces, list(order("in-order", pieces, Random(0), 7)))

    @given(PIECES, st.integers(1, 70), st.randoms(use_true_random=False))
    def test_a_random_one_is_among_the_first_k_not_yet_fetched(self, pieces, k, dice):
        left = list(pieces)
        for piece in order(Policy.WINDOW_RANDOM, pieces, dice, k):
            self.assertIn(piece, left[:k])
            left.remove(piece)
        self.assertEqual([], left)

    def test_dice_decide(self):
        pieces = [5, 3, 8, 1]
        self.assertEqual([5, 3, 8, 1], list(order(Policy.WINDOW_RANDOM, pieces, Least(), 2)))
        self.assertEqual(
            [3, 8, 1, 5], list(order(Policy.WINDOW_RANDOM, pieces, Least(last=True), 2))
        )
        one, same, other = (
            list(order(Policy.WINDOW_RANDOM, range(100), Random(seed))) for seed in (1, 1, 2)
        )
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)

    def test_each_of_the_first_k_is_as_likely(self):
        dice = Random(7)
        first = Counter(next(order(Policy.WINDOW_RANDOM, range(9), dice, 3)) for _ in range(900))
        self.assertEqual({0, 1, 2}, set(first))
        self.assertGreater(min(first.values()), 250)

    def test_by_default_k_is_300(self):
        last = order(Policy.WINDOW_RANDOM, range(1000), Least(last=True))
        self.assertEqual([299, 300, 301], [next(last) for _ in range(3)])

    def test_pieces_are_read_no_further_than_needed(self):
        for policy, ahead in ((Policy.IN_ORDER, 1), (Policy.WINDOW_RANDOM, 4)):
            coming = iter(range(100))
            fetched = order(policy, coming, Random(3), 4)
            next(fetched)
            self.assertEqual(ahead, next(coming))
            next(fetched)
            self.assertEqual(ahead + 2, next(coming))
