"""What is recorded of a program is what it read of the disk, and when."""

import os
import random
import subprocess
import tempfile
import unittest
from pathlib import Path

import testtools

from bench import recording

SIZES = {"first": 1 << 20, "second": 3 << 19, "third": 1 << 20}
READ = """
mount --make-rprivate /
mount -t ext4 -o ro "$2" "$1"
cat "$1/first" > /dev/null
sleep 1.5
cat "$1/second" > /dev/null
"""


@unittest.skipIf(os.geteuid(), "a loop device needs root")
class RecordingTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree, self.disk = Path(folder.name, "tree"), Path(folder.name, "disk.img")
        self.tree.mkdir()
        dice = random.Random(1)
        self.data = {name: dice.randbytes(size) for name, size in SIZES.items()}
        for name, data in self.data.items():
            (self.tree / name).write_bytes(data)
        words = ["mke2fs", "-q", "-t", "ext4"]
        subprocess.run([*words, "-d", self.tree, self.disk, "16M"], check=True)

    def watch(self, text):
        words = ["unshare", "--mount", "sh", "-ec", text, "sh", self.tree]
        return recording.watch(self.disk, words)

    def pieces(self, name):
        """Return all pieces that have something of a file."""
        disk, data = self.disk.read_bytes(), self.data[name]
        blocks = {data[at : at + 4096] for at in range(0, len(data), 4096)}
        places = range(0, len(disk), 4096)
        return {at // recording.PIECE for at in places if disk[at : at + 4096] in blocks}

    def test_pieces_are_those_that_were_read_when_they_were(self):
        run = self.watch(READ)
        first, second, third = map(self.pieces, SIZES)
        self.assertTrue(first | second <= set(run))
        self.assertFalse((third - first - second) & set(run))
        early = max(run[piece] for piece in first)
        late = min(run[piece] for piece in second - first)
        self.assertTrue(late - early > 1.0, (early, late))

    def test_nothing_is_left(self):
        self.watch(READ)
        self.assertEqual(set(SIZES), {file.name for file in self.tree.iterdir()} - {"lost+found"})
        backing = [file.read_text() for file in Path("/sys/block").glob("loop*/loop/backing_file")]
        self.assertFalse([one for one in backing if str(self.disk) in one])

    def test_a_program_that_fails_is_told(self):
        failed = self.assertRaises(recording.RunFailed, self.watch, "echo no such page >&2; exit 3")
        self.assertIn("no such page", str(failed))
