"""When pieces come over a line."""

from itertools import pairwise

import testtools
from hypothesis import given
from hypothesis import strategies as st

from planning.replay.line import Line
from virtman.model.buffering import Connection


class LineTest(testtools.TestCase):
    def line(self):
        """Return one on which a piece takes a second, and a round trip as long."""
        return Line(100, Connection(rate=100, round_trip_s=1.0))

    def test_a_piece_takes_a_round_trip_and_its_bytes(self):
        line = self.line()
        self.assertIsNone(line.when(7, 5.0))
        self.assertEqual(7.0, line.fetch(7, 5.0))
        self.assertEqual(7.0, line.when(7, 5.0))
        self.assertEqual(1, line.sent(5.0))

    def test_pieces_ahead_come_one_behind_the_other(self):
        line = self.line()
        line.push([1, 2, 3], 0.0)
        self.assertEqual([2.0, 3.0, 4.0], [line.when(piece, 9.0) for piece in (1, 2, 3)])

    def test_what_a_vm_waits_for_goes_first_but_calls_nothing_back(self):
        line = self.line()
        line.push([1, 2, 3], 0.0)
        # heard at 1.5, when 2 is just to be sent; 1 is under way, and comes at 2
        self.assertEqual(3.0, line.fetch(9, 1.0))
        self.assertEqual([2.0, 4.0, 5.0], [line.when(piece, 9.0) for piece in (1, 2, 3)])

    def test_what_is_asked_for_anew_goes_before_what_waits(self):
        line = self.line()
        line.push([1, 2, 3], 0.0)
        line.push([3, 4], 1.0)
        self.assertEqual([2, 4], line.lacking([1, 3, 2, 4], 1.5))
        self.assertEqual([3.0, 4.0, 5.0], [line.when(piece, 9.0) for piece in (3, 4, 2)])

    def test_what_is_there_is_not_sent_again(self):
        line = self.line()
        line.fetch(1, 0.0)
        line.push([1, 2], 3.0)
        self.assertEqual(5.0, line.when(2, 9.0))
        self.assertEqual(2, line.sent(9.0))

    def test_a_line_that_was_idle_begins_when_it_hears(self):
        line = self.line()
        line.fetch(1, 0.0)
        self.assertEqual(12.0, line.fetch(2, 10.0))

    @given(
        st.lists(
            st.tuples(
                st.integers(0, 20).map(lambda n: n / 4),
                st.booleans(),
                st.lists(st.integers(0, 9), min_size=1),
            ),
            max_size=8,
        )
    )
    def test_no_piece_comes_twice_nor_two_at_once(self, asked):
        line, now, wanted = self.line(), 0.0, set()
        for pause, waits, pieces in asked:
            now += pause
            wanted |= set(pieces)
            if waits and line.when(pieces[0], now) is None:
                there = line.fetch(pieces[0], now)
                self.assertTrue(now + 2.0 <= there + 1e-9 <= now + 3.0 + 2e-9)
                now = there
            line.push(pieces, now)
        times = sorted(line.when(piece, 1e6) for piece in wanted)
        self.assertEqual(len(wanted), line.sent(1e6))
        self.assertTrue(all(b - a >= 1 - 1e-9 for a, b in pairwise(times)))
