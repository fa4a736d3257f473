"""What a VM wrote is never put on another image than that on which it was written."""

from dataclasses import replace

from tests.functional.virtman.base import TestCase
from virtman.errors import ImageRemade

CHUNK = 7


class OriginTest(TestCase):
    def setUp(self):
        super().setUp()
        self.node = self.bed.node()
        self.node.create("vm1")
        self.node.snapshot("vm1", "before")
        self.node.kernel.write("virtman_debian_vm_vm1", CHUNK, "mine")
        self.node.stop()

    def stores(self):
        return {path.name for path in (self.node.folder / "stores").glob("*.cow")}

    def from_snapshot(self, vm):
        self.node.create(vm, snapshot="before")

    def written(self):
        return self.node.kernel.read("virtman_debian_vm_vm1", CHUNK)

    def test_a_vm_of_an_earlier_image_is_refused_after_a_reboot_and_keeps_its_store(self):
        before = self.stores()
        self.bed.remake("debian", "other content")
        self.node.reboot()
        self.assertEqual(["vm1"], list(self.node.recover()))
        self.assertIn("another one has that name now", self.log.output)
        self.node.create("vm2")
        self.node.merge("vm2")
        with self.node.process.here():
            self.node.agent.stores.mend("debian")
        self.assertNotIn("virtman_debian_vm_vm1", self.node.kernel.mappings)
        self.assertTrue(self.stores() >= before)
        for verb, *words in (
            (self.from_snapshot, "vm3"),
            (self.node.rollback, "vm1", "before"),
        ):
            error = self.assertRaises(ImageRemade, verb, *words)
            self.assertEqual("virtman.image.remade", error.code)
        self.node.destroy("vm1")
        self.node.delete_snapshot("before")
        self.assertEqual([], list(self.node.recover()))
        self.assertFalse(self.stores() & before)

    def test_an_image_of_the_same_content_has_its_vms_again(self):
        self.bed.remake("debian")
        self.node.reboot()
        self.assertEqual([], list(self.node.recover()))
        self.assertEqual("mine", self.written())

    def test_without_a_hash_tree_an_image_that_was_made_anew_is_another(self):
        self.bed.remake("debian", hashed=False)
        self.node.reboot()
        self.assertEqual(["vm1"], list(self.node.recover()))

    def test_a_record_of_an_earlier_version_learns_what_it_is_of(self):
        records = self.node.records
        known = records.get("vm1")
        records.put(replace(known, origin=""))
        self.node.reboot()
        self.assertEqual([], list(self.node.recover()))
        self.assertEqual(known, self.node.records.get("vm1"))
