"""Records survive, and space is not promised twice."""

import os
from pathlib import Path
from unittest import mock

import fixtures
import testtools

from virtman.errors import InstanceExists, InstanceUnknown, NoSpace
from virtman.record import Records, store_size

MIB = 1024 * 1024


class RecordsTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.records = Records(self.folder, 1.0)
        self.records.prepare()

    def free(self, size):
        """Make the file system look as if it had this much space."""
        stat = mock.Mock(f_bavail=size, f_frsize=1)
        self.useFixture(fixtures.MockPatchObject(os, "statvfs", return_value=stat))

    def test_a_record_outlives_the_agent(self):
        made = self.records.add("vm1", "debian", 8 * MIB)
        self.assertEqual([made], Records(self.folder, 1.0).all())
        self.assertEqual(made, Records(self.folder, 1.0).get("vm1"))

    def test_a_store_is_empty_and_cannot_fill(self):
        made = self.records.add("vm1", "debian", 8 * MIB)
        self.assertEqual(0, os.stat(made.store).st_blocks)
        chunks = 8 * MIB // 8192
        self.assertGreater(os.stat(made.store).st_size, 8 * MIB + chunks * 16)

    def test_a_name_is_used_once(self):
        self.records.add("vm1", "debian", MIB)
        self.assertRaises(InstanceExists, self.records.add, "vm1", "other", MIB)
        self.assertEqual("debian", self.records.get("vm1").image)

    def test_space_is_not_promised_twice(self):
        self.free(store_size(8 * MIB) + store_size(8 * MIB) - 1)
        self.records.add("vm1", "debian", 8 * MIB)
        error = self.assertRaises(NoSpace, self.records.add, "vm2", "debian", 8 * MIB)
        self.assertIn("[store] overcommit", str(error))
        self.assertEqual(["vm1"], [one.vm for one in self.records.all()])
        self.assertEqual(["vm1.cow"], [file.name for file in (self.folder / "stores").iterdir()])

    def test_overcommit_promises_more(self):
        self.free(store_size(8 * MIB))
        records = Records(self.folder, 2.0)
        records.add("vm1", "debian", 8 * MIB)
        records.add("vm2", "debian", 8 * MIB)
        self.assertRaises(NoSpace, records.add, "vm3", "debian", 8 * MIB)

    def test_a_record_that_goes_while_all_are_read_is_left_out(self):
        made = self.records.add("vm1", "debian", MIB)
        (self.records.folder / "vm0.json").symlink_to("gone")
        self.assertEqual([made], self.records.all())

    def test_what_a_vm_wrote_goes_with_it(self):
        made = self.records.add("vm1", "debian", MIB)
        self.records.remove(made)
        self.assertRaises(InstanceUnknown, self.records.get, "vm1")
        self.assertFalse(Path(made.store).exists())
        self.records.remove(made)
