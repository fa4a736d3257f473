"""How turns keep their pace."""

import threading
import time

import testtools

from volt.background.periodic import Rounds

PERIOD = 0.1


class TestRounds(testtools.TestCase):
    def begun(self, turns, work):
        """Return when each of so many turns began, in periods after the first; each works."""
        times, enough = [], threading.Event()

        def turn():
            times.append(time.monotonic())
            if len(times) == turns:
                enough.set()
            time.sleep(work(len(times)))

        rounds = Rounds("test", turn, PERIOD)
        rounds.start()
        self.addCleanup(rounds.stop)
        assert enough.wait(10)
        rounds.stop()
        return [(when - times[0]) / PERIOD for when in times]

    def test_what_a_turn_takes_is_part_of_its_period(self):
        assert 3.9 < self.begun(5, lambda turn: 0.6 * PERIOD)[-1] < 5

    def test_late_turns_are_not_made_up_for(self):
        begun = self.begun(5, lambda turn: 3 * PERIOD if turn == 1 else 0)
        assert begun[1] > 2.9
        assert begun[-1] - begun[1] > 2.9

    def test_a_failed_turn_is_followed_by_the_next(self):
        def fail(turn):
            raise OSError("lost")

        assert len(self.begun(3, fail)) >= 3
