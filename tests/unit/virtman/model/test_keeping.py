"""What a node of a ring keeps in its cache."""

import math

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.model.keeping import kept

STRIPES = 16
OWNED = st.frozensets(st.integers(0, STRIPES - 1))


class TestKept(testtools.TestCase):
    @given(OWNED, st.floats(1.2, 100))
    def test_a_cache_with_room_for_the_image_keeps_all(self, owns, room):
        self.assertIsNone(kept(owns, STRIPES, room))

    def test_a_node_without_a_cache_passes_nothing_by(self):
        self.assertIsNone(kept(frozenset([1]), STRIPES, math.inf))

    @given(OWNED, st.floats(0, 1))
    def test_what_is_owned_is_kept_and_more_only_as_there_is_room(self, owns, room):
        found = kept(owns, STRIPES, room)
        self.assertLessEqual(owns, found)
        self.assertLessEqual(found, frozenset(range(STRIPES)))
        if found != owns:
            self.assertLessEqual(len(found) / STRIPES, room)

    def test_an_owner_that_changes_moves_no_other_stripe_out_of_a_full_cache(self):
        before = kept(frozenset([3, 9]), STRIPES, 0.25)
        after = kept(frozenset([3, 12]), STRIPES, 0.25)
        self.assertEqual(frozenset([0, 3, 9]), before)
        self.assertEqual(frozenset([0, 3, 12]), after)
