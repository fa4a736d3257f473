"""Things that die: no VM sees it, and what is left can be given back."""

import hashlib
import json
import re
import time

from lab.waiting import wait_until
from tests.system.virtman.base import MIB, DeployedCase, at_once, report, sha256

# Has a node's agent hang once children can log in, before it has anything of the image.
HANG = """
until grep -qs '[a-z0-9]' /sys/kernel/config/target/iscsi/*:"$0"/tpgt_1/auth/userid; do
    sleep 0.01
done
exec pkill -STOP -f virtman.cmd.agent
"""
AWAY = 25  # seconds: longer than Volt waits for heartbeats
# Withdraws an image's disks while the threads that end its sessions get next to no time; prints
# which those were, and which of them are still there then.
WITHDRAW = """
import json, subprocess, sys
sys.path.insert(0, "/opt/src")
from pathlib import Path
from virtman.privileged import context, lio
context.set_client_mode(False)
def threads():
    return subprocess.run(["pgrep", "iscsi_t[rt]x"], stdout=subprocess.PIPE).stdout.decode().split()
(target,) = Path("/sys/kernel/config/target/iscsi").glob(f"iqn*:{sys.argv[1]}")
disks = [(int(one.parent.name[4:]), one.resolve().name)
         for one in target.glob("tpgt_1/lun/lun_*/*") if one.is_symlink()]
late = threads()
for one in late:
    subprocess.run(["chrt", "--idle", "--pid", "0", one], check=True)
with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
    try:
        for lun, name in disks:
            lio.withdraw(name, target.name, lun)
        print(json.dumps([late, sorted(set(late) & set(threads()))]))
    finally:
        busy.kill()
"""


class TestParentDies(DeployedCase):
    name = "parent"
    node_count = 3
    size = 64 * MIB
    link_rate = "20mbit"
    paths_may_fail = True

    def test_a_parent_that_loses_power_is_an_error_for_nobody(self):
        parent, child, late = self.nodes
        self.create(parent, "vm1")
        device = self.create(child, "vm2")
        before = child.received_bytes()
        pid = child.spawn(["sha256sum", device], log="sum")
        wait_until(lambda: child.received_bytes() - before > 8 * MIB, "reading", 60)
        parent.kill()
        begin = time.monotonic()
        wait_until(lambda: parent.name not in self.parents(child), "another parent", 30, 0.05)
        report(f"parent lost its power: Volt had another for its child {since(begin)} s later")
        wait_until(lambda: self.is_ready(child), "the other parent in use", 30, 0.05)
        report(f"parent lost its power: the child read from another {since(begin)} s later")
        child.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=180)
        self.assertEqual(self.sha256, (child.share / "sum").read_text().split()[0])
        report(f"parent lost its power: the child had all data {since(begin)} s later, "
               "without an error")  # fmt: skip
        self.assertEqual(self.sha256, sha256(late, self.create(late, "vm3")))

    def test_a_node_that_was_away_is_placed_again_by_itself(self):
        away, child = self.nodes[1:]
        own, device = self.create(away, "vm1"), self.create(child, "vm2")
        self.assertIn(away.name, self.parents(child))
        away.pause()
        paused = time.monotonic()
        try:
            wait_until(lambda: away.name not in self.deployment.depths(self.image),
                       "its place taken away", 60, 0.2)  # fmt: skip
            report(f"a node stopped answering: Volt expired it {since(paused)} s later")
            self.assert_reads_right(child, device)
            wait_until(lambda: time.monotonic() - paused > AWAY, "time going by", AWAY + 1)
        finally:
            away.resume()
        back, passed = time.monotonic(), since(paused)
        wait_until(lambda: self.has_joined(away), "the node having joined again", 60, 0.2)
        report(f"a node was back after {passed} s: it used its new place {since(back)} s later")
        self.assert_reads_right(away, own)

    def test_vms_that_wait_for_their_source_are_told_of_and_go_on(self):
        node = self.nodes[1]
        device = self.create(node, "vm1")
        self.storage.pause()
        try:
            words = ["dd", f"if={device}", "bs=64k", "count=1", "skip=900", "iflag=direct"]
            begin = time.monotonic()
            pid = node.spawn([*words, "of=/host/block"], log="read")
            wait_until(lambda: self.waiting(node) >= 10, "their waiting", 60, 0.5)
            said = self.virtman(node, "node", "check", check=False).stdout
            self.assertIn(f"image.waits: {self.image}", said)
            said = self.virtman(node, "image", "list").stdout
            told = re.search(f"{self.image} .*waits for .*: ([0-9]+) s", said)
            self.assertIsNotNone(told, said)
            # as long as it has been by then: the kernel's search for a path slows all else down
            self.assertIn(int(told[1]), range(10, round(time.monotonic() - begin) + 1))
        finally:
            self.storage.resume()
        node.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=60)
        with open(self.bed.folder / "image", "rb") as image:
            image.seek(900 * 65536)
            self.assertEqual(image.read(65536), (node.share / "block").read_bytes())
        wait_until(lambda: not self.waiting(node), "the end of it", 30, 0.5)
        told = (node.share / "agent.log").read_text()
        self.assertIn("VMs wait for what they read", told)
        self.assertIn("VMs have what they read again", told)
        wait_until(lambda: self.has_joined(node), "all being as it was", 60, 0.5)

    def waiting(self, node):
        said = self.virtman(node, "image", "list", "--json").stdout
        (found,) = json.loads(said)
        return found["waiting"]

    def assert_reads_right(self, node, device):
        """Compare the beginning of a device with the image."""
        with open(self.bed.folder / "image", "rb") as image:
            expected = image.read(8 * MIB)
        read = node.run(["head", "-c", str(len(expected)), device], timeout=180).stdout_bytes
        self.assertEqual(hashlib.sha256(expected).digest(), hashlib.sha256(read).digest())

    def has_joined(self, node):
        """Tell whether a node uses a place, which it may not have."""
        return node.name in self.deployment.depths(self.image) and self.is_ready(node)

    def place(self, node):
        return self.deployment.ask("GET", f"/v1/images/{self.image}/hosts/{node.name}")

    def parents(self, node):
        return [feed["parent"]["host"] for feed in self.place(node)["stripes"]]

    def is_ready(self, node):
        return self.place(node)["state"] == "ready"


class TestParentHangs(DeployedCase):
    name = "hangs"
    node_count = 2
    size = 16 * MIB
    shape = (1, 1)
    paths_may_fail = True

    def test_a_parent_that_never_gets_the_image_holds_its_child_up_no_longer_than_others(self):
        parent, child = self.nodes
        words = ["create", self.image, "vm1"]
        created, _ = at_once(
            lambda: self.virtman(parent, *words, check=False, timeout=300),
            lambda: self.read_below(parent, child),
        )
        if not created.status:  # else Volt has given its place up meanwhile
            self.created.append((parent, "vm1"))

    def read_below(self, parent, child):
        """Have a node read all while its parent's agent hangs, which serves the image already."""
        parent.run(["sh", "-c", HANG, self.image], timeout=60)
        with self.agent_held(parent):
            device = self.create(child, "vm2")
            begin = time.monotonic()
            self.assertEqual(self.sha256, sha256(child, device))
            report(f"a parent hung from the start: its child had read all {since(begin)} s later")
        log = (child.share / "agent.log").read_text()
        self.assertIn(f"{parent.name} answers no reads", log)


class TestDiskGoes(DeployedCase):
    name = "disk"
    node_count = 1
    size = 16 * MIB
    paths_may_fail = True

    def test_a_disk_that_somebody_took_away_is_found_again(self):
        (node,) = self.nodes
        device = self.create(node, "vm1")
        # the other one, of the leaves of the hash tree, keeps the session open
        (disk,) = node.run(["sh", "-c", "ls -d /sys/bus/scsi/devices/[0-9]*:0"]).stdout.split()
        node.run(["dd", f"of={disk}/delete", "status=none"], input="1")
        begin = time.monotonic()
        self.assertEqual(self.sha256, sha256(node, device))
        report(f"a disk was taken away: a VM had read all of it {since(begin)} s later")


class TestSourceGoes(DeployedCase):
    name = "goes"
    node_count = 1
    size = 16 * MIB
    paths_may_fail = True

    def test_a_target_outlives_its_sessions_however_late_they_end(self):
        (node,) = self.nodes
        device = self.create(node, "vm1")
        begin = time.monotonic()
        done = self.storage.run(["python3", "-c", WITHDRAW, self.image])
        report(
            f"a kernel with no time to end its sessions withdrew a target {since(begin)} s later"
        )
        threads, left = json.loads(done.stdout)
        self.assertNotEqual([], threads)
        self.assertEqual([], left)
        self.deployment.add_source(self.storage, self.image, *self.shape)
        wait_until(lambda: self.reads_all(node, device), "the image being read again", 60, 0.5)
        self.assertEqual(self.sha256, sha256(node, device))


class TestAgentDies(DeployedCase):
    name = "agent"
    node_count = 1
    size = 16 * MIB

    def test_a_new_agent_takes_over_what_runs(self):
        (node,) = self.nodes
        self.deployment.kill_agent(node)
        node.run(["ln", "-sfn", "virtman", "/var/lib/linked"])  # as where the disk is elsewhere
        options = {"agent": {"state_dir": "/var/lib/linked"}}
        self.deployment.start_agent(node, options)
        device = self.create(node, "vm1")
        node.run(["dd", f"of={device}", "bs=512", "seek=9", "conv=fsync"], input="mine".ljust(512))
        tables, loops = self.kernel(node)
        holder = node.spawn(["sh", "-c", f"exec 3<{device}; exec sleep 600"], log="holder")
        self.deployment.kill_agent(node)
        self.deployment.start_agent(node, options)
        self.await_takeover(node, "vm1")
        self.assertEqual((tables, loops), self.kernel(node))
        node.run(["kill", str(holder)])
        self.assertEqual("mine", self.written(node, device))

    def test_after_a_power_cut_a_vm_has_its_device_and_data_again_even_without_volt(self):
        (node,) = self.nodes
        device = self.create(node, "vm1")
        node.run(["dd", f"of={device}", "bs=512", "seek=9", "conv=fsync"], input="mine".ljust(512))
        node.run(["sync"])
        node.restart()
        # as power cuts do, too: what open-iscsi knows of parents was not on the disk yet
        node.run(["sh", "-ec", "for record in $(find /etc/iscsi/nodes -type f); do "
                  "head -c 4096 /dev/zero > $record; done"])  # fmt: skip
        self.deployment.start_agent(node, {"volt": {"url": "http://198.51.100.1:8778"}})
        wait_until(
            lambda: node.run(["test", "-e", device], check=False).status == 0,
            "the VM's device",
            60,
            0.5,
        )
        self.assertEqual("mine", self.written(node, device))
        self.assertEqual(self.sha256, sha256(node, self.create(node, "vm2")))
        self.restart_agent(node)
        self.await_takeover(node, "vm1", "vm2")

    def test_check_mends_what_others_broke(self):
        (node,) = self.nodes
        device = self.create(node, "vm1")
        self.virtman(node, "node", "check")
        node.run(["dmsetup", "remove", f"virtman_{self.image}_vm_vm1"])
        stray = "/var/lib/virtman/images/ghost.upper"
        node.run(["sh", "-ec", f"truncate -s 1M {stray}; losetup --find {stray}; "
                  "dmsetup create theirs --table '0 8 zero'"])  # fmt: skip
        done = self.virtman(node, "node", "check", "--json", check=False)
        found = {one["code"] for one in json.loads(done.stdout)["found"]}
        self.assertEqual({"vm.absent", "loop.orphan"}, found)
        self.assertEqual(3, done.status)
        begin = time.monotonic()
        self.virtman(node, "node", "check", "--repair")
        report(f"virtman node check repaired two differences in {since(begin)} s")
        node.run(["test", "-e", device])
        node.run(["dmsetup", "remove", "theirs"])

    def kernel(self, node):
        """Tables of devices, and what loop devices show."""
        return (node.run(["dmsetup", "table"]).stdout,
                node.run(["losetup", "--list", "--noheadings"]).stdout)  # fmt: skip

    def written(self, node, device):
        done = node.run(["dd", f"if={device}", "bs=512", "skip=9", "count=1", "iflag=direct"])
        return done.stdout.strip()


def since(begin):
    return f"{time.monotonic() - begin:.1f}"
