"""Space is not promised twice."""

import math
import os
from pathlib import Path
from unittest import mock

import fixtures
import testtools

from virtman.disk.capacity import Limits, Space
from virtman.disk.records import Records
from virtman.disk.volumes import full_size
from virtman.disk.volumes.file import Folder, StoreFile
from virtman.errors import NoSpace
from virtman.model.chain import Instance, Snapshot

MIB = 1024 * 1024
FULL = full_size(8 * MIB)


class SpaceTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.records = Records(Path(self.useFixture(fixtures.TempDir()).path))
        self.records.prepare()
        self.backing = Folder(self.records.stores)

    def free(self, size):
        """Make the file system look as if it had this much space."""
        stat = mock.Mock(f_bavail=size, f_frsize=1)
        self.useFixture(fixtures.MockPatchObject(os, "statvfs", return_value=stat))

    def vm(self, name, lower="", quota=0):
        store = self.records.add_store("debian", 8 * MIB, lower, self.backing.path)
        StoreFile(store.path).make(FULL)
        self.records.put(Instance(name, "debian", 8 * MIB, store.name, quota))
        return store

    def test_a_store_is_empty_and_cannot_fill(self):
        store = StoreFile(self.vm("vm1").path)
        self.assertEqual(0, store.allocated())
        chunks = 8 * MIB // 65536
        self.assertGreater(os.stat(store.path).st_size, 8 * MIB + chunks * 16)

    def test_what_others_were_promised_of_the_same_file_system_is_not_promised_again(self):
        self.free(2 * FULL)
        space = Space(self.records, self.backing, Limits(reserve=MIB))
        folder = self.records.stores
        self.assertEqual(2 * FULL - 2 * MIB, space.spare(folder))
        space.claims = lambda: [(folder, FULL + 1)]
        self.assertEqual(FULL - 1, space.spare(folder))
        self.assertRaises(NoSpace, space.check, 8 * MIB)
        self.assertEqual(2 * MIB, space.reserved(folder))

    def test_space_is_not_promised_twice(self):
        self.free(2 * FULL - 1)
        space = Space(self.records, self.backing, Limits())
        space.check(8 * MIB)
        self.vm("vm1")
        error = self.assertRaises(NoSpace, space.check, 8 * MIB)
        self.assertIn("[store] overcommit", str(error))

    def test_room_is_what_is_free_and_what_is_promised_of_it(self):
        self.free(4 * FULL)
        self.vm("vm1")
        room = Space(self.records, self.backing, Limits(1.5)).room()
        self.assertEqual((6 * FULL, FULL), (room.free, room.promised))

    def test_overcommit_promises_more(self):
        self.free(FULL)
        space = Space(self.records, self.backing, Limits(2.0))
        self.vm("vm1")
        space.check(8 * MIB)
        self.vm("vm2")
        self.assertRaises(NoSpace, space.check, 8 * MIB)

    def test_a_quota_promises_less(self):
        self.free(FULL + MIB)
        space = Space(self.records, self.backing, Limits())
        self.vm("vm1", quota=MIB)
        space.check(8 * MIB)

    def test_a_store_that_will_take_no_more_needs_no_space(self):
        self.free(2 * FULL - 1)
        space = Space(self.records, self.backing, Limits())
        store = self.vm("vm1")
        self.assertRaises(NoSpace, space.check, 8 * MIB)
        space.check(8 * MIB, 0, store.name)
        self.free(MIB)
        space.check(8 * MIB, MIB, store.name)

    def test_merging_does_not_touch_the_reserve(self):
        self.free(3 * MIB)
        space = Space(self.records, self.backing, Limits(reserve=2 * MIB))
        space.afford(MIB)
        self.assertRaises(NoSpace, space.afford, MIB + 1)

    def test_a_frozen_store_takes_no_more(self):
        self.free(2 * FULL)
        space = Space(self.records, self.backing, Limits())
        frozen = self.vm("vm1")
        self.records.put(Snapshot("before", "vm1", "debian", 8 * MIB, frozen.name, 0))
        self.vm("vm1", frozen.name)
        space.check(8 * MIB)

    def test_what_is_reserved_is_on_the_disk(self):
        volume = StoreFile(self.vm("vm1").path)
        volume.reserve(2 * MIB)
        self.assertEqual(2 * MIB, volume.allocated())
        self.assertEqual(2 * MIB - 4096, volume.ahead(4096))
        volume.reserve(100 * MIB)
        self.assertEqual(FULL, os.stat(volume.path).st_size)
        self.assertEqual(math.inf, volume.ahead(FULL - 4096))

    def test_a_copy_has_what_was_taken(self):
        one, two = StoreFile(self.vm("vm1").path), StoreFile(self.vm("vm2").path)
        one.path.write_bytes(b"x" * MIB)
        two.copy(str(one.path), 5000)
        self.assertEqual(b"x" * 5000 + bytes(3), two.path.read_bytes()[:5003])
