"""A parent that sends wrong bytes is a failed path, told to Volt and not used again."""

from tests.functional.virtman.base import SIZE, hashes
from tests.functional.virtman.image.test_placement import PlacementCase
from virtman.background.liveness import Pulse
from virtman.errors import ImageMismatch

B = "virtman_debian_verity1_b"


class CorruptParentTest(PlacementCase):
    def feel(self, node):
        with node.process.here():
            Pulse(node.agent.images).tell()

    def events(self, kind):
        return [(one.host, one.image, one.detail) for one in self.bed.volt.ground.hosts.events()
                if one.kind == kind]  # fmt: skip

    def test_it_is_reported_once_and_its_standby_is_read_from(self):
        one, _ = self.pair()
        one.kernel.meet_wrong_bytes(B)
        self.feel(one)
        self.feel(one)
        self.assertEqual([("b", "debian", "reported by a")], self.events("parent_corrupt"))
        states = {B: "F", "virtman_debian_verity1_source": "A"}
        self.assertEqual(states, one.kernel.path_states("virtman_debian_s1"))

    def test_it_is_not_used_again_when_other_paths_are_mended(self):
        one, _ = self.pair()
        one.kernel.meet_wrong_bytes(B)
        one.beat()
        self.assertEqual("F", one.kernel.path_states("virtman_debian_s1")[B])

    def test_it_is_tried_again_where_there_is_no_other(self):
        node = self.bed.node()
        node.create("vm1")
        path = "virtman_debian_verity0_source"
        node.kernel.meet_wrong_bytes(path)
        node.beat()
        self.assertEqual({path: "A"}, node.kernel.path_states("virtman_debian_s0"))

    def test_one_that_is_told_to_an_absent_volt_is_told_again(self):
        one, _ = self.pair()
        one.kernel.meet_wrong_bytes(B)
        self.bed.volt.silence()
        self.feel(one)
        self.bed.volt.silence(False)
        self.feel(one)
        self.assertEqual(1, len(self.events("parent_corrupt")))

    def test_a_source_that_sends_wrong_bytes_is_an_event_too(self):
        node = self.bed.node()
        node.create("vm1")
        node.kernel.meet_wrong_bytes("virtman_debian_leafverity_source")
        self.feel(node)
        self.assertEqual([(None, "debian", "reported by a")], self.events("source_corrupt"))

    def test_the_word_of_two_hosts_drains_it(self):
        nodes = [self.bed.node(name) for name in "abcdef"]
        for node in nodes:
            node.create("vm1")
        self.settle(*nodes)
        by_parent = {}
        for node in nodes:
            for stripe in (0, 1):
                parent = self.parents(node, stripe)[0]
                by_parent.setdefault(parent, []).append((node, stripe))
        parent, children = next((parent, children) for parent, children in by_parent.items()
                                if parent != "source" and len(children) > 1)  # fmt: skip
        for number, (child, stripe) in enumerate(children[:2], 1):
            child.kernel.meet_wrong_bytes(f"virtman_debian_verity{stripe}_{parent}")
            self.feel(child)
            self.assertEqual(number, len(self.events("parent_corrupt")))
            draining = self.bed.volt.ground.hosts.show(parent).draining
            self.assertEqual(number == 2, draining)
        self.settle(*nodes)
        for node in nodes:
            found = [host for stripe in (0, 1) for host in self.parents(node, stripe)]
            self.assertNotIn(parent, found)


class HashesTest(PlacementCase):
    def test_hashes_that_do_not_belong_to_the_root_are_refused(self):
        node = self.bed.node()
        node.agent.coordinator.upper_hashes = lambda image: bytes(len(hashes()[1]))
        self.assertRaises(ImageMismatch, node.create, "vm1")
        self.assert_nothing_is_left(node)

    def test_a_node_that_does_not_verify_hands_the_leaves_on(self):
        one, two = self.bed.node("a"), self.bed.node("b")
        one.agent.stack.verify = False
        one.create("vm1")
        two.create("vm1")
        self.settle(one, two)
        self.assertEqual([], [name for name in one.kernel.mappings if "verity" in name])
        self.assertIn("virtman_debian_path1_b", one.kernel.path_states("virtman_debian_s1"))
        self.assertIn(
            "virtman_debian_leafverity_a", two.kernel.path_states("virtman_debian_leaves")
        )

    def test_an_agent_that_stops_verifying_takes_its_verity_devices_away(self):
        one = self.bed.node()
        one.create("vm1")
        one.stop()
        one.start()
        one.agent.stack.verify = False
        one.recover()
        one.settle()
        self.assertEqual([], [name for name in one.kernel.mappings if "verity" in name])
        one.destroy("vm1")
        one.drop()
        self.assert_nothing_is_left(one)

    def test_an_image_without_a_tree_is_read_as_it_is(self):
        self.bed.register("plain", hashed=False)
        node = self.bed.node()
        node.create("vm1", "plain")
        self.assertEqual([], [name for name in node.kernel.mappings if "verity" in name])
        self.assertEqual(SIZE // 512 + 2048, node.kernel.mappings["virtman_plain_export0"].sectors)

    def test_a_wrong_file_of_hashes_is_fetched_again(self):
        node = self.bed.node()
        node.create("vm1")
        upper = node.folder / "images" / "debian.upper"
        right = upper.read_bytes()
        upper.write_bytes(bytes(len(right)))
        node.reboot()
        node.recover()
        self.assertEqual(right, upper.read_bytes())
