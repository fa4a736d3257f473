"""A basis says where an image's blocks are in others, and nothing broken passes for one."""

import random
import zlib
from hashlib import sha256
from io import BytesIO
from itertools import chain

import testtools
from hypothesis import example, given
from hypothesis import strategies as st

from virtman.errors import BasisInvalid
from virtman.model.basis import (
    Basis,
    Other,
    Piece,
    Run,
    compare,
    decode,
    encode,
    pieces,
    sample,
)
from virtman.model.hashtree import BLOCK, SALT, Builder

ROOT, OLD, OLDER = "0f" * 32, "e1" * 32, "77" * 32
OTHERS = (Other("v1", OLD), Other("v0", OLDER))
ZEROS = 0
contents = st.lists(st.integers(0, 9), min_size=1, max_size=400)
parts = st.one_of(
    st.lists(st.integers(0, 9), max_size=9), st.integers(3, 12).map(lambda n: [0] * n)
)
with_zeros = st.lists(parts, min_size=1, max_size=30).map(lambda found: [1, *chain(*found)])


def leaves(content):
    """Leaves of an image of blocks that are all one byte; those of byte 0 are zeros."""
    into = BytesIO()
    builder = Builder(SALT, into)
    for number in content:
        builder.add(bytes([number]) * BLOCK)
    builder.end()
    return into.getvalue()


def compared(new, *others, **limit):
    told = [(leaves(one), len(one)) for one in others]
    return compare(leaves(new), len(new), told, **limit)


def packed(runs, others=OTHERS, shared=None, root=ROOT):
    """Return a basis with a right checksum, whatever its runs are."""
    blocks = sum(run[3] for run in runs) if shared is None else shared
    body = bytes.fromhex(root) + blocks.to_bytes(8, "little") + bytes([len(others)])
    for one in others:
        body += one.name.encode().ljust(48, b"\0") + bytes.fromhex(one.root)
    words = b"".join(number.to_bytes(4, "little") for run in runs for number in run)
    return sealed(body + zlib.compress(words))


def sealed(body, version=1):
    return b"VMBS" + bytes([version]) + sha256(body).digest() + body


class CompareTest(testtools.TestCase):
    @given(with_zeros, with_zeros, with_zeros)
    def test_each_run_has_the_same_blocks_in_both(self, new, old, older):
        others, end = (old, older), 0
        for run in compared(new, old, older):
            self.assertLessEqual(end, run.start)
            end = run.end
            there = others[run.other][run.at : run.at + run.count]
            self.assertEqual(new[run.start : run.end], there)

    @given(with_zeros, with_zeros, with_zeros)
    def test_no_block_is_left_out_but_zeros(self, new, old, older):
        runs = compared(new, old, older)
        covered = {block for run in runs for block in range(run.start, run.end)}
        had = {*old, *older} - {ZEROS}
        left = [new[block] for block in range(len(new)) if block not in covered]
        self.assertEqual([], [content for content in left if content in had])

    @given(contents)
    @example([0, 0, 0, 0, 1])
    def test_an_image_is_one_run_of_itself(self, content):
        self.assertEqual((Run(0, 0, 0, len(content)),), compared(content, content))

    @given(contents, contents, st.integers(1, 5))
    def test_the_longest_runs_are_kept(self, new, old, limit):
        every, kept = compared(new, old), compared(new, old, limit=limit)
        self.assertEqual(min(limit, len(every)), len(kept))
        shortest = min((run.count for run in kept), default=0)
        self.assertLessEqual(
            max((run.count for run in every if run not in kept), default=0), shortest
        )

    def test_what_was_moved_is_one_run(self):
        old = [1, 2, 3, 4, 5, 6, 7, 8]
        self.assertEqual((Run(0, 0, 3, 5), Run(0, 6, 0, 3)), compared([4, 5, 6, 7, 8, 9, 1, 2, 3],
                                                                      old))  # fmt: skip

    def test_a_shorter_and_a_longer_one_do(self):
        self.assertEqual((Run(0, 0, 0, 2),), compared([1, 2, 3], [1, 2]))
        self.assertEqual((Run(0, 0, 0, 2),), compared([1, 2], [1, 2, 3]))

    def test_what_is_in_the_first_is_not_taken_from_the_second(self):
        runs = compared([1, 2, 3, 4], [1, 2, 9, 9], [1, 2, 3, 4])
        self.assertEqual((Run(0, 0, 0, 2), Run(1, 2, 2, 2)), runs)

    def test_zeros_alone_are_not_looked_for(self):
        self.assertEqual((), compared([9, 0, 0, 9], [0, 1, 1]))
        self.assertEqual((Run(0, 1, 0, 3),), compared([9, 1, 0, 1], [1, 0, 1]))

    def test_zeros_behind_what_another_lacks_are_read_from_one_place(self):
        some, most = [0] * 4, [0] * 6
        old = [1, *some, 2, *most, 3, *some, 4]
        self.assertEqual((Run(0, 0, 0, len(old)),), compared(old, old))
        new = [9, *some, 2, *most, 9, *some, *some, 9, 0, 0]
        expected = (Run(0, 1, 6, 4), Run(0, 5, 5, 7), Run(0, 13, 6, 6), Run(0, 19, 6, 2))
        self.assertEqual(expected, compared(new, old))
        self.assertEqual((Run(0, 1, 1, 11), Run(0, 13, 13, 4)), compared(new, old, limit=3))

    def test_a_few_zeros_stay_among_their_neighbours(self):
        self.assertEqual((Run(0, 1, 1, 3), Run(0, 5, 0, 1)), compared([9, 0, 0, 0, 0, 1],
                                                                      [1, 0, 0, 0, 1]))  # fmt: skip


class SampleTest(testtools.TestCase):
    @given(contents)
    def test_of_few_blocks_it_is_all_but_zeros(self, content):
        blocks = leaves(content)
        found = {blocks[at * 32 : at * 32 + 32] for at, number in enumerate(content) if number}
        self.assertEqual(found, sample(blocks, len(content)))

    def test_of_many_it_is_a_part_that_the_content_alone_chooses(self):
        dice = random.Random(1)
        digests = [dice.randbytes(32) for _ in range(40_000)]
        one = sample(b"".join(digests), len(digests))
        other = sample(b"".join(reversed(digests[:20_000])), 20_000)
        self.assertLess(abs(len(one) - 40_000 / 64), 150)
        self.assertTrue(other < one)


def runs_of(draw_from):
    """Turn pairs of gap and length into runs that lie behind each other."""
    found, end = [], 0
    for gap, count, other, at in draw_from:
        found.append(Run(other, end + gap, at, count))
        end += gap + count
    return tuple(found)


gaps = st.tuples(st.integers(0, 9), st.integers(1, 50), st.integers(0, 1), st.integers(0, 1 << 31))
bases = st.lists(gaps, max_size=30).map(lambda them: Basis(ROOT, OTHERS, runs_of(them)))


class EncodingTest(testtools.TestCase):
    @given(bases)
    def test_it_survives_its_bytes(self, basis):
        self.assertEqual(basis, decode(encode(basis), 10_000))

    @given(bases, st.data())
    def test_a_bit_that_changed_is_noticed(self, basis, data):
        content = bytearray(encode(basis))
        bit = data.draw(st.integers(0, len(content) * 8 - 1))
        content[bit // 8] ^= 1 << bit % 8
        self.assertRaises(BasisInvalid, decode, bytes(content), 10_000)

    @given(bases, st.integers(0, 300))
    def test_one_that_was_cut_is_none(self, basis, length):
        content = encode(basis)
        self.assertRaises(BasisInvalid, decode, content[: min(length, len(content) - 1)], 10_000)

    def assert_none(self, content, why):
        error = self.assertRaises(BasisInvalid, decode, content, 100)
        self.assertIn(why, str(error))

    def test_what_is_wrong_is_said(self):
        fine = packed([(0, 0, 5, 10)])
        self.assertEqual(10 * BLOCK, decode(fine, 100).shared)
        for content, why in (
            (b"", "begin"),
            (sealed(fine[37:], version=2), "version"),
            (packed([(0, 95, 0, 6)]), "outside the image"),
            (packed([(0, 0, 0, 5), (0, 4, 9, 5)]), "overlap"),
            (packed([(2, 0, 0, 5)]), "no image"),
            (packed([(0, 0, 0, 0)]), "no image"),
            (packed([(0, 0, 0, 5)], shared=6), "not as long"),
            (packed([], others=()), "names 0"),
            (packed([], others=(OTHERS[0],) * 2), "twice"),
            (packed([], others=(Other("No_Name", OLD),)), "No_Name"),
            (packed([(0, 0, 0, 1)] * 10_001), "more than 10000 runs"),
            (sealed(fine[37:-3]), "do not end"),
            (sealed(fine[37:] + b"x"), "do not end"),
        ):
            self.assert_none(content, why)

    def test_it_says_how_long_the_others_must_be(self):
        basis = Basis(ROOT, OTHERS, (Run(0, 0, 7, 3), Run(0, 3, 0, 2)))
        self.assertEqual({"v1": 10 * BLOCK, "v0": 0}, basis.reach())


class PiecesTest(testtools.TestCase):
    @given(bases, st.sets(st.sampled_from(["v1", "v0"])))
    def test_they_are_the_whole_image_in_order(self, basis, lenders):
        end = 0
        for piece in pieces(basis, lenders, 3_000):
            self.assertEqual(end, piece.start)
            self.assertGreater(piece.count, 0)
            self.assertIn(piece.other, lenders | {""})
            if not piece.other:
                self.assertEqual(piece.start, piece.at)
            end += piece.count
        self.assertEqual(3_000, end)

    def test_what_nobody_lends_is_one_piece(self):
        basis = Basis(ROOT, OTHERS, (Run(0, 2, 7, 3), Run(1, 5, 0, 2), Run(0, 8, 0, 1)))
        self.assertEqual([Piece(0, 10, "", 0)], pieces(basis, (), 10))
        self.assertEqual(
            [Piece(0, 5, "", 0), Piece(5, 2, "v0", 0), Piece(7, 3, "", 7)],
            pieces(basis, ["v0"], 10),
        )
