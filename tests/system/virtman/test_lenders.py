"""A new version of an image comes from the earlier one on the same node, on a real kernel."""

import hashlib
import json
import random
from typing import ClassVar

from lab.waiting import wait_until
from tests.system.virtman.base import MIB, DeployedCase, read_bytes, report, sha256
from tests.system.virtman.rot import rot

BLOCK = 4096
CACHE = "/dev/ubdb"
NEW = "image2"
STRIPE = f"/dev/mapper/virtman_{NEW}_stripe"
MOST = 1.05  # over the blocks that are new, and read from the image's own parents
RECEIVED = 0.25  # of the image, as a cache lacks a tenth of what went through it
# Reads blocks at random, past the page cache, until a file is there; ends at once at an error.
READER = """
import mmap, os, random, sys, time
disk = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
block, blocks = mmap.mmap(-1, 4096), int(sys.argv[2]) // 4096
while not os.path.exists("/host/stop"):
    os.preadv(disk, [block], random.randrange(blocks) * 4096)
    time.sleep(0.002)
print("read all")
"""


class TestLenders(DeployedCase):
    name = "lenders"
    node_count = 1
    size = 32 * MIB
    paths_may_fail = True
    options: ClassVar = {"image": {"keep_time": 600}}

    def setUp(self):
        super().setUp()
        (self.node,) = self.nodes
        self.content = (self.bed.folder / "image").read_bytes()

    def give_back(self):
        super().give_back()
        self.deployment.remove_source(self.storage, NEW)

    def _clear(self, node):
        for _, vm in self.created:
            self.deployment.destroy(node, vm)
        for image in (NEW, self.image):
            self.deployment.drop(node, image)

    def add(self):
        """Have a new version: some blocks are others, and many are elsewhere; return its sum."""
        dice = random.Random(2)
        blocks = [self.content[at : at + BLOCK] for at in range(0, self.size, BLOCK)]
        moved = blocks[1000:3000] + blocks[:1000] + blocks[3000:]
        self.new = dice.sample(range(len(moved)), 400)
        for number in self.new:
            moved[number] = dice.randbytes(BLOCK)
        content = b"".join(moved)
        (self.storage.share / NEW).write_bytes(content)
        self.storage.run(["cp", f"/host/{NEW}", f"/var/tmp/{NEW}"])
        where = ["--ip", self.storage.address, *self.deployment.source_options(self.storage)]
        added = self.storage.run(
            ["virtman", "source", "add", NEW, f"/var/tmp/{NEW}", "--based-on", self.image, *where],
            timeout=120,
        )
        self.assertIn(f"based on {self.image}", added.stdout)
        return hashlib.sha256(content).hexdigest()

    def start(self, image, vm):
        device = self.deployment.create(self.node, image, vm)["device"]
        self.created.append((self.node, vm))
        return device

    def lenders(self):
        shown = self.virtman(self.node, "image", "show", "--json", NEW)
        return json.loads(shown.stdout)["lenders"]

    def cool(self):
        """Have the node's page caches hold nothing."""
        self.node.run(["sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches"])

    def await_lender(self):
        wait_until(lambda: self.lenders() == [self.image], "the other image lending", 60, 0.5)

    def test_a_new_version_is_right_and_costs_what_is_new(self):
        expected = self.add()
        first = self.start(self.image, "vm1")
        self.assertEqual(self.sha256, sha256(self.node, first))
        second = self.start(NEW, "vm2")
        self.assertEqual([self.image], self.lenders())
        before, own = self.node.received_bytes(), read_bytes(self.node, STRIPE)
        self.assertEqual(expected, sha256(self.node, second))
        came = self.node.received_bytes() - before
        own, delta = read_bytes(self.node, STRIPE) - own, len(self.new) * BLOCK
        report(
            f"a new version of {self.size // MIB} MiB: its own stripes gave {own / delta:.2f} "
            f"times its new blocks; {came / self.size:.0%} of it were received, with what the "
            "cache of the earlier version lacked"
        )
        self.assertLess(own, MOST * delta)
        self.assertLess(came, RECEIVED * self.size)

        self.deployment.kill_agent(self.node)
        self.deployment.start_agent(self.node, self.options)
        self.await_lender()
        (self.node.share / "stop").unlink(missing_ok=True)
        reader = self.node.spawn(["python3", "-c", READER, second, str(self.size)], log="reads")
        self.destroy(self.node, "vm1")
        self.virtman(self.node, "image", "drop", self.image, timeout=120)
        self.assertEqual([], self.lenders())
        self.start(self.image, "vm1")
        self.await_lender()
        (self.node.share / "stop").touch()
        self.node.run(["tail", f"--pid={reader}", "-f", "/dev/null"], timeout=60)
        self.assertEqual("read all\n", (self.node.share / "reads").read_text())
        self.cool()
        self.assertEqual(expected, sha256(self.node, second))

    def test_wrong_bytes_of_a_lender_reach_no_vm(self):
        expected = self.add()
        first = self.start(self.image, "vm1")
        self.assertEqual(self.sha256, sha256(self.node, first))
        second = self.start(NEW, "vm2")
        rot(self.node, CACHE, self.content, range(1001 * BLOCK, 1033 * BLOCK, BLOCK))
        self.assertEqual([self.image], self.lenders())
        self.assertEqual(expected, sha256(self.node, second))
        wait_until(lambda: not self.lenders(), "wrong bytes being noticed", 30, 0.5)
        self.assertIn("has wrong bytes", (self.node.share / "agent.log").read_text())
        self.assertEqual(expected, sha256(self.node, second))

    def test_an_image_whose_source_has_gone_holds_nobody_up(self):
        expected = self.add()
        self.start(self.image, "vm1")
        second = self.start(NEW, "vm2")
        self.assertEqual([self.image], self.lenders())
        where = self.deployment.source_options(self.storage)
        self.storage.run(["virtman", "source", "remove", "--force", self.image, *where])
        self.assertEqual(expected, sha256(self.node, second))
        self.deployment.add_source(self.storage, self.image, *self.shape)
        wait_until(
            lambda: self.node.run(["dd", "if=/dev/mapper/virtman_image1_image", "of=/dev/null",
                                   "bs=1M", "iflag=direct"], timeout=120).status == 0,
            "the earlier one being read again", 60, 0.5,
        )  # fmt: skip
