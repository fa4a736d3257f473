"""The pieces of one stripe, as they are taken."""

import testtools

from virtman.image.prefetch import _Lane
from virtman.model.prefetch_pace import Window


class LaneTest(testtools.TestCase):
    def test_neighbours_are_taken_together_as_far_as_the_window_lets_them(self):
        lane = _Lane(iter((3, 4, 5, 6, 7, 9)), Window(4))
        taken = []
        for expected in ([3], [4, 5], [6, 7], [9], []):
            taken = lane.take(lambda: True)
            self.assertEqual(expected, taken)
            lane.came(taken, grows=True)
        self.assertEqual(4, lane.window.size)

    def test_while_a_vm_waits_they_come_one_by_one(self):
        lane = _Lane(iter((3, 4, 5)), Window(4))
        lane.window.size = 2
        self.assertEqual([3], lane.take(lambda: False))
        self.assertEqual([4], lane.take(lambda: False))
        lane.came([3], grows=False)
        self.assertEqual([5], lane.take(lambda: False))

    def test_one_that_ended_gives_no_more(self):
        lane = _Lane(iter((3, 4)), Window(1))
        self.assertEqual([3], lane.take(lambda: True))
        lane.end()
        self.assertEqual([], lane.take(lambda: True))
