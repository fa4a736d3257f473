"""Volt hears which images a node needs, and keeps them also for one that is gone."""

from tests.functional.virtman.base import TestCase
from volt.errors import ImageInUse


class NeedsTest(TestCase):
    def setUp(self):
        super().setUp()
        self.node = self.bed.node()
        self.images = self.bed.volt.ground.images

    def needed(self):
        """Return for how many disks Volt keeps images, by image."""
        return {one.image: one.disks for one in self.bed.volt.ground.holds.index()}

    def changed(self):
        """Tell whether the node has something to say at once, and say it."""
        asked = self.node.agent.images.needs_changed
        said = asked.is_set()
        asked.clear()
        self.node.beat()
        return said

    def test_vms_and_snapshots_count(self):
        self.node.create("vm1")
        self.assertTrue(self.changed())
        self.assertEqual({"debian": 1}, self.needed())
        self.node.create("vm2")
        self.node.snapshot("vm1", "s1")
        self.assertFalse(self.changed())
        self.assertEqual({"debian": 3}, self.needed())
        for vm in ("vm1", "vm2"):
            self.node.destroy(vm)
        self.assertFalse(self.changed())
        self.assertEqual({"debian": 1}, self.needed())
        self.node.delete_snapshot("s1")
        self.assertTrue(self.changed())
        self.assertEqual({}, self.needed())

    def test_the_image_of_a_node_that_is_gone_stays_until_it_is_back(self):
        self.node.create("vm1")
        self.node.beat()
        self.node.die()
        self.bed.volt.ground.hosts.expire([self.node.name])
        self.assertRaises(ImageInUse, self.images.delete, "debian")
        self.node.reboot()
        self.assertEqual([], list(self.node.recover()))
        self.node.beat()
        self.assertEqual({"debian": 1}, self.needed())
        self.node.destroy("vm1")
        self.node.drop()
        self.images.delete("debian")

    def test_one_without_disks_keeps_nothing_once_it_is_back(self):
        self.node.create("vm1")
        self.node.beat()
        self.node.destroy("vm1")
        self.node.die()
        self.bed.volt.ground.hosts.expire([self.node.name])
        self.assertEqual({"debian": 1}, self.needed())
        self.node.reboot()
        self.node.beat()
        self.assertEqual({}, self.needed())

    def test_who_drops_an_image_says_at_once_that_it_needs_it_no_more(self):
        self.node.create("vm1")
        self.node.beat()
        self.node.destroy("vm1")
        self.assertEqual({"debian": 1}, self.needed())
        self.node.drop()
        self.assertEqual({}, self.needed())

    def test_a_snapshot_keeps_its_image_after_the_node_has_left(self):
        self.node.create("vm1")
        self.node.snapshot("vm1", "s1")
        self.node.destroy("vm1")
        self.node.beat()
        self.node.drop()
        self.assertEqual(0, self.images.show("debian").hosts)
        self.assertRaises(ImageInUse, self.images.delete, "debian")
