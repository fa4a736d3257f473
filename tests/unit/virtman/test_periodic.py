"""When something is done again, and how it ends."""

import logging
import queue
import threading
import time

import fixtures
import testtools

from virtman.errors import VirtmanError
from virtman.periodic import Periodic

LONG = 60.0
SHORT = 0.05


class PeriodicTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.turns = queue.Queue()

    def begun(self, *answers, period=LONG, **settings):
        """Start what returns, or raises, one answer a turn, and then None."""
        answers = iter(answers)

        def turn():
            self.turns.put(time.monotonic())
            answer = next(answers, None)
            if isinstance(answer, Exception):
                raise answer
            return answer

        rounds = Periodic("digging", turn, period, **settings)
        self.addCleanup(rounds.join)
        self.addCleanup(rounds.stop)
        self.start = time.monotonic()
        rounds.start()
        return rounds

    def takes_a_turn(self):
        """Wait for a turn; return when it began, in seconds after the start."""
        return self.turns.get(timeout=10) - self.start

    def assert_no_turn(self):
        self.assertRaises(queue.Empty, self.turns.get, timeout=2 * SHORT)

    def test_the_first_turn_comes_at_once_and_the_next_a_period_later(self):
        self.begun(period=SHORT)
        self.takes_a_turn()
        self.assertGreaterEqual(self.takes_a_turn(), SHORT)

    def test_the_first_turn_may_be_later(self):
        self.begun(first=SHORT)
        self.assertGreaterEqual(self.takes_a_turn(), SHORT)

    def test_a_turn_says_when_the_next_one_is_and_only_that_one(self):
        self.begun(SHORT)
        self.takes_a_turn()
        self.takes_a_turn()
        self.assert_no_turn()

    def test_a_turn_that_fails_is_logged_and_followed_by_the_next(self):
        self.begun(VirtmanError("rock"), ValueError("mud"), period=SHORT)
        for _ in range(3):
            self.takes_a_turn()
        self.assertIn("digging: rock", self.log.output)
        self.assertIn("digging failed", self.log.output)
        self.assertIn("ValueError: mud", self.log.output)
        self.assertNotIn("VirtmanError", self.log.output)

    def test_the_period_holds_after_a_failure_and_may_be_changed(self):
        rounds = self.begun(0.0, ValueError())
        self.takes_a_turn()
        self.takes_a_turn()
        self.assert_no_turn()
        rounds.period = SHORT
        rounds.wake()
        for _ in range(3):
            self.takes_a_turn()

    def test_it_is_woken_by_whoever_wants_the_next_turn_now(self):
        woken = threading.Event()
        rounds = self.begun(first=LONG, woken=woken)
        for wake in (rounds.wake, woken.set):
            wake()
            self.takes_a_turn()
            self.assert_no_turn()

    def test_who_wakes_it_during_a_turn_gets_another(self):
        def turn():
            self.turns.put(0)
            if self.turns.qsize() == 1:
                rounds.wake()
            else:
                rounds.stop()

        rounds = Periodic("digging", turn, LONG)
        rounds.run()
        self.assertEqual(2, self.turns.qsize())

    def test_once_it_is_stopped_there_is_no_turn_any_more(self):
        rounds = self.begun()
        self.takes_a_turn()
        self.assertFalse(rounds.is_stopped)
        rounds.stop()
        rounds.join()
        self.assertTrue(rounds.is_stopped)
        rounds.wake()
        self.assert_no_turn()

    def test_a_turn_that_sleeps_ends_when_it_is_stopped(self):
        slept = []

        def turn():
            self.turns.put(0)
            slept.append(rounds.sleep(LONG))

        rounds = Periodic("digging", turn, LONG)
        rounds.start()
        self.turns.get(timeout=10)
        rounds.stop()
        rounds.join()
        self.assertEqual([True], slept)

    def test_what_fails_because_all_is_ending_is_no_error(self):
        def turn():
            rounds.stop()
            raise RuntimeError("the pool has ended")

        rounds = Periodic("digging", turn, LONG)
        self.log = self.useFixture(fixtures.FakeLogger(level=30))
        rounds.run()
        self.assertEqual("", self.log.output)

    def test_one_that_was_never_started_can_be_stopped_and_waited_for(self):
        rounds = Periodic("digging", lambda: None, LONG)
        rounds.stop()
        rounds.join()

    def test_it_is_told_where_a_turn_is_that_takes_too_long(self):
        told = threading.Event()
        handler = logging.Handler()
        handler.emit = lambda record: told.set()
        logger = logging.getLogger("virtman.periodic")
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)

        def hole():
            self.turns.put(told.wait(10))

        rounds = Periodic("digging", hole, LONG, patience=SHORT)
        self.addCleanup(rounds.join)
        self.addCleanup(rounds.stop)
        rounds.start()
        self.assertTrue(self.turns.get(timeout=20))
        self.assertIn("digging has taken 0.05 s and is not over", self.log.output)
        self.assertIn("in hole", self.log.output)
