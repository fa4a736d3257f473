"""Rows of the fault table: nodes, networks and Volt that go, and come back."""

import time
from typing import ClassVar

from lab.waiting import wait_until
from tests.faults.base import BEHIND, SSD, SSD_SECTORS, FaultCase
from tests.system.virtman.base import MIB, each, report, sha256
from tests.system.virtman.rot import BLOCK, rot

CHAIN = "chain"
HANGING = 20
# Seconds; parents that are connected for less than NEW get that much time to answer.
NOTICED, NEW, TAKEN_OVER, HUNG, SOURCE_AWAY, CUT, VOLT_AWAY = 3, 10, 15, 60, 60, 35, 120
ROTTEN = 32  # each n-th block that a cache device forgets
KEPT = 88  # MiB, where something is written that must outlive a power cut


class TestNodes(FaultCase):
    name = "faults"
    node_count = 3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.deployment.add_source(cls.storage, CHAIN, 1, 1)

    def populate(self, count=3):
        """A VM on each of some nodes; return their devices."""
        devices = [self.create(node, f"vm-{node.name}") for node in self.nodes[:count]]
        self.await_ready(*self.nodes[:count])
        return devices

    def test_a_parent_is_killed(self):
        parent, child, _ = self.nodes
        *_, device = self.populate(2)
        self.assertIn(parent.name, self.parents(child))
        log = child.share / "agent.log"
        with self.unseen("parent killed", child, device) as fault:
            parent.kill()
            told = f"the kernel of {parent.name} is silent"
            wait_until(lambda: told in log.read_text(), "the parent being missed", NOTICED, 0.05)
            report(f"parent killed: its child noticed after {time.time() - fault:.1f} s")
        self.revive(parent)

    def test_parent_and_standby_are_killed_at_once(self):
        self.image = CHAIN
        first, second, child = self.nodes
        *_, device = self.populate()
        self.assertEqual([second.name], self.parents(child))
        row = "parent and standby killed at once"
        with self.unseen(row, child, device, at_most=TAKEN_OVER):
            first.kill()
            second.kill()
        self.revive(first, second)

    def test_a_parent_answers_no_reads_though_its_kernel_lives(self):
        parent, child, _ = self.nodes
        *_, device = self.populate(2)
        self.assertIn(parent.name, self.parents(child))
        exports = [f"virtman_{self.image}_export{stripe}" for stripe in range(self.shape[0])]
        self.pass_time(time.time(), NEW)
        row = f"parent answers no reads for {HUNG} s"
        with self.unseen(row, child, device, at_most=TAKEN_OVER) as fault:
            for export in exports:
                parent.run(["dmsetup", "suspend", "--noflush", "--nolockfs", export])
            self.addCleanup(self.resume, parent, exports)
            self.pass_time(fault, HUNG)
            self.read_image(child)  # all of it comes from elsewhere by now
            self.resume(parent, exports)
            resumed = time.time()
            wait_until(lambda: self.is_whole(child), "its paths being used again", 60, 0.2)
            report(f"{row}: its paths are used again {time.time() - resumed:.1f} s after that")
        log = (child.share / "agent.log").read_text()
        given_up = f"image {self.image}: {parent.name} answers no reads"
        self.assertEqual(1, log.count(given_up))

    def is_whole(self, node):
        return self.virtman(node, "node", "check", check=False).status == 0

    def test_a_grandparent_answers_no_reads_though_its_kernel_lives(self):
        self.image = CHAIN
        first, second, child = self.nodes
        *_, device = self.populate()
        self.assertEqual([second.name], self.parents(child))
        export = f"virtman_{CHAIN}_export0"
        self.pass_time(time.time(), NEW)
        row = f"grandparent answers no reads for {HUNG} s"
        with self.unseen(row, child, device, at_most=TAKEN_OVER) as fault:
            first.run(["dmsetup", "suspend", "--noflush", "--nolockfs", export])
            self.addCleanup(self.resume, first, [export])
            self.pass_time(fault, HUNG)
            self.read_image(child)
            self.resume(first, [export])

    def resume(self, node, devices):
        node.run(["dmsetup", "resume", *devices])

    def test_the_source_is_killed_while_the_working_set_is_cached(self):
        (node, *_), (device,) = self.nodes, self.populate(1)
        wait_until(lambda: self.is_all_cached(node), "a cache with all of the image", 120, 0)
        self.addCleanup(self.restore_source)
        with self.unseen("source killed, all cached", node, device) as fault:
            self.storage.kill()
            self.pass_time(fault, 20)

    def is_all_cached(self, node):
        """Read all of an image; tell if nothing was fetched: a cache does not keep all at once."""
        stripe = f"/dev/mapper/virtman_{self.image}_stripe"
        before = node.read_bytes(stripe)
        self.read_image(node)
        return node.read_bytes(stripe) == before

    def test_the_source_comes_back_after_a_minute(self):
        (node, *_), (device,) = self.nodes, self.populate(1)
        row = f"source away for {SOURCE_AWAY} s, little cached"
        with self.unseen(row, node, device, deadline=120) as fault:
            self.storage.kill()
            self.pass_time(fault, SOURCE_AWAY)
            self.restore_source()

    def test_a_vm_at_its_quota_waits_though_others_wait_for_their_source(self):
        (node, *_), (device,) = self.nodes, self.populate(1)
        wait_until(lambda: self.is_all_cached(node), "a cache with all of the image", 120, 0)
        warm, cold = f"vm-{node.name}", [f"cold{number}" for number in range(HANGING)]
        self.virtman(node, "vm", "limit", warm, "2M")
        for vm in cold:
            self.virtman(node, "create", "--quota", "1M", CHAIN, vm)
            self.created.append((node, vm))
        self.addCleanup(lambda: self.storage.alive() or self.restore_source())
        self.storage.kill()
        pids = []
        for number, vm in enumerate(cold):
            hung = f"/dev/mapper/virtman_{CHAIN}_vm_{vm}"
            read = f"dd if={hung} of=/dev/null bs=1M count=1 skip={50 + number} iflag=direct"
            both = f"({read}; echo read $?) & {self.fill(hung)}; wait"
            pids.append(node.spawn(["sh", "-c", both], log=vm))
        pids.append(node.spawn(["sh", "-c", self.fill(device)], log=warm))
        wait_until(lambda: self.show(node, warm)["state"] == "waits", f"{warm} waiting", 60, 0.2)
        taken = self.show(node, warm)["taken"] / MIB
        report(f"{HANGING} VMs wait for their source: another with a quota of 2 MiB waited with "
               f"{taken:.1f} MiB taken")  # fmt: skip
        self.restore_source()
        for vm in (warm, *cold):
            self.virtman(node, "vm", "limit", vm, "0")
        for vm, pid in zip((*cold, warm), pids, strict=True):
            node.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=120)
            said = (node.share / vm).read_text()
            self.assertIn("written 0", said)
            self.assertNotIn("read 1", said)
        self.deployment.destroy(node, *cold)
        self.created = [one for one in self.created if one[1] == warm]
        self.deployment.drop(node, CHAIN)

    def fill(self, device):
        """What writes 8 MiB, whole chunks, to a device, and says how that went."""
        zeros = f"dd if=/dev/zero of={device} bs=64k count=128 oflag=direct"
        return f"{zeros}; echo written $?"

    def restore_source(self):
        self.storage.boot()
        self.storage.wait_up()
        self.deployment.add_source(self.storage, self.image, *self.shape)
        self.deployment.add_source(self.storage, CHAIN, 1, 1)

    def test_the_network_of_a_node_is_cut_and_comes_back(self):
        child, devices = self.nodes[2], self.populate()
        row = f"network cut for {CUT} s"
        with self.unseen(row, child, devices[2], deadline=120) as fault:
            child.cut()
            try:
                self.pass_time(fault, CUT)
            finally:
                child.heal()
        self.await_ready(*self.nodes)

    def test_volt_is_away_and_comes_back_to_an_empty_network(self):
        backup = self.keep_database()
        child, devices = self.nodes[2], self.populate()
        with self.unseen(f"Volt away for {VOLT_AWAY} s", child, devices[2]) as fault:
            self.deployment.stop_volt()
            self.assertEqual(self.sha256, sha256(child, self.create(child, "vm-meanwhile")))
            report(f"Volt away: a VM of an attached image was created and read in "
                   f"{time.time() - fault:.1f} s")  # fmt: skip
            self.pass_time(fault, VOLT_AWAY)
            self.deployment.restart_volt()
            self.await_ready(*self.nodes)
        with self.unseen("Volt knew no agent", child, devices[2]) as fault:
            self.deployment.stop_volt()
            self.restore_database(backup)
            self.deployment.restart_volt()
            self.await_ready(*self.nodes)
            report(f"Volt knew no agent: all were placed again after {time.time() - fault:.1f} s")

    def keep_database(self):
        """Keep what Volt knows before any agent has joined."""
        self.deployment.stop_volt()
        kept = {file.name: file.read_bytes() for file in self.deployment.folder.glob("*.sqlite*")}
        self.deployment.restart_volt()
        return kept

    def restore_database(self, kept):
        for file in self.deployment.folder.glob("*.sqlite*"):
            file.unlink()
        for name, content in kept.items():
            (self.deployment.folder / name).write_bytes(content)

    def test_a_node_loses_its_power_and_is_booted(self):
        (node, *_), (device,) = self.nodes, self.populate(1)
        written = ["fio", "--name=kept", f"--filename={device}", "--rw=write", "--bs=4k",
                   f"--offset={KEPT}M", "--size=8M", "--direct=1", "--verify=crc32c",
                   "--ioengine=psync", "--end_fsync=1"]  # fmt: skip
        node.run([*written, "--do_verify=0"])
        load = self.load(node, device, size=KEPT * MIB)
        fault = time.time()
        node.kill()
        self.revive(node)
        took = time.time() - fault
        node.run([*written, "--verify_only"])
        self.assertEqual([], [line for line in load.lines() if line[0] in ("error", "wrong")])
        report(f"power cut and boot: the device was back after {took:.1f} s, 0 bytes lost that "
               "were synced")  # fmt: skip

    def test_the_cache_device_of_a_parent_is_slow(self):
        parent, child, _ = self.nodes
        _, device = self.populate(2)
        self.assertIn(parent.name, self.parents(child))
        self.read_image(parent)
        parent.run(["modprobe", "dm-delay"])
        with self.unseen("parent's cache device slow by 0.3 s", child, device) as fault:
            self.set_ssd(parent, f"0 {SSD_SECTORS} delay {BEHIND} 0 300")
            self.pass_time(fault, 15)
            self.set_ssd(parent, f"0 {SSD_SECTORS} linear {BEHIND} 0")

    def test_a_parent_serves_wrong_bytes(self):
        parent, child, _ = self.nodes
        _, device = self.populate(2)
        self.assertIn(parent.name, self.parents(child))
        self.read_image(parent)
        content = (self.bed.folder / "image").read_bytes()
        told = ("parent_corrupt", parent.name, f"reported by {child.name}")
        with self.unseen("parent serves wrong bytes", child, device) as fault:
            rot(parent, SSD, content, range(0, self.size, ROTTEN * BLOCK))
            wait_until(lambda: told in self.events(), "the parent being reported", 60, 0.5)
            report(f"parent serves wrong bytes: Volt knew after {time.time() - fault:.1f} s")
        self.virtman(parent, "image", "scrub", self.image, timeout=120)
        self.assertEqual(self.sha256, sha256(parent, f"/dev/mapper/virtman_{self.image}_image"))

    def test_the_cache_device_dies_and_another_takes_its_place(self):
        (node, *_), (device,) = self.nodes, self.populate(1)
        with self.unseen("cache device dies, another after 10 s", node, device) as fault:
            self.set_ssd(node, f"0 {SSD_SECTORS} error")
            self.pass_time(fault, 10)
            self.set_ssd(node, f"0 {SSD_SECTORS} linear {BEHIND} {SSD_SECTORS}")
        wait_until(lambda: self.is_cached(node), "a cache in use", 60, 0.5)

    def is_cached(self, node):
        looks = ["sh", "-c", "ls -d /sys/block/bcache*/bcache/cache"]
        return node.run(looks, check=False).status == 0


class TestFullCache(FaultCase):
    """A cache device that is much smaller than what is read."""

    name = "faults-full"
    node_count = 1

    def make_ssd(self, node):
        if node.run(["test", "-e", "/dev/mapper/ssd"], check=False).status:
            node.run(["dmsetup", "create", "ssd"], input=f"0 {40 * MIB // 512} linear {BEHIND} 0")

    def test_the_cache_device_is_full(self):
        (node,) = self.nodes
        device = self.create(node, "vm1")
        with self.unseen("cache device full", node, device, rate=400):
            for _ in range(2):
                self.read_image(node)


class TestCrowd(FaultCase):
    """Links that are full, as all nodes read a cold image at once."""

    name = "crowd"
    node_count = 15
    size = 24 * MIB
    link_rate = "25mbit"
    paths_may_fail = False
    options: ClassVar = {}

    def make_ssd(self, node):
        """Have no cache device: what is read comes from parents."""

    def test_parents_that_are_slow_under_full_load_are_not_given_up(self):
        devices = each(self.nodes, lambda node: self.create(node, f"vm-{node.name}"))
        self.await_ready(*self.nodes)
        begin = time.time()
        sums = each(zip(self.nodes, devices, strict=True), lambda pair: sha256(*pair))
        report(f"15 nodes read {self.size // MIB} MiB at once in {time.time() - begin:.1f} s")
        self.assertEqual({self.sha256}, set(sums))
        for node in self.nodes:
            self.assertNotIn("answers no reads", (node.share / "agent.log").read_text())
            self.assertNotIn("is silent", (node.share / "agent.log").read_text())
