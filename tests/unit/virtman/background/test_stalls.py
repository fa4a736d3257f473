"""Which parents' disks are stuck, and which are slow."""

import testtools

from virtman.background.stalls import Stalls


class StallsTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.stalls = Stalls({"sda": "parent", "sdb": "parent", "sdc": ""}.get)
        self.now = 0.0
        self.answered = 0
        self.look(0.0, owes=False)
        self.now += 10.0

    def look(self, seconds, answers=0, owes=True):
        """Let time pass, in which a disk answers some reads; tell whether it is stuck then."""
        self.now += seconds
        self.answered += answers
        return "parent" in self.stalls.look({"sda": (self.answered, owes)}, self.now)

    def looks(self, count, seconds, **answers):
        return {self.look(seconds, **answers) for _ in range(count)}

    def test_one_that_answers_none_for_two_seconds_is_stuck(self):
        self.looks(4, 0.25, answers=8)
        self.assertEqual([False, False, True], [self.look(0.99) for _ in range(3)])

    def test_one_that_answers_now_and_then_is_slow(self):
        for _ in range(20):
            self.assertEqual({False}, self.looks(7, 0.25))
            self.assertFalse(self.look(0.01, answers=1))

    def test_one_that_was_slow_before_gets_more_time_but_not_without_end(self):
        self.look(0)
        self.look(1.5, answers=1)  # 1.5 seconds for an answer
        self.assertEqual({False}, self.looks(2, 1.4))
        self.assertTrue(self.look(0.3))
        self.look(60, answers=1)
        self.assertEqual([False, True], [self.look(3.9), self.look(0.2)])

    def test_one_that_is_asked_nothing_is_not_stuck(self):
        self.look(0)
        self.look(0.1, answers=1, owes=False)
        self.assertEqual({False}, self.looks(4, 60.0, owes=False))
        self.assertFalse(self.look(1.9))

    def test_one_whose_reads_were_never_seen_to_wait_is_stuck_as_soon(self):
        self.looks(4, 0.25, answers=8, owes=False)
        self.look(0.25)
        self.assertEqual([False, True], [self.look(1.9), self.look(0.2)])

    def look_at(self, disk, seconds):
        """Let time pass in which a disk answers nothing; tell whether its parent is stuck then."""
        self.now += seconds
        return "parent" in self.stalls.look({disk: (0, True)}, self.now)

    def test_a_new_disk_may_wait_for_parents_of_its_parent(self):
        self.assertEqual({False}, {self.look_at("sdb", 1.0) for _ in range(10)})
        self.assertTrue(self.look_at("sdb", 1.0))

    def test_a_new_disk_of_a_parent_that_was_stuck_has_no_more_time_than_others(self):
        self.look(0)
        self.assertTrue(self.look(2.0))
        self.assertEqual({False}, {self.look_at("sdb", 0.5) for _ in range(4)})
        self.assertTrue(self.look_at("sdb", 0.5))

    def test_a_disk_of_this_node_is_no_parent(self):
        self.assertEqual({False}, {self.look_at("sdc", 10.0) for _ in range(10)})

    def test_a_disk_that_went_is_forgotten(self):
        self.look(0)
        self.look(1.9)
        self.assertEqual(set(), self.stalls.look({}, self.now))
        self.assertEqual({False}, self.looks(9, 1.0))
