"""Records survive, and each is there whole or not at all."""

import json
from pathlib import Path

import fixtures
import testtools

from virtman import atomic_file
from virtman.disk.records import Records
from virtman.errors import InstanceExists, InstanceUnknown, SnapshotExists, SnapshotUnknown
from virtman.model.chain import Instance, Snapshot, Store

MIB = 1024 * 1024


class RecordsTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.records = Records(self.folder)
        self.records.prepare()

    def test_records_outlive_the_agent(self):
        store = self.records.add_store("debian", 8 * MIB, "", str)
        vm = Instance("vm1", "debian", 8 * MIB, store.name, 5)
        snapshot = Snapshot("before", "vm1", "debian", 8 * MIB, store.name, 1.5)
        for one in (vm, snapshot):
            self.records.put(one)
        found = Records(self.folder)
        found.prepare()
        self.assertEqual([vm], found.all())
        self.assertEqual((vm, snapshot), (found.get("vm1"), found.snapshot("before")))
        inventory = found.inventory()
        self.assertEqual({store.name: store}, inventory.stores)
        self.assertEqual(({"vm1": vm}, {"before": snapshot}),
                         (inventory.instances, inventory.snapshots))  # fmt: skip

    def test_names_of_vms_and_snapshots_are_used_once(self):
        self.records.put(Instance("vm1", "debian", MIB, "s1"))
        self.records.put(Snapshot("vm1", "vm1", "debian", MIB, "s1", 0))
        self.assertRaises(InstanceExists, self.records.check_vm, "vm1")
        self.assertRaises(SnapshotExists, self.records.check_snapshot, "vm1")
        self.records.check_vm("vm2")
        self.records.check_snapshot("vm2")

    def test_what_is_forgotten_is_forgotten_for_good(self):
        kept = []
        self.useFixture(fixtures.MockPatchObject(atomic_file, "_sync", kept.append))
        vm = Instance("vm1", "debian", MIB, "s1")
        self.records.put(vm)
        del kept[:]
        self.records.forget(vm)
        self.assertEqual([self.records.instances], kept)

    def test_no_store_has_the_name_of_one_that_went(self):
        first = self.records.add_store("debian", MIB, "", str)
        self.records.forget(first)
        self.assertNotEqual(first.name, self.records.add_store("debian", MIB, "", str).name)

    def test_each_store_has_a_name_and_file_of_its_own(self):
        made = [self.records.add_store("debian", MIB, "", str) for _ in range(3)]
        self.assertEqual(3, len({one.name for one in made}))
        self.assertEqual(3, len({one.path for one in made}))

    def test_what_is_forgotten_is_unknown(self):
        for one in (Instance("a", "i", MIB, "s"), Snapshot("a", "v", "i", MIB, "s", 0)):
            self.records.put(one)
            self.records.forget(one)
            self.records.forget(one)
        self.assertRaises(InstanceUnknown, self.records.get, "a")
        self.assertRaises(SnapshotUnknown, self.records.snapshot, "a")

    def test_a_record_of_an_earlier_version_is_a_vm_with_one_store(self):
        old = {"vm": "vm1", "image": "i", "size": MIB, "store": "/x/vm1.cow", "store_size": 2 * MIB}
        (self.records.instances / "vm1.json").write_text(json.dumps(old))
        for _ in range(2):
            records = Records(self.folder)
            records.prepare()
            (instance,) = records.all()
            chain = records.inventory().chain(instance.store)
            self.assertEqual((Store("vm1", "i", MIB, "/x/vm1.cow"),), chain)
