"""Tests of the images that benches make."""

import random
import tempfile
from pathlib import Path

import testtools

from bench.content import write_random

MIB = 1024 * 1024


class ContentTest(testtools.TestCase):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "image"

    def test_images_may_be_larger_than_what_a_generator_gives_at_once(self) -> None:
        write_random(self.file, 256 * MIB + 512)
        self.assertEqual(256 * MIB + 512, self.file.stat().st_size)

    def test_images_of_one_size_are_the_same_and_do_not_repeat_themselves(self) -> None:
        write_random(self.file, 2 * MIB + 512)
        content = self.file.read_bytes()
        self.assertEqual(random.Random(1).randbytes(2 * MIB + 512), content)
