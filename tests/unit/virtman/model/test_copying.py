"""What a copy consists of is told by the image's size, and what is stored by its leaves."""

import itertools

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.model import copying, hashtree
from virtman.model.copying import PIECE, Held, Layout
from virtman.model.hashtree import BLOCK, DIGEST
from virtman.model.sizes import REGION

SALT = "5a" * 32
ZEROS = hashtree.digest_of_zeros(SALT)
DATA = b"d" * DIGEST
GIB = 2**30

sizes = st.integers(1025, 2**26).map(lambda sectors: sectors * 512)


class LayoutTest(testtools.TestCase):
    @given(sizes)
    def test_pieces_cover_the_image_and_the_leaves_and_nothing_twice(self, size):
        layout = Layout.of(size)
        last = layout.first_of_leaves - 1
        self.assertEqual(layout.image, sum(layout.part(last)))
        self.assertEqual(layout.length, sum(layout.part(layout.count - 1)))
        self.assertEqual(layout.leaves_at, layout.first_of_leaves * PIECE)
        self.assertLess(layout.leaves_at - layout.image, PIECE)

    @given(st.integers(1025, 2**14).map(lambda sectors: sectors * 512), st.integers(1, 4))
    def test_each_piece_is_in_one_stripe(self, size, stripes):
        layout = Layout.of(size)
        found = [list(layout.of_stripe(one, stripes)) for one in range(stripes)]
        self.assertEqual(list(range(layout.first_of_leaves)), sorted(itertools.chain(*found)))
        for stripe, numbers in enumerate(found):
            self.assertTrue(all(one * PIECE // REGION % stripes == stripe for one in numbers))

    @given(sizes)
    def test_the_digests_of_all_pieces_lie_behind_each_other_in_the_leaves(self, size):
        layout = Layout.of(size)
        end = layout.leaves_at
        for number in (0, 1, layout.first_of_leaves - 1):
            at, length = layout.digests(number)
            self.assertEqual(end + number * PIECE // BLOCK * DIGEST, at)
            self.assertLessEqual(at + length, layout.length)


class HeldTest(testtools.TestCase):
    @given(st.sets(st.integers(0, 99)), st.sets(st.integers(0, 99)))
    def test_what_is_there_is_known_after_a_restart(self, added, dropped):
        held = Held(100)
        held.add(added)
        held.drop(dropped)
        again = Held(100, held.encoded())
        self.assertEqual(added - dropped, {one for one in range(100) if one in again})
        self.assertEqual(len(added - dropped), again.count())

    @given(sizes, st.integers(1, 4), st.data())
    def test_a_stripe_is_complete_once_all_its_pieces_are_there(self, size, stripes, data):
        layout = Layout.of(size)
        held = Held(layout.count)
        held.add(range(layout.count))
        self.assertEqual(tuple(range(stripes)), copying.complete(layout, held, stripes))
        lacking = data.draw(st.integers(0, layout.first_of_leaves - 1))
        held.drop([lacking])
        broken = lacking * PIECE // REGION % stripes
        rest = tuple(one for one in range(stripes) if one != broken)
        self.assertEqual(rest, copying.complete(layout, held, stripes))

    def test_digests_of_large_images_come_in_small_parts(self):
        for size in (GIB, 40 * GIB, 300 * GIB + BLOCK):
            layout = Layout.of(size)
            parts = list(layout.all_digests())
            self.assertLessEqual(max(length for _, length in parts), 1024 * 1024)
            self.assertEqual(layout.leaves_at, parts[0][0])
            for before, after in itertools.pairwise(parts):
                self.assertEqual(sum(before), after[0])
            self.assertEqual(layout.image // BLOCK * DIGEST, sum(length for _, length in parts))

    def test_what_was_cut_is_not_there(self):
        held = Held(100)
        held.add(range(100))
        self.assertEqual(16, Held(100, held.encoded()[:2]).count())


class ZerosTest(testtools.TestCase):
    @given(st.lists(st.booleans(), max_size=40))
    def test_runs_are_all_blocks_but_zeros(self, kinds):
        digests = b"".join(DATA if one else ZEROS for one in kinds)
        found = copying.runs(digests, ZEROS)
        blocks = [
            at // BLOCK for start, length in found for at in range(start, start + length, BLOCK)
        ]
        self.assertEqual([at for at, one in enumerate(kinds) if one], blocks)
        parts = [digests[at : at + 3 * DIGEST] for at in range(0, len(digests), 3 * DIGEST)]
        self.assertEqual(sum(kinds) * BLOCK, copying.stored(parts, ZEROS))
        for (start, length), (after, _) in itertools.pairwise(found):
            self.assertLess(start + length, after)
