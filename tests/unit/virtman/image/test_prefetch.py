"""Whether VMs wait longer than they would, and whether they read what comes."""

import testtools

from virtman.image.prefetch import _Idle, _Judge, _Lane
from virtman.model.prefetch_pace import Window
from virtman.model.profile import merged
from virtman.stack.reads import Count

PIECE = 64 * 1024
SECTORS = PIECE // 512


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class IdleTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.clock = Clock()
        self.idle = _Idle(self.clock)

    def look(self, waited, seconds):
        return self.idle.look({0: Count(0, seconds, (0, waited, 0, 0, 0))})

    def test_the_first_reads_tell_how_long_one_takes(self):
        self.assertEqual(0, self.look(3, 0.3))
        self.assertFalse(self.idle.is_known())
        self.assertAlmostEqual(0.05, self.look(10, 0.5))
        self.assertTrue(self.idle.is_known())
        self.assertAlmostEqual(0.05, self.idle.seconds)

    def test_later_ones_are_told_from_those_before(self):
        self.look(10, 0.5)
        self.assertAlmostEqual(0.2, self.look(12, 0.9))
        self.assertEqual(0, self.look(12, 0.9))
        self.assertAlmostEqual(0.05, self.idle.seconds)

    def test_who_reads_little_is_not_waited_for(self):
        self.clock.now = 2.1
        self.assertTrue(self.idle.is_known())
        self.assertEqual(0, self.idle.seconds)


class JudgeTest(testtools.TestCase):
    def judge(self, bands, area=PIECE, piece=PIECE):
        """Return what judges a profile, of which each band has pieces one after the other."""
        run = {band * 16 + one: band + 0.5 for band in range(bands) for one in range(16)}
        self.numbers = sorted(run)
        self.area = area
        self.sectors = {}
        return _Judge(merged(None, run, "ab" * 32, piece), area)

    def read(self, judge, *numbers):
        for number in numbers:
            area = number * PIECE // self.area
            self.sectors[area] = self.sectors.get(area, 0) + SECTORS
        return judge.look({area: Count(one) for area, one in self.sectors.items()})

    def test_what_is_read_counts_once(self):
        judge = self.judge(2)
        for number in (0, 1, 2):
            judge.fetched(number)
        self.assertEqual(1, self.read(judge, 1))
        self.assertEqual(0, self.read(judge, 1))
        self.assertEqual(0, self.read(judge, 20))
        self.assertEqual(2, self.read(judge, 0, 2))

    def test_areas_of_many_pieces_count_by_how_much_was_read(self):
        judge = self.judge(2, area=16 * PIECE)
        for number in range(16):
            judge.fetched(number)
        self.assertEqual(3, self.read(judge, 1, 5, 9))
        self.assertEqual(2, self.read(judge, 2, 3))

    def test_pieces_may_be_longer_than_areas(self):
        judge = self.judge(2, piece=4 * PIECE)
        judge.fetched(1)
        self.assertEqual(1, self.read(judge, 4, 5, 6, 7))

    def test_a_boot_that_goes_as_recorded_is_no_reason_to_stop(self):
        judge = self.judge(30)
        for number in self.numbers:
            judge.fetched(number)
        for number in self.numbers:
            self.read(judge, number)
            self.assertFalse(judge.is_poor(), number)

    def test_a_slow_boot_is_none_either(self):
        judge = self.judge(30)
        for number in self.numbers:
            judge.fetched(number)
        self.read(judge, *self.numbers[:100])
        self.assertFalse(judge.is_poor())

    def test_a_boot_that_leaves_half_of_it_out_is_one(self):
        judge = self.judge(30)
        for number in self.numbers:
            judge.fetched(number)
        self.read(judge, *self.numbers[::2])
        self.assertTrue(judge.is_poor())

    def test_another_workload_is_one(self):
        judge = self.judge(30)
        judge.fetched(0)
        self.read(judge, *range(1000, 1063))
        self.assertFalse(judge.is_poor())
        self.read(judge, 1063)
        self.assertTrue(judge.is_poor())


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
