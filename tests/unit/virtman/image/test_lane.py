"""The pieces of one stripe, as they are taken."""

import random
import threading

import testtools

from virtman.image.lane import Lane
from virtman.model.prefetch_order import Queue
from virtman.model.prefetch_pace import Window


def lane_of(pieces, largest):
    lane = Lane(Queue(random.Random(0)), Window(largest))
    lane.put(pieces)
    return lane


class LaneTest(testtools.TestCase):
    def test_neighbours_are_taken_together_as_far_as_the_window_lets_them(self):
        lane = lane_of((3, 4, 5, 6, 7, 9), 4)
        for expected in ([3], [4, 5], [6, 7], [9]):
            self.assertFalse(lane.is_done())
            taken = lane.take(lambda: True)
            self.assertEqual(expected, taken)
            self.assertFalse(lane.is_done())
            lane.came(taken)
        self.assertEqual(4, lane.window.size)
        self.assertTrue(lane.is_done())

    def test_while_a_vm_waits_they_come_one_by_one(self):
        lane = lane_of((3, 4, 5), 4)
        lane.window.size = 2
        self.assertEqual([3], lane.take(lambda: False))
        self.assertEqual([4], lane.take(lambda: False))
        lane.came([3])
        self.assertEqual([5], lane.take(lambda: False))

    def test_of_short_ones_a_step_is_taken_even_then(self):
        lane = Lane(Queue(random.Random(0)), Window(8, 4))
        lane.put((3, 4, 5, 6, 7, 12, 20))
        for expected in ([3, 4, 5, 6], [7, 12, 20]):
            taken = lane.take(lambda: False)
            self.assertEqual(expected, taken)
            lane.came(taken)

    def test_one_that_ended_gives_no_more(self):
        lane = lane_of((3, 4), 1)
        self.assertEqual([3], lane.take(lambda: True))
        lane.end()
        self.assertEqual([], lane.take(lambda: True))

    def test_what_is_put_last_is_taken_first(self):
        lane = lane_of((3, 4, 5), 1)
        self.assertEqual([8], lane.put((8, 4)))
        taken = []
        while not lane.is_done():
            taken += lane.take(lambda: False)
            lane.came(taken[-1:])
        self.assertEqual([8, 4, 3, 5], taken)

    def test_who_waits_for_pieces_gets_those_that_are_put_later(self):
        lane = lane_of((), 1)
        taken = []
        waiting = threading.Thread(target=lambda: taken.extend(lane.take(lambda: True)))
        waiting.start()
        lane.put((3,))
        waiting.join(5)
        self.assertEqual([3], taken)

    def test_one_that_ended_may_begin_again(self):
        lane = lane_of((3,), 1)
        lane.end()
        lane.begin()
        self.assertEqual([3], lane.take(lambda: True))
