"""What the kernel says that it holds of a file: a real one, as devices are the same to it."""

import os
import tempfile
from pathlib import Path

import testtools

from virtman.stack import page_cache

PAGE = page_cache.PAGE


class PageCacheTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        # not on tmpfs, which has nothing but its pages
        folder = tempfile.TemporaryDirectory(dir=Path(__file__).parent)
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "file")
        with open(self.file, "wb") as file:
            file.write(os.urandom(64 * PAGE))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def held(self, first=0, count=64):
        return list(page_cache.held(self.file, [(first * PAGE, count * PAGE)])[0])

    def test_only_what_is_fetched_is_held(self):
        self.assertEqual([0] * 64, self.held())
        page_cache.fetch(self.file, [(5 * PAGE, 2 * PAGE)])
        self.assertEqual([0] * 5 + [1, 1] + [0] * 57, self.held())
        self.assertEqual([1, 0], self.held(6, 2))

    def test_several_parts_are_fetched_and_looked_at_at_once(self):
        parts = [(40 * PAGE, PAGE), (5 * PAGE, 2 * PAGE), (9 * PAGE, PAGE)]
        page_cache.fetch(self.file, parts)
        self.assertEqual([bytes([1]), bytes([1, 1]), bytes([1])], page_cache.held(self.file, parts))
        self.assertEqual([5, 6, 9, 40], [page for page, one in enumerate(self.held()) if one])

    def test_what_cannot_be_looked_at_is_an_error(self):
        self.assertRaises(FileNotFoundError, page_cache.held, self.file + "x", [(0, PAGE)])
        self.assertRaises(OSError, page_cache.held, self.file, [(1, PAGE)])
