"""Wrong bytes are found out: those of a parent by its children, those of a cache by a scrub."""

import json
import time

from lab.waiting import wait_until
from tests.system.virtman.base import MIB, DeployedCase, each, read_bytes, report, sha256
from tests.system.virtman.rot import BLOCK, rot


class TestWrongBytes(DeployedCase):
    name = "verity"
    node_count = 3
    size = 32 * MIB
    paths_may_fail = True

    def test_a_parent_with_a_rotten_cache_is_found_out_and_a_scrub_heals_it(self):
        devices = dict(zip(self.nodes, each(self.nodes, lambda node: self.create(node, "vm")),
                           strict=True))  # fmt: skip
        child, parent, stripe = self.fed()
        self.assertEqual(self.sha256, sha256(parent, devices[parent]))
        rotten = self.rot(parent, [(2 * region + stripe) * MIB + region * BLOCK
                                   for region in range(16)])  # fmt: skip

        begin = time.monotonic()
        self.assertEqual(self.sha256, sha256(child, devices[child]))
        took = time.monotonic() - begin
        found = ("parent_corrupt", parent.name, f"reported by {child.name}")
        wait_until(lambda: found in self.events(), "the parent being reported", 10)
        report(f"a parent sent wrong bytes: its child had all data after {took:.1f} s, no error")
        states = child.run(["dmsetup", "status", f"virtman_{self.image}_s{stripe}"]).stdout
        self.assertRegex(states, r" F 1 .* A 0 ")

        fetched = read_bytes(parent, f"virtman_{self.image}_stripe")
        begin = time.monotonic()
        self.assertEqual(rotten, self.scrub(parent))
        took = time.monotonic() - begin
        fetched = read_bytes(parent, f"virtman_{self.image}_stripe") - fetched
        report(f"a scrub of {self.size // MIB} MiB took {took:.1f} s, "
               f"fetched {fetched >> 10} KiB from parents")  # fmt: skip
        self.assertEqual(self.sha256, sha256(parent, f"/dev/mapper/virtman_{self.image}_image"))
        self.assertEqual([], self.scrub(parent))
        self.assertEqual([], self.scrub(child))

    def fed(self):
        """A child, who feeds it, and in which stripe."""
        by_name = {node.name: node for node in self.nodes}
        for child in self.nodes:
            place = self.deployment.ask("GET", f"/v1/images/{self.image}/hosts/{child.name}")
            for feed in place["stripes"]:
                if feed["parent"]["host"]:
                    return child, by_name[feed["parent"]["host"]], feed["stripe"]
        return self.fail("nobody feeds anybody")

    def rot(self, node, offsets):
        """Overwrite these blocks of the image in the node's cache; return those that it had.

        bcache may not have kept all, and may have copies that it does not use any more.
        """
        right = (self.bed.folder / "image").read_bytes()
        rot(node, "/dev/ubdb", right, offsets)
        device = f"/dev/mapper/virtman_{self.image}_image"
        node.run(["dd", f"if={device}", "of=/host/image", "bs=1M", "iflag=direct"], timeout=120)
        cached = (node.share / "image").read_bytes()
        wrong = [at for at in range(0, self.size, BLOCK)
                 if cached[at : at + BLOCK] != right[at : at + BLOCK]]  # fmt: skip
        self.assertTrue(wrong)
        self.assertEqual([], [at for at in wrong if at not in offsets])
        return wrong

    def scrub(self, node):
        done = self.virtman(node, "image", "scrub", "--json", self.image, timeout=120)
        return json.loads(done.stdout)["dropped"]
