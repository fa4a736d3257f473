"""Playback with a rate: exact, and what small steps of the paper's equations come to."""

from itertools import accumulate, pairwise

import testtools
from hypothesis import given
from hypothesis import strategies as st

from planning import policy
from planning.errors import Invalid
from planning.playback import Playback

STEP = st.tuples(st.floats(0, 5), st.integers(0, 1_000))
IDEALS = st.lists(STEP, min_size=1, max_size=20).map(
    lambda steps: Playback(
        (0.0, *accumulate(pause for pause, _ in steps)),
        (0.0, *accumulate(float(read) for _, read in steps)),
    )
)
RATES = st.floats(1, 10_000)


def stepped(ideal, rate, *, ahead, step):
    """Return the end of P by equations 2 and 5, in small steps of time."""
    now = done = buffered = 0.0
    while done < ideal.total - 1e-9:
        wanted = ideal.read(ideal.when(done) + step) - done
        got = min(wanted, rate * step + (buffered if ahead else 0.0))
        buffered = max(0.0, buffered + rate * step - wanted)
        done += got
        now += step
    return now


class PolicyTest(testtools.TestCase):
    def test_a_vm_waits_for_what_is_slower(self):
        ideal = Playback((0.0, 10.0, 20.0), (0.0, 100.0, 1100.0))
        self.assertEqual((0.0, 10.0, 30.0), policy.demand(ideal, 50.0).seconds)
        self.assertEqual(22.0, policy.in_order(ideal, 50.0).end)

    def test_what_comes_while_a_vm_computes_saves_it_waits(self):
        # nothing is read for 10 s, in which 500 bytes come; then 1000 at once
        ideal = Playback((0.0, 10.0, 10.0), (0.0, 0.0, 1000.0))
        self.assertEqual(30.0, policy.demand(ideal, 50.0).end)
        ahead = policy.in_order(ideal, 50.0)
        self.assertEqual(20.0, ahead.end)
        self.assertEqual(10.0, ahead.when(500.0))  # the buffer has these
        self.assertAlmostEqual(15.0, ahead.when(750.0))

    def test_it_is_what_small_steps_come_to(self):
        ideal = Playback((0.0, 4.0, 5.0, 9.0, 10.0, 15.0), (0.0, 10.0, 300.0, 310.0, 700.0, 710.0))
        for rate in (40.0, 90.0, 200.0):
            for solve, ahead in ((policy.demand, False), (policy.in_order, True)):
                end = stepped(ideal, rate, ahead=ahead, step=0.002)
                self.assertAlmostEqual(end, solve(ideal, rate).when(ideal.total), delta=0.03)

    @given(IDEALS, RATES)
    def test_local_is_faster_than_ahead_is_faster_than_demand(self, ideal, rate):
        ends = [ideal.end, policy.in_order(ideal, rate).end, policy.demand(ideal, rate).end]
        for faster, slower in pairwise(ends):
            self.assertLessEqual(faster, slower + 1e-6)
        self.assertGreaterEqual(ends[1], ideal.total / rate - 1e-6)

    @given(IDEALS, RATES, st.floats(1, 100))
    def test_a_faster_link_delays_no_read(self, ideal, rate, factor):
        for solve in (policy.demand, policy.in_order):
            slow, fast = solve(ideal, rate), solve(ideal, rate * factor)
            for amount in ideal.amounts:
                self.assertLessEqual(fast.when(amount), slow.when(amount) + 1e-6)

    @given(IDEALS)
    def test_without_a_limit_it_is_the_ideal(self, ideal):
        for solve in (policy.demand, policy.in_order):
            self.assertAlmostEqual(ideal.end, solve(ideal, 1e15).end, delta=1e-6)

    def test_what_cannot_be_is_refused(self):
        for solve in (policy.demand, policy.in_order):
            self.assertRaises(Invalid, solve, Playback((0.0,), (0.0,)), 0.0)
