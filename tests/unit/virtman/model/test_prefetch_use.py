"""Whether VMs read what comes, and what that says of the profile."""

import testtools

from virtman.model.prefetch_use import Judge, Usefulness
from virtman.model.profile import merged
from virtman.model.read_counts import Count

PIECE = 64 * 1024
SECTORS = PIECE // 512


class UsefulnessTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.usefulness = Usefulness()

    def fetch(self, count, used, now=0.0, begin=0):
        for piece in range(begin, begin + count):
            self.usefulness.fetched(now, piece)
        for piece in range(begin, begin + used):
            self.usefulness.used(piece)

    def test_with_7_of_10_used_it_goes_on(self):
        self.fetch(30, 21)
        self.assertFalse(self.usefulness.is_poor(10))

    def test_with_fewer_used_it_stops(self):
        self.fetch(30, 20)
        self.assertTrue(self.usefulness.is_poor(10))

    def test_there_is_no_verdict_before_the_first_span_is_over(self):
        self.assertFalse(self.usefulness.is_poor(100))
        self.fetch(10, 0, now=100)
        self.fetch(20, 0, now=105, begin=10)
        self.assertFalse(self.usefulness.is_poor(109.9))
        self.assertTrue(self.usefulness.is_poor(110))

    def test_a_few_pieces_are_no_reason_to_stop(self):
        self.fetch(15, 0)
        self.assertFalse(self.usefulness.is_poor(10))
        self.fetch(1, 0, begin=15)
        self.assertTrue(self.usefulness.is_poor(10))

    def test_what_came_before_the_span_does_not_count(self):
        self.fetch(30, 0, now=1)
        self.fetch(20, 20, now=2, begin=30)
        self.assertTrue(self.usefulness.is_poor(11))
        self.assertFalse(self.usefulness.is_poor(11.1))
        self.assertFalse(self.usefulness.is_poor(12.1))

    def test_use_at_any_time_counts(self):
        self.fetch(20, 0)
        self.fetch(20, 0, now=8, begin=20)
        self.assertTrue(self.usefulness.is_poor(12))
        for piece in range(20, 34):
            self.usefulness.used(piece)
        self.assertFalse(self.usefulness.is_poor(13))

    def test_a_piece_that_is_fetched_again_must_be_used_again(self):
        self.fetch(20, 20)
        self.fetch(20, 0, now=9)
        self.assertTrue(self.usefulness.is_poor(11))

    def test_what_was_not_fetched_ahead_does_not_count(self):
        self.fetch(20, 13)
        for piece in range(100, 150):
            self.usefulness.used(piece)
        self.assertTrue(self.usefulness.is_poor(10))

    def test_pieces_can_have_time_until_they_are_used(self):
        self.usefulness = Usefulness(least=0.5, span_s=4, ahead_s=3)
        self.fetch(10, 10, now=0)
        self.fetch(10, 0, now=2, begin=10)
        self.fetch(10, 0, now=5, begin=20)
        self.assertFalse(self.usefulness.is_poor(6.9))
        self.assertFalse(self.usefulness.is_poor(7))
        self.assertTrue(self.usefulness.is_poor(8))
        self.assertFalse(self.usefulness.is_poor(9.5))


class JudgeTest(testtools.TestCase):
    def judge(self, bands, area=PIECE, piece=PIECE):
        """Return what judges a profile, of which each band has pieces one after the other."""
        run = {band * 16 + one: band + 0.5 for band in range(bands) for one in range(16)}
        self.numbers = sorted(run)
        self.area = area
        self.sectors = {}
        return Judge(merged(None, run, "ab" * 32, piece), area)

    def fetch(self, judge, *numbers):
        judge.coming(numbers)
        for number in numbers:
            judge.fetched(number)

    def read(self, judge, *numbers, wanted=()):
        for number in numbers:
            area = number * PIECE // self.area
            self.sectors[area] = self.sectors.get(area, 0) + SECTORS
        return len(self.look(judge, wanted).used)

    def look(self, judge, wanted):
        return judge.look({area: Count(one) for area, one in self.sectors.items()}, wanted)

    def test_what_is_read_counts_once(self):
        judge = self.judge(2)
        self.fetch(judge, 0, 1, 2)
        self.assertEqual(1, self.read(judge, 1))
        self.assertEqual(0, self.read(judge, 1))
        self.assertEqual(0, self.read(judge, 20))
        self.assertEqual(2, self.read(judge, 0, 2))

    def test_areas_of_many_pieces_count_by_how_much_was_read(self):
        judge = self.judge(2, area=16 * PIECE)
        self.fetch(judge, *range(16))
        self.assertEqual(3, self.read(judge, 1, 5, 9))
        self.assertEqual(2, self.read(judge, 2, 3))

    def test_what_came_because_it_was_wanted_counts_for_no_other_piece_of_its_area(self):
        judge = self.judge(1, area=32 * PIECE)
        self.fetch(judge, *range(16))
        self.assertEqual(0, self.read(judge, 20, 21, wanted=(0, 20, 21)))
        self.assertEqual(2, self.read(judge, 20, 1, wanted=(0, 1, 20, 21)))

    def test_a_piece_may_be_in_memory_before_its_read_counts(self):
        judge = self.judge(1, area=32 * PIECE)
        self.fetch(judge, *range(16))
        self.assertEqual(0, self.read(judge, 20, 1, wanted=(20, 21)))
        self.assertEqual(1, self.read(judge, 21, wanted=(20, 21)))
        self.assertEqual(1, self.read(judge, 2))

    def test_pieces_may_be_longer_than_areas(self):
        judge = self.judge(2, piece=4 * PIECE)
        self.fetch(judge, 1)
        self.assertEqual(1, self.read(judge, 4, 5, 6, 7))

    def test_areas_change_when_more_of_them_is_read(self):
        judge = self.judge(2)
        self.assertEqual([1, 2], judge.changed({1: Count(8), 2: Count(8)}))
        judge.look({1: Count(8), 2: Count(8)}, ())
        self.assertEqual([2], judge.changed({1: Count(8), 2: Count(16)}))

    def test_a_boot_that_goes_as_recorded_is_no_reason_to_stop(self):
        judge = self.judge(30)
        self.fetch(judge, *self.numbers)
        for number in self.numbers:
            self.read(judge, number)
            self.assertFalse(judge.is_poor(), number)

    def test_a_slow_boot_is_none_either(self):
        judge = self.judge(30)
        self.fetch(judge, *self.numbers)
        self.read(judge, *self.numbers[:100])
        self.assertFalse(judge.is_poor())

    def test_nor_is_one_that_begins_to_read_what_was_recorded_in_a_moment(self):
        bands = [0] * 40 + [20] * 300 + [21] * 300
        run = {number: band + 0.5 for number, band in enumerate(bands)}
        judge = Judge(merged(None, run, "ab" * 32, PIECE), PIECE)
        self.sectors, self.area = {}, PIECE
        self.fetch(judge, *run)
        for number in run:
            self.read(judge, number)
            self.assertFalse(judge.is_poor(), number)

    def test_a_boot_that_leaves_half_of_it_out_is_one(self):
        judge = self.judge(30)
        self.fetch(judge, *self.numbers)
        self.read(judge, *self.numbers[::2])
        self.assertTrue(judge.is_poor())

    def test_another_workload_is_one(self):
        judge = self.judge(30)
        self.fetch(judge, 0)
        self.read(judge, *range(1000, 1007), wanted=range(1000, 1007))
        self.assertFalse(judge.is_poor())
        self.read(judge, 1007, wanted=[1007])
        self.assertTrue(judge.is_poor())

    def beside(self):
        """Return what judges every other piece, some of which came."""
        run = {number: number / 32 for number in range(0, 960, 2)}
        judge = Judge(merged(None, run, "ab" * 32, PIECE), 4 * PIECE)
        self.area, self.sectors = 4 * PIECE, {}
        self.fetch(judge, *range(0, 64, 2))
        return judge

    def test_another_workload_is_one_though_it_reads_beside_what_comes(self):
        judge = self.beside()
        wanted = set(range(64)) | {65}
        self.assertEqual(0, self.read(judge, *range(1, 64, 2), wanted=wanted))
        self.assertTrue(judge.is_poor())

    def test_nor_does_it_help_that_it_is_read_again_and_again(self):
        judge = self.beside()
        for _ in range(3):
            self.read(judge, *range(1, 64, 2), wanted=range(64))
        self.assertTrue(judge.is_poor())

    def test_what_vms_wanted_before_it_came_is_of_their_workload(self):
        judge = self.judge(30)
        self.read(judge, *range(60), wanted=range(60))
        self.read(judge, *range(1000, 1300), wanted=range(1000, 1300))
        self.assertFalse(judge.is_poor())
        self.read(judge, *range(1300, 1900), wanted=range(1300, 1900))
        self.assertTrue(judge.is_poor())

    def test_what_is_just_coming_was_wanted_by_nobody(self):
        judge = self.judge(30)
        judge.coming(range(100))
        self.read(judge, *range(1000, 1032), wanted=[*range(100), *range(1000, 1032)])
        self.assertTrue(judge.is_poor())


class FollowingTest(testtools.TestCase):
    """What VMs read decides what comes."""

    def setUp(self):
        super().setUp()
        run = {number: number / 4 for number in range(400)}
        self.judge = Judge(merged(None, run, "ab" * 32, PIECE), PIECE, follows=True)
        self.seen = {}

    def read(self, *numbers):
        """Have VMs read pieces; some of them may have come ahead."""
        self.seen |= {number: Count(SECTORS) for number in numbers}
        return self.judge.look(self.seen, numbers)

    def test_a_piece_of_the_profile_is_missed_once(self):
        first, second = self.read(7, 900, 3), self.read(7, 900, 3)
        self.assertEqual(((), (3, 7)), (first.used, first.missed))
        self.assertEqual(((), ()), (second.used, second.missed))
        self.assertEqual(((900,), ()), (first.strange, second.strange))

    def test_what_came_ahead_is_not_missed(self):
        self.judge.coming([7, 8])
        self.judge.fetched(7)
        found = self.read(3, 7, 8)
        self.assertEqual(((7,), (3,)), (found.used, found.missed))

    def test_parts_in_another_order_are_no_reason_to_stop(self):
        self.judge.coming(range(400))
        for number in range(400):
            self.judge.fetched(number)
        for number in (*range(300, 400), *range(100)):
            self.read(number)
            self.assertFalse(self.judge.is_poor())

    def test_vms_that_read_mostly_what_no_run_did_are_one(self):
        self.read(*range(20), *range(1000, 1020))
        self.assertFalse(self.judge.is_poor())
        self.read(1020)
        self.assertTrue(self.judge.is_poor())

    def test_a_few_reads_tell_nothing(self):
        self.read(*range(1000, 1031))
        self.assertFalse(self.judge.is_poor())
        self.read(1031)
        self.assertTrue(self.judge.is_poor())
