"""Wrong bytes are found out: those of a parent by its children, those of a cache by a scrub."""

import time

from lab.waiting import wait_until
from tests.system.virtman.base import MIB, NEWER, DeployedCase, each, report, sha256
from tests.system.virtman.rot import BLOCK, Rotting
from virtman.model.sizes import READ_AHEAD

FEW = 32 * 1024  # bytes; all hashes of the image are 256 KiB
GROUP = 128 * BLOCK  # bytes that a block of hashes is of


class TestWrongBytes(Rotting, DeployedCase):
    name = "verity"
    release = NEWER
    node_count = 3
    size = 32 * MIB
    paths_may_fail = True

    def test_a_parent_with_a_rotten_cache_is_found_out_and_a_scrub_heals_it(self):
        devices = dict(zip(self.nodes, each(self.nodes, lambda node: self.create(node, "vm")),
                           strict=True))  # fmt: skip
        child, parent, stripe = self.fed()
        self.assertEqual(self.sha256, sha256(parent, devices[parent]))
        rotten = self.rot(parent, "/dev/ubdb", [(2 * region + stripe) * MIB + region * BLOCK
                                   for region in range(16)])  # fmt: skip

        begin = time.monotonic()
        self.assertEqual(self.sha256, sha256(child, devices[child]))
        took = time.monotonic() - begin
        found = ("parent_corrupt", parent.name, f"reported by {child.name}")
        wait_until(lambda: found in self.events(), "the parent being reported", 10)
        report(f"a parent sent wrong bytes: its child had all data after {took:.1f} s, no error")
        states = child.run(["dmsetup", "status", f"virtman_{self.image}_s{stripe}"]).stdout
        self.assertRegex(states, r" F 1 .* A 0 ")

        fetched = parent.read_bytes(f"/dev/mapper/virtman_{self.image}_stripe")
        begin = time.monotonic()
        self.assertEqual(rotten, self.scrub(parent))
        took = time.monotonic() - begin
        fetched = parent.read_bytes(f"/dev/mapper/virtman_{self.image}_stripe") - fetched
        report(f"a scrub of {self.size // MIB} MiB took {took:.1f} s, "
               f"fetched {fetched >> 10} KiB from parents")  # fmt: skip
        self.assertEqual(self.sha256, sha256(parent, f"/dev/mapper/virtman_{self.image}_image"))
        self.assertEqual([], self.scrub(parent))
        self.assertEqual([], self.scrub(child))

    def test_a_read_fetches_the_hashes_that_it_needs_and_no_more(self):
        node = self.nodes[0]
        device = self.create(node, "vm")
        fetched = self.hashes_fetched(node, device, [self.size // 2])
        report(f"a cold read fetched {fetched >> 10} KiB of hashes")
        self.assertLessEqual(fetched, FEW)

    def test_reads_in_order_fetch_few_hashes_ahead(self):
        node = self.nodes[0]
        device = self.create(node, "vm")
        offsets = range(0, self.size // 4, GROUP)
        fetched = self.hashes_fetched(node, device, offsets)
        report(f"{len(offsets)} cold reads in order fetched {fetched >> 10} KiB of hashes")
        self.assertLessEqual(fetched, len(offsets) * BLOCK + 2 * READ_AHEAD)

    def hashes_fetched(self, node, device, offsets):
        """Read a block at each of these offsets; return how many bytes of leaves that fetched."""
        leaves = f"/dev/mapper/virtman_{self.image}_leaves"
        before = node.read_bytes(leaves)
        for offset in offsets:
            direct = ("iflag=direct", "bs=4k", "count=1", f"skip={offset // BLOCK}")
            node.run(["dd", f"if={device}", "of=/dev/null", *direct])
        return node.read_bytes(leaves) - before

    def fed(self):
        """A child, who feeds it, and in which stripe."""
        by_name = {node.name: node for node in self.nodes}
        for child in self.nodes:
            place = self.deployment.ask("GET", f"/v1/images/{self.image}/hosts/{child.name}")
            for feed in place["stripes"]:
                if feed["parent"]["host"]:
                    return child, by_name[feed["parent"]["host"]], feed["stripe"]
        return self.fail("nobody feeds anybody")
