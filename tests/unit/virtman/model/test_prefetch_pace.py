"""What is fetched ahead stands back when VMs are hurt, and at its cap."""

from math import inf

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.model.prefetch_pace import Cap, Idle, Window, fitting, step
from virtman.model.read_counts import Count


def grown(window, pieces):
    """Return the size after each of some pieces that come."""
    sizes = []
    for _ in range(pieces):
        window.came()
        sizes.append(window.size)
    return sizes


class WindowTest(testtools.TestCase):
    def test_it_grows_by_one_after_each_window(self):
        window = Window()
        self.assertEqual(1, window.size)
        self.assertEqual([2, 2, 3, 3, 3, 4], grown(window, 6))

    def test_it_grows_to_8(self):
        window = Window()
        self.assertEqual(7, grown(window, 27)[-1])
        self.assertEqual([8] * 50, grown(window, 51)[1:])

    def test_another_largest_size_can_be_set(self):
        self.assertEqual([2, 2, 3, 3, 3, 3], grown(Window(3), 6))
        self.assertEqual([1, 1], grown(Window(1), 2))

    def test_of_long_pieces_fewer_fit(self):
        fits = {kib: fitting(8, kib * 1024) for kib in (4, 64, 128, 256, 512, 1024)}
        self.assertEqual({4: 128, 64: 8, 128: 4, 256: 2, 512: 1, 1024: 1}, fits)
        self.assertEqual(2, fitting(2, 64 * 1024))

    def test_of_short_pieces_as_many_bytes_fly(self):
        self.assertEqual([16, 2, 1, 1], [step(kib * 1024) for kib in (4, 32, 64, 1024)])
        self.assertEqual([32, 4], [fitting(2, kib * 1024) for kib in (4, 32)])
        window = Window(32, 16)
        self.assertEqual([16] * 15 + [32] * 40, grown(window, 55))
        window.demand(1, 0)
        self.assertEqual(16, window.size)

    def test_it_halves_when_reads_take_more_than_twice(self):
        window = Window()
        grown(window, 100)
        sizes = []
        for read_s in (0.02, 0.021, 0.03, 0.1, 0.1):
            window.demand(read_s, 0.01)
            sizes.append(window.size)
        self.assertEqual([8, 4, 2, 1, 1], sizes)

    def test_an_odd_size_halves_downwards(self):
        window = Window()
        self.assertEqual(5, grown(window, 10)[-1])
        window.demand(1, 0.1)
        self.assertEqual(2, window.size)

    def test_while_vms_are_hurt_it_does_not_grow(self):
        window = Window()
        grown(window, 1)
        window.demand(1, 0.1)
        self.assertEqual([1, 1, 1], grown(window, 3))
        window.demand(0.2, 0.1)
        self.assertEqual([2, 2, 3], grown(window, 3))

    def test_after_a_hurt_a_whole_window_must_come(self):
        window = Window()
        self.assertEqual(4, grown(window, 8)[-1])
        window.demand(1, 0.1)
        window.demand(0, 0.1)
        self.assertEqual([2, 3], grown(window, 2))

    def test_as_long_as_idle_is_not_known_whoever_waits_is_hurt(self):
        window = Window()
        self.assertEqual(8, grown(window, 100)[-1])
        window.demand(inf, 0)
        self.assertEqual([1, 1, 1], grown(window, 3))

    def test_who_does_not_wait_is_not_hurt(self):
        window = Window()
        grown(window, 6)
        window.demand(0, 0)
        self.assertEqual(4, window.size)
        window.demand(0, 0.1)
        self.assertEqual(4, window.size)

    @given(st.lists(st.one_of(st.none(), st.floats(0, 5))), st.integers(1, 8))
    def test_it_stays_within_its_bounds(self, events, largest):
        window = Window(largest)
        for event in events:
            window.came() if event is None else window.demand(event, 1)
            self.assertTrue(1 <= window.size <= largest)


class IdleTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.idle = Idle()

    def look(self, waited, seconds):
        return self.idle.look({0: Count(0, seconds, (0, waited, 0, 0, 0))})

    def test_the_reads_after_the_first_look_tell_how_long_one_takes(self):
        self.assertEqual(inf, self.look(3, 0.3))
        self.assertEqual(inf, self.look(3, 0.3))
        self.assertEqual(inf, self.look(10, 0.6))
        self.assertEqual(0, self.idle.seconds)
        self.assertAlmostEqual(0.05, self.look(11, 0.7))
        self.assertAlmostEqual(0.05, self.idle.seconds)

    def test_later_ones_are_told_from_those_before(self):
        self.look(1, 0.1)
        self.look(11, 0.6)
        self.assertAlmostEqual(0.2, self.look(13, 1.0))
        self.assertEqual(0, self.look(13, 1.0))
        self.assertAlmostEqual(0.05, self.idle.seconds)

    def test_a_vm_that_reads_late_is_hurt_as_one_that_reads_at_once(self):
        window = Window()
        for _ in range(100):
            self.assertEqual(0, self.look(0, 0))
            window.demand(0, self.idle.seconds)
            window.came()
        sizes = [window.size]
        for waited, seconds in ((2, 0.4), (6, 0.5), (12, 0.6), (12, 0.6), (13, 0.7)):
            window.demand(self.look(waited, seconds), self.idle.seconds)
            sizes.append(window.size)
            grown(window, 6)
        self.assertEqual([8, 1, 1, 1, 4, 2], sizes)


class CapTest(testtools.TestCase):
    def delay(self, cap, now, amount):
        """Take so many bytes; return how many seconds to wait for them."""
        return cap.delay(now, cap.take(now, amount))

    def delays(self, cap, now, *amounts):
        return [self.delay(cap, now, amount) for amount in amounts]

    def test_without_a_rate_nobody_waits(self):
        self.assertEqual([0, 0], self.delays(Cap(None), 1, 10**12, 10**12))

    def test_at_a_rate_of_nothing_all_wait(self):
        self.assertEqual([inf, inf], self.delays(Cap(0), 1, 1, 1))

    def test_a_tenth_of_a_second_passes_at_once(self):
        self.assertEqual([0, 0, 0.5], self.delays(Cap(1000), 5, 40, 60, 500))

    def test_tokens_come_with_time_up_to_the_burst(self):
        cap = Cap(1000)
        self.assertEqual(0.9, self.delay(cap, 0, 1000))
        self.assertEqual(0.5, self.delay(cap, 0.5, 100))
        self.assertEqual(0, self.delay(cap, 1.0625, 62.5))
        self.assertEqual(0.1, self.delay(cap, 100, 200))

    def test_what_waits_has_the_present_rate(self):
        cap = Cap(1000)
        first, second = cap.take(0, 1100), cap.take(0, 1000)
        self.assertEqual([1, 2], [cap.delay(0, first), cap.delay(0, second)])
        cap.change(0.5, 500)
        self.assertEqual([1, 3], [cap.delay(0.5, first), cap.delay(0.5, second)])
        cap.change(1, 0)
        self.assertEqual([inf, inf], [cap.delay(9, first), cap.delay(9, second)])
        cap.change(10, 250)
        self.assertEqual([1, 5], [cap.delay(10, first), cap.delay(10, second)])
        cap.change(11.5, None)
        self.assertEqual([0, 0], [cap.delay(11.5, first), cap.delay(11.5, second)])

    def test_a_rate_can_be_set_at_any_time(self):
        cap = Cap(None)
        self.assertEqual(0, self.delay(cap, 0.2, 10**9))
        cap.change(0.2, 1000)
        self.assertEqual([0, 1], self.delays(cap, 0.2, 100, 1000))

    @given(
        st.integers(1000, 10**6),
        st.lists(st.tuples(st.floats(0, 1), st.integers(1, 10**6)), min_size=1),
    )
    def test_never_more_than_the_rate_and_a_burst(self, rate, pieces):
        cap, now, total = Cap(rate), 0.0, 0
        for pause, amount in pieces:
            now += pause
            total += amount
            waits = self.delay(cap, now, amount)
            self.assertLessEqual(total, rate * (now + waits + 0.1) * 1.000001)

    @given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 10**6)), min_size=1))
    def test_never_more_than_the_rates_that_there_were_and_a_burst(self, rates):
        cap, now, most = Cap(0), 0.0, 0.1 * max(rate for _, rate in rates)
        ends = [cap.take(0, 10**5) for _ in range(20)]
        for span, rate in rates:
            cap.change(now, rate)
            now += span
            most += span * rate
            passed = [end for end in ends if not cap.delay(now, end)]
            self.assertLessEqual(max(passed, default=0), most * 1.000001)
