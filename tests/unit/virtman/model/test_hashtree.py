"""A tree is that of dm-verity, and tells right blocks from wrong ones."""

from hashlib import sha256
from io import BytesIO

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.model import hashtree
from virtman.model.hashtree import BLOCK, HashTree

SALT = "5a" * 32


def build(*pieces):
    """Return tree, upper levels and leaves of pieces: bytes, or how many zeros."""
    leaves = BytesIO()
    builder = hashtree.Builder(SALT, leaves)
    for piece in pieces:
        (builder.add_zeros if isinstance(piece, int) else builder.add)(piece)
    return *builder.end(), leaves.getvalue()


class HashTreeTest(testtools.TestCase):
    def test_a_tree_is_that_of_veritysetup(self):
        # veritysetup format --no-superblock --salt 5a5a... of 2 MiB of these blocks
        content = b"".join(number.to_bytes(4, "big") * 1024 for number in range(512))
        tree, upper, leaves = build(content)
        self.assertEqual(ROOT, tree.root)
        self.assertEqual((BLOCK, 4 * BLOCK), (len(upper), len(leaves)))

    def test_wrong_blocks_of_image_and_leaves_are_found(self):
        content = b"".join(number.to_bytes(4, "big") * 1024 for number in range(512))
        tree, upper, leaves = build(content)
        lowest = hashtree.lowest(upper, len(content))
        self.assertEqual([], hashtree.wrong(leaves, lowest, tree.salt))
        self.assertEqual([], hashtree.wrong(content, leaves, tree.salt))
        rotten = bytearray(content)
        rotten[5 * BLOCK + 7] ^= 1
        self.assertEqual([5], hashtree.wrong(rotten, leaves, tree.salt))
        self.assertEqual([3], hashtree.wrong(leaves[:-1] + b"x", lowest, tree.salt))

    @given(st.integers(1, 20_000_000))
    def test_each_block_of_a_level_stands_for_128_below(self, size):
        below = -(-size // BLOCK)
        for count in hashtree.levels(size):
            self.assertEqual(-(-below // 128), count)
            below = count
        self.assertEqual(1, below)

    def test_the_last_block_is_hashed_with_its_padding(self):
        content = bytes(range(256)) * 4096 + b"end"
        self.assertEqual(build(content), build(content + bytes(-len(content) % BLOCK)))

    @given(st.lists(st.one_of(st.binary(max_size=3 * BLOCK), st.integers(0, 200 * BLOCK))))
    def test_it_does_not_matter_in_which_pieces_an_image_comes(self, pieces):
        whole = b"".join(bytes(one) if isinstance(one, int) else one for one in pieces)
        self.assertEqual(build(whole), build(*pieces))

    def test_long_runs_of_zeros_need_not_be_there(self):
        size = (128 * 128 + 1) * BLOCK
        self.assertEqual(build(b"x" * 5000 + bytes(size)), build(b"x" * 5000, size))

    @given(st.integers(0, 2), st.integers(0, BLOCK - 1))
    def test_one_wrong_bit_above_the_leaves_is_found(self, block, byte):
        tree, upper, size = LARGE
        self.assertTrue(hashtree.fits(upper, size, tree))
        wrong = bytearray(upper)
        wrong[block * BLOCK + byte] ^= 1
        self.assertFalse(hashtree.fits(bytes(wrong), size, tree))

    def test_hashes_of_another_image_do_not_fit(self):
        tree, upper, size = LARGE
        self.assertFalse(hashtree.fits(upper[BLOCK:], size, tree))
        self.assertFalse(hashtree.fits(upper, size // 2, tree))
        self.assertFalse(hashtree.fits(upper, size, HashTree("00" * 32, SALT)))

    def test_short_images_have_no_tree(self):
        self.assertFalse(hashtree.has_tree(128 * BLOCK))
        self.assertTrue(hashtree.has_tree(128 * BLOCK + 1))

    def test_wrong_blocks_are_told_by_their_digests(self):
        right = b"".join(sha256(bytes([one])).digest() for one in range(8))
        wrong = right[:64] + bytes(32) + right[96:]
        self.assertEqual([2], hashtree.wrong_blocks(wrong, right))
        self.assertEqual([], hashtree.wrong_blocks(right[:96], right))


def _large():
    """A tree of three levels, as over 64 MiB and a bit; all leaves are the same block."""
    size = (128 * 128 + 1) * BLOCK
    tree, upper, _ = build(bytes(size))
    return tree, upper, size


LARGE = _large()
ROOT = "1ab75a6aecb7a9a3abd754a72c581a848e8eb503af6e257b9437c90cac8172dd"
