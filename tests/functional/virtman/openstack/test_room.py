"""What images may take: real files, on this machine's file system."""

import os
from pathlib import Path

import fixtures
import testtools

from virtman.openstack.room import NoRoom, Room

MIB = 1024**2
PLENTY = 1024**5


class RoomTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.place = Path(self.useFixture(fixtures.TempDir()).path)
        self.folder = self.place / "images"
        self.folder.mkdir()
        self.room = Room(self.folder, 10 * MIB)

    def write(self, image, size, length=None):
        """Have a file of so many bytes of data in an image's folder."""
        folder = self.folder / image
        folder.mkdir(exist_ok=True)
        with open(folder / "raw", "wb") as file:
            file.write(b"x" * size)
            file.truncate(length or size)
        return folder / "raw"

    def lack(self, image, size):
        return self.assertRaises(NoRoom, self.room.promise, image, size).lack

    def test_data_count_and_holes_do_not(self):
        self.write("one", 4 * MIB, PLENTY // 1024)
        self.assertEqual(4 * MIB, self.room.taken())
        self.room.promise("two", 6 * MIB)
        self.assertEqual(1, self.lack("two", 6 * MIB + 1))

    def test_what_is_promised_is_nobody_elses(self):
        self.room.promise("one", 6 * MIB)
        self.assertEqual(2 * MIB, self.lack("two", 6 * MIB))
        self.write("one", 3 * MIB)
        self.assertEqual(2 * MIB, self.lack("two", 6 * MIB))
        self.room.end("one")
        self.assertEqual(0, self.room.excess())
        self.room.promise("two", 6 * MIB)

    def test_a_promise_that_cannot_grow_stays(self):
        self.room.promise("one", 6 * MIB)
        self.assertEqual(MIB, self.lack("one", 11 * MIB))
        self.assertEqual(2 * MIB, self.lack("two", 6 * MIB))

    def test_files_that_glance_has_too_take_nothing(self):
        file = self.write("one", 4 * MIB)
        os.link(file, self.place / "glances")
        self.assertEqual(0, self.room.taken())
        (self.place / "glances").unlink()
        self.assertEqual(4 * MIB, self.room.taken())
        self.room.limit = MIB
        self.assertEqual(3 * MIB, self.room.excess())

    def test_a_file_system_may_have_less_than_the_limit(self):
        for limit in (None, 2 * PLENTY):
            self.room.limit = limit
            error = self.assertRaises(NoRoom, self.room.promise, "one", PLENTY)
            self.assertIn(f"are free in {self.folder}", str(error))
            self.assertGreater(PLENTY, error.lack)

    def test_other_files_in_the_folder_are_no_images(self):
        (self.folder / "notes").write_text("of an operator")
        self.assertEqual(0, self.room.taken())
