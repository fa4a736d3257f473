"""Which extents of the SSD group are free."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.stack.cache.slices import UNIT, gaps


class GapsTest(testtools.TestCase):
    @given(st.lists(st.integers(1, 4), max_size=8), st.data())
    def test_gaps_and_what_is_taken_make_up_the_whole(self, lengths, data):
        taken, start = [], 0
        for length in lengths:
            start += UNIT * data.draw(st.integers(0, 3))
            taken.append((start, start + UNIT * length))
            start += UNIT * length
        end = start + UNIT * data.draw(st.integers(0, 3)) + data.draw(st.integers(0, UNIT - 1))
        found = gaps(data.draw(st.permutations(taken)), end)
        pieces = sorted(taken + found)
        self.assertEqual([one[1] for one in pieces[:-1]], [one[0] for one in pieces[1:]])
        if pieces:
            self.assertEqual((0, end - end % UNIT), (pieces[0][0], pieces[-1][1]))
        for first, behind in found:
            self.assertLess(first, behind)
            self.assertEqual((0, 0), (first % UNIT, behind % UNIT))
