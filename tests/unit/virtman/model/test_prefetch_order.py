"""Each piece is fetched once, no further ahead than the policy allows, what is put last first."""

from collections import Counter
from random import Random

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.model.prefetch_order import AHEAD, Policy, Queue, queue

PIECES = st.lists(st.integers(0, 10_000), unique=True, max_size=60)


class Least:
    """Dice that always fall on the same side."""

    def __init__(self, last=False):
        self.last = last

    def randrange(self, count):
        return count - 1 if self.last else 0


def taken(queue, pieces=()):
    """Return all that waits, in the order in which it is taken."""
    queue.put(pieces)
    found = []
    while queue.next is not None:
        found.append(queue.next)
        assert queue.take() == found[-1]
    assert queue.take() is None
    return found


class QueueTest(testtools.TestCase):
    def test_policies_have_names(self):
        self.assertEqual(["in-order", "window-random", "stream"], [str(one) for one in Policy])
        self.assertEqual(300, AHEAD)

    @given(PIECES, st.sampled_from((Policy.IN_ORDER, Policy.STREAM)))
    def test_in_order_is_in_order(self, pieces, policy):
        self.assertEqual(pieces, taken(queue(policy, Random(0)), pieces))

    @given(PIECES, st.integers(1, 70), st.randoms(use_true_random=False))
    def test_a_random_one_is_among_the_first_k_not_yet_fetched(self, pieces, k, dice):
        left = list(pieces)
        for piece in taken(Queue(dice, k), pieces):
            self.assertIn(piece, left[:k])
            left.remove(piece)
        self.assertEqual([], left)

    def test_dice_decide(self):
        pieces = [5, 3, 8, 1]
        self.assertEqual([5, 3, 8, 1], taken(Queue(Least(), 2), pieces))
        self.assertEqual([3, 8, 1, 5], taken(Queue(Least(last=True), 2), pieces))
        one, same, other = (
            taken(queue(Policy.WINDOW_RANDOM, Random(seed)), range(100)) for seed in (1, 1, 2)
        )
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)

    def test_each_of_the_first_k_is_as_likely(self):
        dice = Random(7)
        first = Counter(taken(Queue(dice, 3), range(9))[0] for _ in range(900))
        self.assertEqual({0, 1, 2}, set(first))
        self.assertGreater(min(first.values()), 250)

    def test_by_default_k_is_300(self):
        last = queue(Policy.WINDOW_RANDOM, Least(last=True))
        self.assertEqual([299, 300, 301], taken(last, range(1000))[:3])

    def test_what_is_put_last_is_taken_first(self):
        found = Queue(Least())
        self.assertEqual([1, 2, 3, 4], found.put([1, 2, 3, 4]))
        self.assertEqual(1, found.take())
        # one was taken, and three waits: only seven and eight are new
        self.assertEqual([7, 8], found.put([7, 3, 1, 8, 7]))
        self.assertEqual([7, 3, 8, 2, 4], taken(found))
        self.assertEqual([], found.put([4, 8]))
        self.assertIsNone(found.next)

    @given(st.lists(st.tuples(PIECES, st.integers(0, 5))), st.integers(1, 5))
    def test_whatever_is_put_again_is_taken_once(self, rounds, k):
        found, new, order = Queue(Random(1), k), [], []
        for pieces, count in rounds:
            new += found.put(pieces)
            order += [found.take() for _ in range(count) if found.next is not None]
        order += taken(found)
        self.assertEqual(len(set(order)), len(order))
        self.assertEqual(set(new), set(order))
        self.assertEqual(len(set(new)), len(new))
