"""A ring on real kernels: hosts that feed each other, owners that die or change under load."""

import hashlib
import json
import time
from collections import Counter
from contextlib import contextmanager

from lab.waiting import wait_until
from tests.system.virtman.base import MIB, NEWER, DeployedCase, each, report, sha256

PIECE = 64 * 1024
STILL = 5  # seconds; after ten, hosts follow whatever their new parents do
# Reads pieces at random, past the page cache, until a file is there; ends at once at an error or at
# a piece that is wrong. Says how many it read, and how long the slowest took.
READER = """
import hashlib, mmap, os, random, sys, time
disk, name = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), sys.argv[2]
known = open("/host/pieces").read().split()
piece, count, longest = mmap.mmap(-1, 65536), 0, 0
while not os.path.exists("/host/stop"):
    number = random.randrange(len(known))
    begun = time.monotonic()
    os.preadv(disk, [piece], number * 65536)
    longest = max(longest, time.monotonic() - begun)
    assert hashlib.sha256(piece).hexdigest() == known[number], number
    count += 1
    time.sleep(0.01)
print(count, f"{longest:.2f}")
"""


class TestRing(DeployedCase):
    name = "ring"
    release = NEWER
    node_count = 4
    kind = "ring"
    shape = (12, 64)
    size = 48 * MIB
    paths_may_fail = True

    def test_a_new_owner_that_hangs_holds_up_no_read(self):
        busy, *others, former = self.nodes
        self.create(former, "vm-other")
        self.addCleanup(self.drain, former, False)
        with self.load([busy, *others]) as longest:
            self.wait_owners(self.nodes)  # whoever follows a placement holds reads back itself
            with self.agent_held(busy):
                self.drain(former, True)
                time.sleep(STILL)
            self.wait_owners([busy, *others])
        self.assertLess(max(longest), STILL)

    def test_all_read_the_source_byte_for_byte_and_it_sends_all_once(self):
        begun = time.monotonic()
        devices = each(self.nodes, lambda node: self.create(node, f"vm-{node.name}"))
        took = time.monotonic() - begun
        report(
            f"a ring of {len(self.nodes)} nodes: all attached after {took:.1f} s, {self.devices()}"
        )
        self.assertEqual({node.name: 3 for node in self.nodes}, dict(Counter(self.owners())))
        before = self.storage.sent_bytes()
        sums = each(zip(self.nodes, devices, strict=True), lambda one: sha256(*one))
        self.assertEqual([self.sha256] * len(self.nodes), sums)
        sent = (self.storage.sent_bytes() - before) / self.size
        report(f"a ring: source sent {sent:.2f} images to {len(self.nodes)} nodes")
        self.assertLess(sent, 1.25)

    def test_owners_that_change_or_die_under_load_are_errors_for_nobody(self):
        *readers, other = self.nodes
        self.create(other, "vm-other")
        with self.load(readers):
            self.drain(other, True)
            self.wait_owners(readers)
            self.drain(other, False)
            self.wait_owners(self.nodes)
            other.kill()  # for good: this test is the last one of this bed
            self.wait_owners(readers)
            time.sleep(1)
        device = f"/dev/mapper/virtman_{self.image}_vm_vm-{readers[0].name}"
        self.assertEqual(self.sha256, sha256(readers[0], device))

    @contextmanager
    def load(self, nodes):
        """Have nodes read at random for as long; all they read must be right.

        Has the seconds of each node's longest read afterwards.
        """
        longest = []
        content = (self.bed.folder / "image").read_bytes()
        pieces = (content[begin : begin + PIECE] for begin in range(0, len(content), PIECE))
        known = "\n".join(hashlib.sha256(piece).hexdigest() for piece in pieces)

        def start(node):
            for of_an_earlier_test in ("stop", "read"):
                (node.share / of_an_earlier_test).unlink(missing_ok=True)
            (node.share / "pieces").write_text(known)
            device = self.create(node, f"vm-{node.name}")
            return node.spawn(["python3", "-c", READER, device, node.name], log="read")

        pids = each(nodes, start)
        try:
            yield longest
        finally:
            for node in nodes:
                (node.share / "stop").touch()
            for node, pid in zip(nodes, pids, strict=True):
                node.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=60)
        for node in nodes:
            said = (node.share / "read").read_text()
            report(
                f"a ring with owners that change and die, pieces and longest read: {said.strip()}"
            )
            self.assertRegex(said, r"^\d+ [\d.]+\n$")
            longest.append(float(said.split()[1]))

    def wait_owners(self, nodes):
        """Wait until these own all stripes, and all of them read from them."""
        begun = time.monotonic()
        names = {node.name for node in nodes}
        wait_until(lambda: set(self.owners()) == names, f"owners {names}", 60, 0.1)
        wait_until(lambda: all(map(self.is_in_use, nodes)), "the owners in use", 60, 0.1)
        took = time.monotonic() - begun
        report(f"a ring: {len(nodes)} nodes own all, and that is in use, {took:.1f} s later")

    def drain(self, node, draining):
        self.deployment.ask("PATCH", f"/v1/hosts/{node.name}", {"draining": draining})

    def owners(self):
        return [
            node["host"]
            for tree in self.deployment.trees(self.image)["trees"]
            for node in tree["nodes"]
            if node["inner"]
        ]

    def is_in_use(self, node):
        """Tell whether a node reads as its newest placement says."""
        place = self.deployment.ask("GET", f"/v1/images/{self.image}/hosts/{node.name}")
        images = json.loads(self.virtman(node, "image", "list", "--json").stdout)
        return place["generation"] in [one["generation"] for one in images]

    def devices(self):
        """Say what the image consists of on a node."""
        count = "dmsetup ls | wc -l; losetup -l -n | wc -l; ls -d /sys/block/sd* | wc -l"
        dm, loops, disks = self.nodes[0].run(["sh", "-c", count]).stdout.split()
        return f"{dm} dm devices, {loops} loop devices and {disks} disks on a node"
