"""Who asks too often."""

import testtools

from volt.auth.ratelimit import Rates
from volt.errors import TooFast


class TestRates(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 100.0
        self.rates = Rates(rate=2, burst=3, clock=lambda: self.now)

    def taken(self, asker, count):
        """Ask so often; return how many requests were let through."""
        taken = 0
        for _ in range(count):
            try:
                self.rates.take(asker)
            except TooFast:
                continue
            taken += 1
        return taken

    def test_a_burst_passes_and_then_the_rate(self):
        assert self.taken("a", 10) == 3
        for _ in range(5):
            self.now += 1
            assert self.taken("a", 10) == 2

    def test_whoever_was_quiet_has_a_whole_burst_again_and_no_more(self):
        self.taken("a", 10)
        self.now += 1000
        assert self.taken("a", 10) == 3

    def test_askers_do_not_count_for_each_other(self):
        self.taken("a", 10)
        assert self.taken("b", 10) == 3

    def test_waiting_as_long_as_told_is_enough(self):
        self.taken("a", 3)
        wait = self.assertRaises(TooFast, self.rates.take, "a").wait
        self.now += wait / 2
        assert self.taken("a", 1) == 0
        self.now += wait / 2
        assert self.taken("a", 1) == 1

    def test_a_check_does_not_count(self):
        for _ in range(10):
            self.rates.check("a")
        assert self.taken("a", 10) == 3
        self.assertRaises(TooFast, self.rates.check, "a")

    def test_millions_of_askers_are_forgotten_but_not_the_busy(self):
        for number in range(100_000):
            self.rates.take(f"asker {number}")
            self.now += 0.01
            if number % 20 == 0:
                self.taken("busy", 3)
        assert self.taken("busy", 3) <= 1
        assert len(self.rates._due) < 3000
