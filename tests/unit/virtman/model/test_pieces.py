"""Where pieces are, and which were wanted, as the page cache shows it."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.model import pieces
from virtman.model.sizes import HEADER, READ_AHEAD, REGION

PIECE = 64 * 1024
PAGES = PIECE // pieces.PAGE
AHEAD = 2 * READ_AHEAD // pieces.PAGE - 1


def held(total, *runs):
    """Return which of so many pages are held, by first and end of runs."""
    return bytes(any(begin <= page < end for begin, end in runs) for page in range(total))


class PiecesTest(testtools.TestCase):
    def test_regions_are_dealt_to_the_stripes_in_turn(self):
        at = (0, REGION - 1, REGION, 2 * REGION, 3 * REGION)
        self.assertEqual([0, 0, 1, 0, 1], [pieces.stripe(one, 2) for one in at])
        self.assertEqual({0}, {pieces.stripe(one, 1) for one in at})
        self.assertEqual(HEADER + 5, pieces.in_export(5))

    def wanted(self, *runs, piece=PIECE, ahead=READ_AHEAD):
        return list(pieces.wanted(held(8 * PAGES, *runs), piece, ahead))

    def test_what_lies_behind_each_other_is_one_part(self):
        found = pieces.parts((3, 4, 5, 8, 1, 0), 10, 87, 20)
        self.assertEqual([(30, 20), (50, 10), (80, 7), (10, 10), (0, 10)], found)
        self.assertEqual([0, 1, 3, 4, 5, 8], pieces.numbers(found, 10))

    def test_a_long_piece_is_several_parts(self):
        found = pieces.parts((1,), 50, 90, 20)
        self.assertEqual([(50, 20), (70, 20)], found)
        self.assertEqual([1], pieces.numbers(found, 50))

    @given(st.sets(st.integers(0, 40)), st.integers(1, 9), st.integers(1, 30))
    def test_parts_have_each_piece_once_and_nothing_else(self, taken, piece, longest):
        size = 40 * piece + 1
        found = pieces.parts(sorted(taken), piece, size, longest)
        read = [at for start, length in found for at in range(start, start + length)]
        self.assertEqual([at for at in range(size) if at // piece in taken], read)
        self.assertTrue(all(0 < length <= longest for _, length in found))
        self.assertEqual(sorted(taken), pieces.numbers(found, piece))

    def test_a_piece_that_was_read_is_wanted(self):
        self.assertEqual([2], self.wanted((2 * PAGES, 3 * PAGES)))
        self.assertEqual([0, 7], self.wanted((0, 1), (8 * PAGES - 1, 8 * PAGES)))

    def test_what_only_read_ahead_reaches_is_not(self):
        self.assertEqual([2], self.wanted((2 * PAGES, 3 * PAGES + AHEAD)))
        self.assertEqual([2, 3], self.wanted((2 * PAGES, 3 * PAGES + AHEAD + 1)))
        self.assertEqual([2], self.wanted((3 * PAGES - 1, 3 * PAGES + AHEAD)))

    def test_smaller_pieces_are_told_apart(self):
        self.assertEqual([3], self.wanted((3, 3 + AHEAD), piece=pieces.PAGE))

    def test_where_nothing_is_read_ahead_all_that_is_held_is_wanted(self):
        self.assertEqual([3, 4, 9], self.wanted((3, 5), (9, 10), piece=pieces.PAGE, ahead=0))

    @given(st.binary(max_size=200).map(lambda data: bytes(one & 1 for one in data)))
    def test_the_first_page_of_each_run_is_wanted_and_nothing_that_is_not_held(self, pages):
        found = list(pieces.wanted(pages, pieces.PAGE, READ_AHEAD))
        begins = [at for at in range(len(pages)) if pages[at] and not (at and pages[at - 1])]
        self.assertTrue(set(begins) <= set(found))
        self.assertTrue(all(pages[one] for one in found))
        self.assertEqual(sorted(set(found)), found)
