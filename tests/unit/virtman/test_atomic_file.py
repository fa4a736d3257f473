"""A file is there as a whole or as it was before, and on the disk once that is said."""

import os
import stat
from pathlib import Path

import fixtures
import testtools

from virtman import atomic_file


class AtomicFileTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.file = self.folder / "vm1.json"

    def test_what_is_written_is_there_for_its_owner_only(self):
        for content in (b"first, and longer", b"second"):
            atomic_file.write(self.file, content)
            self.assertEqual(content, self.file.read_bytes())
            self.assertEqual(0o600, stat.S_IMODE(self.file.stat().st_mode))
        self.assertEqual([self.file], list(self.folder.iterdir()))

    def test_the_file_is_on_the_disk_before_it_has_its_name_and_the_folder_after(self):
        synced = []

        def sync(descriptor):
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            synced.append((path, self.file.read_bytes()))

        atomic_file.write(self.file, b"old")
        with fixtures.MockPatch("os.fsync", sync):
            atomic_file.write(self.file, b"new")
        (part, before), (folder, after) = synced
        self.assertTrue(atomic_file.is_partial(part))
        self.assertEqual((b"old", self.folder, b"new"), (before, folder, after))

    def test_the_old_one_stays_if_the_new_one_cannot_be_written(self):
        atomic_file.write(self.file, b"old")
        with fixtures.MockPatch("os.fsync", side_effect=OSError("no space")):
            self.assertRaises(OSError, atomic_file.write, self.file, b"new")
        self.assertEqual(b"old", self.file.read_bytes())
        self.assertEqual([self.file], list(self.folder.iterdir()))

    def test_the_old_one_stays_if_what_is_done_meanwhile_fails(self):
        atomic_file.write(self.file, b"old")

        def fail():
            with atomic_file.replacing(self.file) as new:
                new.write(b"half")
                raise ValueError

        self.assertRaises(ValueError, fail)
        self.assertEqual(b"old", self.file.read_bytes())

    def test_what_is_written_by_name_begins_as_no_file(self):
        other = self.folder / "other"
        other.write_bytes(b"other")
        os.link(other, atomic_file.part_of(self.file))
        with atomic_file.making(self.file) as part:
            self.assertFalse(part.exists())
            part.write_bytes(b"new")
        self.assertEqual((b"new", b"other"), (self.file.read_bytes(), other.read_bytes()))

    def test_what_is_removed_is_removed_for_good_and_may_be_absent(self):
        atomic_file.write(self.file, b"old")
        synced = []
        with fixtures.MockPatchObject(atomic_file, "_sync", synced.append):
            for _ in range(2):
                atomic_file.remove(self.file)
        self.assertFalse(self.file.exists())
        self.assertEqual([self.folder, self.folder], synced)

    def test_what_was_half_written_tells_whose_it_is(self):
        with atomic_file.replacing(self.file):
            (part,) = self.folder.iterdir()
        self.assertEqual("vm1.json", atomic_file.final_name(part.name))
        self.assertEqual("vm1.json", atomic_file.final_name("vm1.json"))

    def test_names_that_end_like_a_half_written_file_are_no_such_file(self):
        one, other = self.folder / "a", self.folder / "a.part"
        atomic_file.write(other, b"other")
        atomic_file.write(one, b"one")
        self.assertEqual((b"one", b"other"), (one.read_bytes(), other.read_bytes()))
        self.assertFalse(atomic_file.is_partial(other))

    def test_a_folder_is_made_and_rid_of_what_writers_that_died_left(self):
        folder = self.folder / "state" / "stores"
        atomic_file.prepare(folder)
        self.assertEqual(0o700, stat.S_IMODE(folder.stat().st_mode))
        kept = [folder / name for name in ("a.json", "a.part", ".hidden")]
        for file in (*kept, folder / ".a.json.part"):
            file.touch()
        atomic_file.prepare(folder)
        self.assertEqual(sorted(kept), sorted(folder.iterdir()))
