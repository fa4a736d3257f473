"""A node with all of an image needs nobody for it: under load, after a power cut, and with rot."""

import hashlib
import json
import re
import time
from typing import ClassVar

from lab.waiting import wait_until
from tests.system.virtman.base import MIB, NEWER, DeployedCase, each, report, sha256

# Reads blocks at random, past the page cache, until a file is there; prints when each began that
# took long, and how long it took.
READER = """
import mmap, os, random, sys, time
disk = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
block, blocks = mmap.mmap(-1, 4096), int(sys.argv[2]) // 4096
while not os.path.exists("/host/stop"):
    begin = time.time()
    os.preadv(disk, [block], random.randrange(blocks) * 4096)
    took = time.time() - begin
    if took > 0.05:
        print(begin, took)
    time.sleep(0.002)
"""
# Writes over a byte of a file, whoever reads it.
ROT = "import os, sys; os.pwrite(os.open(sys.argv[1], os.O_WRONLY), b'rot', int(sys.argv[2]))"
COPY = "/var/lib/virtman/whole/image1.copy"
SMALL = "/var/lib/small"
MOST = 2.0  # seconds for which letting go may hold a VM's read back, on a machine with other load
WRITTEN = 4 * MIB  # at the start of a VM's device


class WholeCase(DeployedCase):
    size = 32 * MIB
    node_count = 2
    paths_may_fail = True
    options: ClassVar = {"store": {"reserve": 16}}

    @classmethod
    def write_image(cls, file):
        """Half of it are zeros, as of any image; return its SHA-256."""
        super().write_image(file)
        with open(file, "r+b") as opened:
            for at in range(2 * MIB, cls.size, 4 * MIB):
                opened.seek(at)
                opened.write(bytes(2 * MIB))
        return hashlib.sha256(file.read_bytes()).hexdigest()

    def _clear(self, node):
        mine = [vm for where, vm in self.created if where is node]
        self.deployment.destroy(node, *mine)
        if node.run(["ls", "/var/lib/virtman/copies"], check=False).stdout.strip():
            self.virtman(node, "image", "release", self.image, timeout=120)
        self.deployment.drop(node, self.image)

    def hydrate(self, node, *words):
        """Have all of the image here."""
        self.virtman(node, "image", "hydrate", "--wait", *words, self.image, timeout=300)
        self.assert_whole(node)

    def assert_whole(self, node):
        self.assertTrue(self.shown(node)["local"])
        self.assertEqual("", self.sessions(node))

    def shown(self, node):
        return json.loads(self.virtman(node, "image", "show", "--json", self.image).stdout)

    def sessions(self, node):
        return node.run(["iscsiadm", "-m", "session"], check=False).stdout

    def log(self, node):
        return (node.share / "agent.log").read_text()

    def await_whole(self, node):
        def here():  # an agent that has just begun may not know it yet
            done = self.virtman(node, "image", "show", "--json", self.image, check=False)
            return done.status == 0 and json.loads(done.stdout)["local"]

        wait_until(here, "all being here", 120, 0.5)

    def boot(self, node):
        """Start a node and its agent after a power cut, and wait for its VMs."""
        node.boot()
        node.wait_up()
        self.start_agent(node)
        wait_until(
            lambda: all(vm["state"] == "ready" for vm in self.vms(node)), "VMs being back", 60, 0.5
        )

    def vms(self, node):
        return json.loads(self.virtman(node, "list", "--json").stdout)


class TestWhole(WholeCase):
    name = "whole"

    def test_a_node_lets_go_of_its_parents_under_load_and_nobody_sees_it(self):
        devices = {node: self.create(node, f"vm-{node.name}") for node in self.nodes}
        whole = self.nodes[0]
        for node in self.nodes:
            (node.share / "stop").unlink(missing_ok=True)
        readers = {
            node: node.spawn(["python3", "-c", READER, device, str(self.size)], log="reads")
            for node, device in devices.items()
        }
        fio = whole.spawn(
            ["fio", "--name=load", f"--filename={devices[whole]}", "--rw=randwrite", "--bs=4k",
             f"--size={WRITTEN}", "--direct=1", "--rate_iops=40", "--verify=crc32c",
             "--verify_backlog=64", "--output-format=json", "--time_based", "--runtime=3600",
             "--continue_on_error=all"],
            log="fio",
        )  # fmt: skip
        begin = time.time()
        self.hydrate(whole, "--rate", "1G")  # else it would hold back for the readers
        end = time.time()
        time.sleep(3)
        for node in self.nodes:
            (node.share / "stop").touch()
        whole.run(["kill", "-INT", str(fio)])
        for node, pid in [*readers.items(), (whole, fio)]:
            node.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=60)
        text = (whole.share / "fio").read_text()
        (job,) = json.loads(text[text.index("{") : text.rindex("}") + 1])["jobs"]
        self.assertEqual(0, job["total_err"])
        took = re.search("image1 needs no parents any more, after ([0-9.]+) s", self.log(whole))
        let_go = end - float(took[1]) - 1
        pauses = {node.name: self.longest(node, let_go) for node in self.nodes}
        report(f"a copy of {self.size // MIB} MiB took {end - begin:.1f} s under load, letting go "
               f"{took[1]} s; longest reads then: {pauses}")  # fmt: skip
        self.assertLess(max(pauses.values()), MOST)
        # the VM wrote there
        skip = ["bs=4M", f"skip={WRITTEN // (4 * MIB)}", "iflag=direct"]
        read = whole.run(["sh", "-c", f"dd if={devices[whole]} {' '.join(skip)} | sha256sum"])
        content = (self.bed.folder / "image").read_bytes()[WRITTEN:]
        self.assertEqual(hashlib.sha256(content).hexdigest(), read.stdout.split()[0])
        self.assertEqual(self.sha256, sha256(self.nodes[1], devices[self.nodes[1]]))
        self.assertEqual("", self.sessions(whole))
        self.assertNotIn("bcache", whole.run(["ls", "/sys/block"]).stdout)

    def longest(self, node, since):
        """Seconds of the longest read that was under way since some moment."""
        lines = (node.share / "reads").read_text().splitlines()
        found = [tuple(map(float, line.split())) for line in lines]
        return round(max([0.0, *(took for begin, took in found if begin + took > since)]), 2)

    def test_it_takes_no_more_than_is_not_zeros(self):
        node = self.nodes[0]
        self.hydrate(node)
        taken = int(node.run(["du", "-k", COPY]).stdout.split()[0]) * 1024
        self.assertLess(taken, self.size * 0.55)
        self.assertEqual(self.sha256, sha256(node, f"/dev/mapper/virtman_{self.image}_image"))

    def test_it_outlives_agents_power_cuts_and_its_source(self):
        node = self.nodes[0]
        device = self.create(node, "vm1")
        self.hydrate(node)
        self.restart_agent(node)
        self.await_whole(node)
        self.assert_whole(node)
        self.storage.kill()
        try:
            node.kill()
            self.boot(node)
            self.await_whole(node)
            self.assert_whole(node)
            self.assertEqual(self.sha256, sha256(node, device))
            self.assertEqual(self.sha256, sha256(node, self.create(node, "vm2")))
        finally:
            self.storage.boot()
            self.storage.wait_up()
            self.deployment.add_source(self.storage, self.image, *self.shape)

    def test_a_copy_goes_on_after_a_power_cut(self):
        node = self.nodes[0]
        self.virtman(node, "image", "hydrate", "--rate", "1M", self.image)
        wait_until(lambda: self.shown(node)["copy"]["fetched"] > 8 * MIB, "half of it", 60, 0.2)
        node.kill()
        self.boot(node)
        self.virtman(node, "image", "hydrate", self.image)
        self.await_whole(node)
        again = self.shown(node)["copy"]["fetched"]
        report(f"after a power cut {again >> 20} of 16 MiB were fetched")
        self.assertLess(again, 16 * MIB - 1 * MIB)
        self.assertEqual(self.sha256, sha256(node, f"/dev/mapper/virtman_{self.image}_image"))

    def test_a_bit_that_flips_in_a_copy_is_never_seen_and_mended(self):
        node = self.nodes[0]
        device = self.create(node, "vm1")
        self.hydrate(node)
        self.rot(node, 5 * MIB)
        found = json.loads(self.virtman(node, "image", "scrub", "--json", self.image).stdout)
        self.assertEqual([5 * MIB], found["dropped"])
        self.await_whole(node)
        self.rot(node, 9 * MIB)
        begin = time.monotonic()
        self.assertEqual(self.sha256, sha256(node, device))
        report(f"a VM read all over a wrong block in {time.monotonic() - begin:.1f} s, no error")
        wait_until(lambda: self.log(node).count("needs no parents any more") >= 3, "mending", 60)
        found = json.loads(self.virtman(node, "image", "scrub", "--json", self.image).stdout)
        self.assertEqual([], found["dropped"])

    def rot(self, node, at):
        node.run(["python3", "-c", ROT, COPY, str(at)])
        node.drop_caches()


class TestDemand(WholeCase):
    """With links that are so slow that whoever reads what is not here waits."""

    name = "demand"
    release = NEWER
    link_rate = "8mbit"

    def test_a_copy_holds_back_while_vms_of_another_node_wait(self):
        first, second = self.nodes
        self.create(first, "vm1")
        device = self.create(second, "vm2")
        stop = second.share / "stop"
        stop.unlink(missing_ok=True)
        self.addCleanup(stop.touch)
        reader = second.spawn(["python3", "-c", READER, device, str(self.size)], log="reads")
        wait_until(lambda: self.waits(second), "Volt knowing that its VM waits", 20, 0.2)
        self.virtman(first, "image", "hydrate", self.image)
        wait_until(lambda: self.shown(first)["copy"]["held_back"], "the copy holding back", 20, 0.2)
        before = self.shown(first)["copy"]["fetched"]
        time.sleep(4)
        slowly = self.shown(first)["copy"]["fetched"] - before
        stop.touch()
        second.run(["tail", f"--pid={reader}", "-f", "/dev/null"], timeout=60)
        begin = time.monotonic()
        self.await_whole(first)
        report(f"beside a VM of another node {slowly >> 10} KiB were copied in 4 s, and all "
               f"{time.monotonic() - begin:.1f} s after it read no more")  # fmt: skip
        self.assertLess(slowly, MIB // 2)

    def waits(self, node):
        told = self.deployment.ask("GET", f"/v1/hosts/{node.name}")["report"]["images"]
        return told.get(self.image, {}).get("waits")


class TestSourceGone(WholeCase):
    name = "gone"
    release = NEWER
    node_count = 5

    def test_new_nodes_join_boot_and_verify_all_after_the_end_of_the_source(self):
        first, *others = self.nodes
        device = self.create(first, "vm1")
        self.hydrate(first)
        told = self.deployment.manage("image", "show", self.image)
        self.assertIn("independent of its source", told)
        self.deployment.manage("image", "rehome", self.image, first.name)
        self.storage.kill()
        try:
            begin = time.monotonic()
            devices = each(others, lambda node: self.create(node, f"vm-{node.name}"))
            report(f"4 nodes joined without a source in {time.monotonic() - begin:.1f} s")
            found = each(zip(others, devices, strict=True), lambda pair: sha256(*pair))
            self.assertEqual([self.sha256] * 4, found)
            self.assertEqual(self.sha256, sha256(first, device))
            self.assert_whole(first)
        finally:
            self.storage.boot()
            self.storage.wait_up()
            self.deployment.add_source(self.storage, self.image, *self.shape)
            self.deployment.manage("image", "rehome", "--source", self.image)


class TestKept(WholeCase):
    name = "kept"
    release = NEWER
    node_count = 4

    def test_volt_keeps_a_copy_and_vms_read_on_and_come_when_the_source_dies(self):
        *early, late = self.nodes
        devices = {node: self.create(node, f"vm-{node.name}") for node in early}
        self.deployment.manage("image", "hydrate", self.image, "--copies", "1")
        first = self.await_copy(early)
        begin = time.monotonic()
        self.virtman(first, "image", "release", self.image, timeout=120)
        self.await_copy([node for node in early if node is not first])
        report(f"a copy that was given back was replaced in {time.monotonic() - begin:.1f} s")
        self.storage.kill()
        try:
            begin = time.monotonic()
            found = each(devices.items(), lambda pair: sha256(*pair))
            report(f"3 VMs read all without a source in {time.monotonic() - begin:.1f} s")
            self.assertEqual([self.sha256] * 3, found)
            self.assertNotIn("home:", self.deployment.manage("image", "show", self.image))
            begin = time.monotonic()
            device = self.create(late, "late")
            report(f"a node joined after the source died in {time.monotonic() - begin:.1f} s")
            self.assertEqual(self.sha256, sha256(late, device))
        finally:
            self.deployment.manage("image", "hydrate", self.image, "--never")
            self.storage.boot()
            self.storage.wait_up()
            self.deployment.add_source(self.storage, self.image, *self.shape)

    def await_copy(self, nodes):
        """Return the one node that has all of the image, once one has."""
        found = []

        def look():
            found[:] = [node for node in nodes if self.shown(node)["local"]]
            return bool(found)

        wait_until(look, "a whole copy", 180, 0.5)
        (node,) = found
        return node


class TestFullDisk(WholeCase):
    name = "full"
    node_count = 1
    options: ClassVar = {"whole": {"folder": SMALL}}

    @classmethod
    def start_agents(cls):
        for node in cls.nodes:
            node.run(["mkdir", SMALL])
            node.run(["mount", "-t", "tmpfs", "-o", "size=24M", "small", SMALL])
        super().start_agents()

    def test_a_full_disk_stops_the_copy_and_no_vm(self):
        (node,) = self.nodes
        device = self.create(node, "vm1")
        self.virtman(node, "image", "hydrate", "--rate", "1M", self.image)
        wait_until(lambda: self.shown(node)["copy"]["fetched"] > 2 * MIB, "a part of it", 60, 0.2)
        node.run(["dd", "if=/dev/zero", f"of={SMALL}/other", "bs=1M"], check=False)
        wait_until(lambda: self.shown(node)["copy"]["state"] == "stopped", "its end", 60, 0.2)
        self.assertIn("No space left", self.shown(node)["copy"]["verdict"])
        self.assertEqual(self.sha256, sha256(node, device))
        node.run(["rm", f"{SMALL}/other"])
        self.hydrate(node)
        self.assertEqual(self.sha256, sha256(node, device))
