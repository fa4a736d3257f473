"""Disks that are longer than their image, and become longer."""

import contextlib
import os
from unittest import mock

import fixtures

from tests.functional.virtman.base import SIZE
from tests.functional.virtman.disk.test_snapshots import KilledCase, SnapshotCase
from tests.functional.virtman.doubles.model import CHUNK, Logical
from virtman.disk.volumes import full_size
from virtman.errors import InstanceSize, InvalidSize, NoSpace, StoreUnusable
from virtman.model import sizes

LAST = 2 * SIZE // CHUNK - 1
"""Number of the last chunk of a disk that is twice as long as its image."""


class SizeCase(SnapshotCase):
    def resize(self, vm, size):
        with self.node.process.here():
            self.node.agent.resize(vm, size)

    def last(self, vm):
        return self.node.kernel.read(f"virtman_debian_vm_{vm}", LAST)

    def size(self, vm):
        device = self.node.kernel.mappings[f"virtman_debian_vm_{vm}"]
        self.assertEqual(device.sectors * 512, self.node.records.get(vm).size)
        return device.sectors * 512

    def assert_room(self, vm):
        """What takes a VM's writes is as long as all that it may write."""
        store = self.node.records.inventory().stores[self.node.chain(vm)[-1]]
        self.assertGreaterEqual(store.size, self.size(vm))
        lengths = {one.path: one.length for one in self.node.kernel.loops.values()}
        lengths |= {path: one.file.stat().st_size for path, one in self.node.kernel.volumes.items()}
        self.assertGreaterEqual(lengths[store.path], full_size(self.size(vm)))


class SizeTest(SizeCase):
    def test_a_disk_may_be_longer_than_its_image(self):
        self.node.create("vm1", size=2 * SIZE)
        self.assertEqual(2 * SIZE, self.size("vm1"))
        self.assert_room("vm1")
        self.assertEqual("", self.last("vm1"))
        self.write("vm1", **{f"c{LAST}": "z"})
        for reboot in (False, True):
            self.restart(reboot)
            self.assertEqual("z", self.last("vm1"))
            self.assertEqual(2 * SIZE, self.size("vm1"))

    def test_it_becomes_longer_while_the_vm_runs(self):
        self.node.create("vm1")
        self.write("vm1", c0="a")
        self.assertRaises(OSError, self.write, "vm1", **{f"c{LAST}": "z"})
        number = self.node.kernel.mappings["virtman_debian_vm_vm1"].number
        self.resize("vm1", 2 * SIZE)
        self.assert_room("vm1")
        self.assertEqual(number, self.node.kernel.mappings["virtman_debian_vm_vm1"].number)
        self.write("vm1", **{f"c{LAST}": "z"})
        self.resize("vm1", 2 * SIZE)
        self.assertEqual(("a...", "z"), (self.read("vm1"), self.last("vm1")))
        self.restart(reboot=True)
        self.assertEqual(("a...", "z"), (self.read("vm1"), self.last("vm1")))

    def test_disks_of_all_sizes_share_an_image(self):
        self.node.create("vm1")
        before = set(self.node.kernel.state()["dm"])
        self.node.create("vm2", size=2 * SIZE)
        self.node.create("vm3", size=3 * SIZE + 512)
        more = set(self.node.kernel.state()["dm"]) - before
        self.assertEqual(4, len(more), more)
        self.assertEqual(3 * SIZE + 512, self.size("vm3"))

    def test_a_snapshot_stays_as_long_as_it_was(self):
        self.node.create("vm1")
        self.write("vm1", c0="a")
        self.node.snapshot("vm1", "short")
        self.resize("vm1", 2 * SIZE)
        self.write("vm1", **{f"c{LAST}": "z"})
        self.node.snapshot("vm1", "long")
        for name, snapshot, size, expected in (
            ("vm2", "short", None, SIZE),
            ("vm3", "short", 3 * SIZE, 3 * SIZE),
            ("vm4", "long", None, 2 * SIZE),
        ):
            self.node.create(name, snapshot=snapshot, size=size)
            self.assertEqual(expected, self.size(name))
            self.assertEqual("a...", self.read(name))
        self.assertEqual(("", "z"), (self.last("vm3"), self.last("vm4")))
        self.node.rollback("vm1", "short")
        self.assertEqual((2 * SIZE, ""), (self.size("vm1"), self.last("vm1")))
        self.assert_room("vm1")

    def test_what_is_new_is_merged_too(self):
        self.node.create("vm1")
        self.node.snapshot("vm1", "before")
        self.resize("vm1", 2 * SIZE)
        self.write("vm1", c0="a", **{f"c{LAST}": "z"})
        self.node.delete_snapshot("before")
        self.node.merge("vm1")
        self.assertEqual(1, len(self.node.chain("vm1")))
        self.assertEqual(("a...", "z"), (self.read("vm1"), self.last("vm1")))
        self.assert_room("vm1")

    def test_it_is_copied_where_snapshots_need_what_lies_below(self):
        self.node.create("vm1")
        self.node.snapshot("vm1", "at0")
        self.resize("vm1", 2 * SIZE)
        for number in range(1, 5):
            self.write("vm1", **{f"c{LAST}": str(number)})
            self.node.snapshot("vm1", f"at{number}")
            self.node.merge("vm1")
        self.assertLessEqual(len(self.node.chain("vm1")), 3)
        self.assertEqual("4", self.last("vm1"))
        self.node.rollback("vm1", "at1")
        self.assertEqual("1", self.last("vm1"))

    def test_a_vm_that_is_being_merged_becomes_longer(self):
        self.node.create("vm1")
        self.node.snapshot("vm1", "before")
        self.write("vm1", c0="a")
        self.node.delete_snapshot("before")
        with self.node.process.here():
            merger = self.node.merger
            upper = merger._begin(merger._find("vm1"))
        self.resize("vm1", 2 * SIZE)
        self.write("vm1", **{f"c{LAST}": "z"})
        with self.node.process.here():
            self.assertTrue(merger._await(upper))
        self.assertEqual(("a...", "z"), (self.read("vm1"), self.last("vm1")))
        self.assert_room("vm1")

    def test_what_cannot_be_changes_nothing(self):
        self.node.create("vm1", size=2 * SIZE)
        self.node.snapshot("vm1", "long")
        before = self.node.everywhere()
        full = mock.Mock(f_bavail=0, f_frsize=4096)
        for error, work in (
            (InstanceSize, lambda: self.resize("vm1", SIZE)),
            (InvalidSize, lambda: self.resize("vm1", 2 * SIZE + 1)),
            (InstanceSize, lambda: self.resize("vm1", 2 * sizes.SPAN)),
            (InstanceSize, lambda: self.node.create("vm2", size=SIZE - 512)),
            (InvalidSize, lambda: self.node.create("vm2", size=SIZE + 1)),
            (InstanceSize, lambda: self.node.create("vm2", size=2 * sizes.SPAN)),
            (InstanceSize, lambda: self.node.create("vm2", snapshot="long", size=SIZE)),
        ):
            self.assertRaises(error, work)
            self.node.settle()
            self.assertEqual(before, self.node.everywhere())
        if not self.lvm:
            self.useFixture(fixtures.MockPatchObject(os, "statvfs", return_value=full))
            self.assertRaises(NoSpace, self.resize, "vm1", 3 * SIZE)
            self.assertEqual(before, self.node.everywhere())


class LogicalVolumeTest(SizeTest):
    """The same in logical volumes."""

    lvm = True


class GivenDeviceTest(SizeCase):
    """What the VM writes goes to a device that somebody else made, and has to make longer."""

    PATH = "/dev/disk/by-id/volume-1"

    def test_it_must_be_long_enough(self):
        file = self.node.kernel.disk / "volume-1"
        file.touch()
        os.truncate(file, 2 * SIZE)
        self.node.kernel.volumes[self.PATH] = Logical("65:1", file, identity="naa.1")
        self.node.create("vm1", store=self.PATH)
        self.node.snapshot("vm1", "before")
        error = self.assertRaises(StoreUnusable, self.resize, "vm1", 2 * SIZE)
        self.assertIn("make the device longer", str(error))
        self.assertEqual(SIZE, self.size("vm1"))
        os.truncate(file, 3 * SIZE)
        self.resize("vm1", 2 * SIZE)
        self.write("vm1", **{f"c{LAST}": "z"})
        self.node.delete_snapshot("before")
        self.node.merge("vm1")
        self.assertEqual(1, len(self.node.chain("vm1")))
        self.assertEqual("z", self.last("vm1"))


class KilledSizeTest(SizeCase, KilledCase):
    """The agent dies, or fails, at each root verb while a disk becomes longer."""

    def assert_ends(self, *, fail):
        def live(_):
            with contextlib.suppress(InstanceSize):
                self.resize("vm1", self.node.records.get("vm1").size + SIZE)

        for verb in self.killed(live, fail=fail):
            self.assertEqual("ab..", self.read("vm1"), verb)
            self.assert_tidy(verb)
            wanted = self.node.records.get("vm1").size
            self.resize("vm1", wanted)
            self.assertEqual(wanted, self.size("vm1"), verb)
            self.assert_room("vm1")
            self.write("vm1", **{f"c{wanted // CHUNK - 1}": "z"})

    def test_an_agent_that_dies_has_changed_the_size_or_not(self):
        self.assert_ends(fail=False)

    def test_nor_is_a_verb_that_fails_the_end(self):
        self.assert_ends(fail=True)
