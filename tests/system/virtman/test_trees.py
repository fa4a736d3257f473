"""Trees of some depth: the same data at the bottom, and nobody waits for the levels above."""

import time

from tests.system.virtman.base import MIB, DeployedCase, each, report, sha256


class TestForest(DeployedCase):
    name = "forest"
    node_count = 5
    size = 33 * MIB + 512  # neither a whole number of regions nor of stripes
    gpt = True  # a kernel that sees this table reads the disk's far end before anybody else

    def test_the_deepest_node_has_the_source_byte_for_byte(self):
        devices = each(self.nodes, lambda node: self.create(node, f"vm-{node.name}"))
        depths = self.deployment.depths(self.image)
        self.assertGreaterEqual(max(map(max, depths.values())), 3)
        before = self.storage.sent_bytes()
        sums = each(zip(self.nodes, devices, strict=True), lambda one: sha256(*one))
        self.assertEqual([self.sha256] * len(self.nodes), sums)
        sent = (self.storage.sent_bytes() - before) / self.size
        report(f"source sent {sent:.2f} images to {len(self.nodes)} nodes, depths {depths}")
        self.assertLess(sent, 1.5)


class TestChain(DeployedCase):
    name = "chain"
    node_count = 4
    size = 16 * MIB
    shape = (1, 1)

    def test_attaching_at_depth_four_takes_no_longer_than_at_depth_one(self):
        took = {}

        def attach(node):
            begin = time.monotonic()
            device = self.create(node, f"vm-{node.name}")
            node.run(["dd", f"if={device}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"])
            took[node.name] = time.monotonic() - begin

        each(self.nodes, attach)
        by_depth = {depths[0]: took[host] for host, depths in
                    self.deployment.depths(self.image).items()}  # fmt: skip
        shown = {depth: f"{seconds:.2f} s" for depth, seconds in sorted(by_depth.items())}
        report(f"attached, first block read, by depth: {shown}")
        self.assertEqual([1, 2, 3, 4], sorted(by_depth))
        self.assertLess(by_depth[4], 1.5 * by_depth[1])
