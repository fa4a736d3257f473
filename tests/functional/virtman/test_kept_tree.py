"""Trees of files: real files, with holes."""

import os
from io import BytesIO
from pathlib import Path
from random import Random

import fixtures
import testtools

from virtman import sparse
from virtman.kept_tree import KeptTree
from virtman.model import hashtree

MIB = 1024**2


class KeptTreeTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.place = Path(self.useFixture(fixtures.TempDir()).path)
        self.kept = KeptTree(self.place / "tree")
        self.file = self.place / "image"
        self.holes = [(0, MIB), (3 * MIB, MIB), (6 * MIB, 2 * MIB)]
        self.write(1)
        self.read = 0

    def write(self, seed):
        with open(self.file, "wb") as file:
            file.truncate(8 * MIB)
            for start, length in ((MIB, 2 * MIB), (4 * MIB, 2 * MIB)):
                file.seek(start)
                file.write(Random(seed).randbytes(length))

    def hashes(self, size=8 * MIB):
        def progress(done, of):
            self.assertEqual(size, of)
            self.read += done

        return self.kept.of(str(self.file), size, progress)

    def expected(self):
        leaves = BytesIO()
        builder = hashtree.Builder(hashtree.SALT, leaves)
        builder.add(self.file.read_bytes())
        return builder.end(), leaves.getvalue()

    def test_a_file_with_holes_is_hashed_as_one_without(self):
        found = self.hashes()
        self.assertEqual((found, self.kept.leaves.read_bytes()), self.expected())
        self.assertEqual(8 * MIB, self.read)

    def test_holes_are_not_read(self):
        with open(self.file, "rb") as file:
            at, holes = MIB // 2, []
            runs = sparse.runs(file.fileno(), at, 7 * MIB)
            for piece in sparse.pieces(file.fileno(), runs, at, 7 * MIB):
                if isinstance(piece, int):
                    holes.append((at, piece))
                at += piece if isinstance(piece, int) else len(piece)
        self.assertEqual(7 * MIB, at)
        half = MIB // 2
        self.assertEqual([(half, half), (3 * MIB, MIB), (6 * MIB, MIB)], holes)

    def test_what_cannot_tell_its_holes_is_read(self):
        """As a block device, whose lseek does not know the question."""
        known = os.lseek

        def unknown(descriptor, at, whence):
            if whence in (os.SEEK_DATA, os.SEEK_HOLE):
                raise OSError(22, "Invalid argument")
            return known(descriptor, at, whence)

        with fixtures.MockPatch("os.lseek", unknown), open(self.file, "rb") as file:
            runs = list(sparse.runs(file.fileno(), 0, 9 * MIB))
            self.assertEqual([(0, 9 * MIB)], runs)
            found = b"".join(sparse.pieces(file.fileno(), [(0, 8 * MIB)], 0, 8 * MIB))
            short = sparse.pieces(file.fileno(), runs, 0, 9 * MIB)
            self.assertRaises(EOFError, list, short)
        self.assertEqual(self.file.read_bytes(), found)

    def test_a_file_that_is_as_it_was_is_not_read_again(self):
        found, self.read = self.hashes(), 0
        self.assertEqual((found, 0), (self.hashes(), self.read))
        self.write(2)
        self.assertNotEqual(found, self.hashes())
        self.assertEqual(self.expected()[0], self.hashes())

    def test_a_file_that_ends_early_is_an_error_and_leaves_nothing(self):
        for size in (8 * MIB + 1, 20 * MIB):
            self.assertRaises(EOFError, self.hashes, size)
        self.assertEqual([], list((self.place / "tree").iterdir()))

    def test_a_file_that_changes_meanwhile_is_not_kept(self):
        def change(done, of):
            os.utime(self.file, ns=(self.read, self.read))
            self.read += 1

        for _ in range(2):
            self.read, before = 1, self.read
            self.kept.of(str(self.file), 8 * MIB, change)
            self.assertGreater(self.read, 1, before)

    def test_what_is_known_by_a_name_is_kept_under_it(self):
        """As a device, which does not tell whether it is what it was."""
        self.kept = KeptTree(self.place / "tree", ["cluster", "image@snapshot"])
        found, self.read = self.hashes(), 0
        os.utime(self.file, ns=(1, 1))
        self.assertEqual((found, 0), (self.hashes(), self.read))
        self.kept = KeptTree(self.place / "tree", ["cluster", "image@other"])
        self.assertEqual((found, 8 * MIB), (self.hashes(), self.read))

    def test_leaves_without_a_note_or_with_that_of_others_are_made_again(self):
        found = self.hashes()
        (self.place / "tree" / "tree").unlink()
        self.read = 0
        self.assertEqual((found, 8 * MIB), (self.hashes(), self.read))
        self.kept.leaves.unlink()
        self.assertEqual(found, self.hashes())
        self.assertEqual(self.expected()[1], self.kept.leaves.read_bytes())
