"""VMs of a warm image read the cache past the page cache, and go back when it is cold."""

from tests.functional.virtman.base import MIB, TestCase
from virtman.errors import CoordinatorUnreachable


class WarmTest(TestCase):
    def setUp(self):
        super().setUp()
        self.node = self.bed.node()
        self.node.create("vm1")

    def read(self, read, fetched):
        """Let MiB be read of the image, and the agent look."""
        for device, more in (("image", read), ("stripe", fetched)):
            self.node.kernel.mappings[f"virtman_debian_{device}"].read_bytes += more * MIB
        self.node.beat()

    def below(self):
        ((_, _, _, words),) = self.node.kernel.state()["dm"]["virtman_debian_origin"][0]
        return words.split()[3::2]

    def test_vms_move_when_it_is_warm_and_when_it_is_cold_again(self):
        readers = self.below()
        self.read(100, 100)
        self.assertEqual(readers, self.below())
        self.read(100, 0)
        self.assertEqual(["virtman_debian_image"], self.below())
        reloads = self.node.kernel.mappings["virtman_debian_origin"].reloads
        self.read(100, 0)
        self.node.create("vm2")
        self.assertEqual(reloads, self.node.kernel.mappings["virtman_debian_origin"].reloads)
        self.read(100, 50)
        self.assertEqual(readers, self.below())

    def test_a_new_agent_begins_with_a_cold_image(self):
        readers = self.below()
        self.read(100, 0)
        self.node.start()
        self.node.recover()
        self.assertEqual(readers, self.below())
        self.read(0, 0)
        self.assertEqual(["virtman_debian_image"], self.below())

    def test_a_warm_image_goes_like_any_other(self):
        self.read(100, 0)
        self.node.destroy("vm1")
        self.node.drop()
        self.assert_nothing_is_left(self.node)

    def test_while_volt_is_away_too(self):
        self.bed.volt.silence()
        self.assertRaises(CoordinatorUnreachable, self.read, 100, 0)
        self.node.settle()
        self.assertEqual(["virtman_debian_image"], self.below())
