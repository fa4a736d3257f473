"""A new version of an image comes from the earlier one on the same node, on a real kernel."""

import contextlib
import hashlib
import json
import random
import time
from typing import ClassVar

from lab.deployment import SOURCE_DISK
from lab.waiting import wait_until
from tests.system.virtman.base import MIB, DeployedCase, report, sha256
from tests.system.virtman.rot import BLOCK, Rotting

CACHE = "/dev/ubdb"
NEW = "image2"
NETWORK = "vec0"
STRIPE = f"/dev/mapper/virtman_{NEW}_stripe"
EARLIER = f"/dev/mapper/virtman_{DeployedCase.image}_image"
MOST = 1.05  # over the blocks that are new, and read from the image's own parents
RECEIVED = 0.25  # of the image, as a cache lacks a tenth of what went through it
# Far apart, for a cache lacks what it lacks in a row; the new version has nearly all of them.
WRONG = range(1001 * BLOCK, 3000 * BLOCK, 61 * BLOCK)
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


class TestLenders(Rotting, DeployedCase):
    name = "lenders"
    node_count = 2
    size = 32 * MIB
    paths_may_fail = True
    options: ClassVar = {"image": {"keep_time": 600}}

    def setUp(self):
        super().setUp()
        self.node, self.other = self.nodes
        self.moved = ""
        self.content = (self.bed.folder / "image").read_bytes()

    def give_back(self):
        super().give_back()
        self.deployment.remove_source(self.storage, NEW)
        if self.moved:
            self.address("replace")
            self.deployment.remove_source(self.storage, self.image)
            self.address("del")
            self.deployment.add_source(self.storage, self.image, *self.shape)

    def _clear(self, node):
        self.deployment.destroy(node, *(vm for where, vm in self.created if where is node))
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

    def start(self, image, vm, node=None):
        node = node or self.node
        device = self.deployment.create(node, image, vm)["device"]
        self.created.append((node, vm))
        return device

    def lenders(self):
        shown = self.virtman(self.node, "image", "show", "--json", NEW)
        return json.loads(shown.stdout)["lenders"]

    @contextlib.contextmanager
    def reading(self, device, part=1):
        """Read blocks of a device's first part meanwhile; no read may fail."""
        for name in ("stop", "reads"):
            (self.node.share / name).unlink(missing_ok=True)
        size = int(self.size * part)
        reader = self.node.spawn(["python3", "-c", READER, device, str(size)], log="reads")
        try:
            yield
        finally:
            (self.node.share / "stop").touch()
            self.node.run(["tail", f"--pid={reader}", "-f", "/dev/null"], timeout=60)
        self.assertEqual("read all\n", (self.node.share / "reads").read_text())

    def move_source(self):
        """Have the earlier image served at an address of its own, which can be taken away."""
        self.moved = f"{self.storage.address.rpartition('.')[0]}.250"
        self.address("replace")
        self.deployment.remove_source(self.storage, self.image)
        where = ["--ip", self.moved, *self.deployment.source_options(self.storage)]
        self.storage.run(["virtman", "source", "add", self.image, SOURCE_DISK, *where], timeout=60)

    def address(self, verb):
        """Give that address to the storage node, or take it away: nobody answers there then."""
        self.storage.run(["ip", "address", verb, f"{self.moved}/24", "dev", NETWORK])

    def await_device(self, device):
        wait_until(lambda: self.node.run(["test", "-e", device], check=False).status == 0,
                   "the VM's device", 60, 0.2)  # fmt: skip

    def revive(self):
        """Have both parents of the earlier image answer again."""
        self.address("replace")
        self.other.restart()
        self.start_agent(self.other)

    def await_lender(self):
        wait_until(lambda: self.lenders() == [self.image], "the other image lending", 60, 0.5)

    def test_a_new_version_is_right_and_costs_what_is_new(self):
        expected = self.add()
        first = self.start(self.image, "vm1")
        self.assertEqual(self.sha256, sha256(self.node, first))
        second = self.start(NEW, "vm2")
        self.assertEqual([self.image], self.lenders())
        before, own = self.node.received_bytes(), self.node.read_bytes(STRIPE)
        self.assertEqual(expected, sha256(self.node, second))
        came = self.node.received_bytes() - before
        own, delta = self.node.read_bytes(STRIPE) - own, len(self.new) * BLOCK
        report(
            f"a new version of {self.size // MIB} MiB: its own stripes gave {own / delta:.2f} "
            f"times its new blocks; {came / self.size:.0%} of it were received, with what the "
            "cache of the earlier version lacked"
        )
        self.assertLess(own, MOST * delta)
        self.assertLess(came, RECEIVED * self.size)

        self.restart_agent(self.node)
        self.await_takeover(self.node, "vm1", "vm2")
        self.await_lender()
        with self.reading(second):
            self.destroy(self.node, "vm1")
            self.virtman(self.node, "image", "drop", self.image, timeout=120)
            self.assertEqual([], self.lenders())
            self.start(self.image, "vm1")
            self.await_lender()
        self.node.drop_caches()
        self.assertEqual(expected, sha256(self.node, second))

    def test_wrong_bytes_of_a_lender_reach_no_vm(self):
        expected = self.add()
        first = self.start(self.image, "vm1")
        self.assertEqual(self.sha256, sha256(self.node, first))
        second = self.start(NEW, "vm2")
        self.rot(self.node, CACHE, WRONG)
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
            lambda: self.reads_all(self.node, EARLIER), "the earlier one being read again", 60, 0.5
        )

    def test_parents_of_a_lender_that_are_silent_or_die_hold_nobody_up(self):
        expected = self.add()
        self.move_source()
        for node, image, vm in (
            (self.other, self.image, "vm0"),
            (self.node, self.image, "vm1"),
            (self.node, NEW, "vm2"),
        ):
            second = self.start(image, vm, node)
        self.await_lender()
        self.addCleanup(self.revive)
        log = self.node.share / "agent.log"
        with self.reading(second, 1 / 4):
            self.other.kill()
            wait_until(lambda: self.other.name not in str(self.places()), "another place", 60, 0.5)
            self.address("del")
            wait_until(lambda: "the kernel of source is silent" in log.read_text(),
                       "the source being given up", 60, 0.5)  # fmt: skip
        self.node.drop_caches()
        self.assertEqual(expected, sha256(self.node, second))
        self.address("replace")
        wait_until(
            lambda: self.reads_all(self.node, EARLIER), "the earlier one being read again", 60, 0.5
        )

    def test_what_a_scrub_takes_from_a_lender_comes_again_and_a_reboot_changes_nothing(self):
        expected = self.add()
        first = self.start(self.image, "vm1")
        self.assertEqual(self.sha256, sha256(self.node, first))
        second = self.start(NEW, "vm2")
        rotten = self.rot(self.node, CACHE, WRONG)
        self.assertEqual(rotten, self.scrub(self.node))
        self.assertEqual(expected, sha256(self.node, second))
        with self.reading(second):
            self.assertEqual([], self.scrub(self.node))
        self.assertEqual([self.image], self.lenders())
        self.node.run(["sync"])
        self.node.restart()
        self.start_agent(self.node)
        self.await_device(second)
        self.assertEqual(expected, sha256(self.node, second))
        self.await_lender()
        self.node.drop_caches()
        self.assertEqual(expected, sha256(self.node, second))

    def test_an_agent_that_is_killed_as_an_image_borrows_or_gives_back_is_fine(self):
        expected = self.add()
        self.start(self.image, "vm1")
        for step in range(2):
            self.killed(0.4 + 0.8 * step, "create", NEW, "vm2")
            if not self.virtman(self.node, "vm", "show", "vm2", check=False).stdout:
                self.deployment.create(self.node, NEW, "vm2")
            self.created.append((self.node, "vm2"))
            second = f"/dev/mapper/virtman_{NEW}_vm_vm2"
            self.await_device(second)
            self.assertEqual(expected, sha256(self.node, second))
            self.await_lender()
            self.destroy(self.node, "vm1")
            self.killed(0.3 + 0.6 * step, "image", "drop", self.image)
            self.node.drop_caches()
            self.assertEqual(expected, sha256(self.node, second))
            self.start(self.image, "vm1")
            self.await_lender()
            self.destroy(self.node, "vm2")
            self.deployment.drop(self.node, NEW)

    def killed(self, after, *words):
        """Kill the agent so many seconds after a command began, and start the next one."""
        begun = self.node.spawn(["virtman", *words], log="killed")
        time.sleep(after)
        self.restart_agent(self.node)
        self.node.run(["tail", f"--pid={begun}", "-f", "/dev/null"], timeout=60)
