"""Checks by tools that know nothing of VirtMan: of its targets, its devices and its ports."""

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from lab.remote import PORT as LAB_PORT
from lab.rootfs import TOP
from tests.faults.base import PROGRAMS, FaultCase
from tests.system.virtman.base import MIB, DeployedCase, report, sha256

SECONDS = float(os.environ.get("VIRTMAN_FAULTS_EXERCISE", "600"))
FILES, FILE_SIZE = 20, 3 * MIB

# LIO as administrators set it up: a buffered file backstore, here over a plain loop device, with
# what any write-protected target with CHAP has. Arguments: device, size, target, user, secret.
PLAIN = """
import sys
from rtslib_fb import FabricModule, FileIOStorageObject
from rtslib_fb.target import LUN, TPG, NetworkPortal, Target
device, size, target, user, secret, ip = sys.argv[1:]
group = TPG(Target(FabricModule("iscsi"), target), 1)
for name, value in (("authentication", 1), ("generate_node_acls", 1), ("cache_dynamic_acls", 1),
                    ("demo_mode_write_protect", 1)):
    group.set_attribute(name, value)
group.chap_userid, group.chap_password = user, secret
LUN(group, 0, FileIOStorageObject("plain", device, int(size), write_back=True))
NetworkPortal(group, ip, 3261)
group.enable = True
"""
PLAIN_AWAY = """
import sys
from rtslib_fb import FabricModule, RTSRoot
from rtslib_fb.target import Target
Target(FabricModule("iscsi"), sys.argv[1], mode="lookup").delete()
for one in RTSRoot().storage_objects:
    if one.name == "plain":
        one.delete()
"""
TARGET = "iqn.2026-11.org.virtman.lab:plain"
CONFIGFS = "/sys/kernel/config/target/iscsi"

# An export takes no reservations, as a child's would lock its siblings out. The tests of these
# suites fail for both, as nobody may write, but for an export already where they ask who reserves.
RESERVATIONS = {
    "PrinReadKeys", "PrinReportCapabilities", "ProutClear", "ProutPreempt", "ProutRegister",
    "ProutReserve",
}  # fmt: skip


class Failure(NamedTuple):
    """An assertion of libiscsi's that failed; ``place`` is a file and a line."""

    suite: str
    test: str
    place: str


class TestNode(DeployedCase):
    """One node that serves an image, as the network sees it."""

    name = "faults-node"
    node_count = 1
    size = 32 * MIB
    shape = (1, 2)  # in an export of one stripe all blocks can be read

    def setUp(self):
        super().setUp()
        (self.node,) = self.nodes

    def test_an_export_passes_each_check_that_a_plain_target_passes(self):
        device = self.create(self.node, "vm1")
        (target,) = self.sh(f"ls -d {CONFIGFS}/iqn*").split()
        user, secret = self.sh(f"cat {target}/tpgt_1/auth/userid {target}/tpgt_1/auth/password",
                               ).split()  # fmt: skip
        plain = self.serve_plain(user, secret)
        count, expected = self.check(plain, 3261, user, secret)
        same, failed = self.check(os.path.basename(target), 3260, user, secret)
        more = {failure for failure in failed - expected if failure.suite not in RESERVATIONS}
        report(
            f"iscsi-test-cu: of {same} tests of an export {len(_tests(failed))} failed, of {count} "
            f"of plain LIO {len(_tests(expected))}; only of the export: tests "
            f"{sorted(_tests(failed) - _tests(expected)) or 'none'}, assertions "
            f"{sorted(more) or 'none'}"
        )
        self.assertEqual(count, same)
        self.assertEqual(set(), _tests(failed) - _tests(expected))
        self.assertEqual(set(), more)
        self.assertEqual(self.sha256, sha256(self.node, device))

    def serve_plain(self, user, secret):
        """Serve a plain device with LIO alone; return the target's name."""
        self.sh("truncate -s 33M /var/tmp/plain")
        loop = self.sh("losetup --find --show /var/tmp/plain").strip()
        self.addCleanup(self.sh, f"losetup --detach {loop}; rm /var/tmp/plain")
        self.addCleanup(self.node.run, ["python3", "-c", PLAIN_AWAY, TARGET])
        self.node.run(["python3", "-c", PLAIN, loop, str(33 * MIB), TARGET, user, secret,
                       self.node.address])  # fmt: skip
        return TARGET

    def check(self, target, port, user, secret):
        """Run each of libiscsi's tests, destructive ones too; return how many, and what failed."""
        folder = self.bed.folder / f"check-{port}"
        folder.mkdir()
        url = f"iscsi://{user}%{secret}@{self.node.address}:{port}/{target}/0"
        done = self.bed.run_in(
            ["env", "-C", folder, "iscsi-test-cu", "--dataloss", "--normal", "--test=ALL", url],
            300, check=False,
        )  # fmt: skip
        suite, test, failed = "", "", set()
        for line in done.stdout.splitlines():
            if match := re.match(r"Suite (\S+), Test (\S+) had failures:", line):
                suite, test = match.groups()
            elif match := re.match(r" +\d+\. (\S+:\d+) ", line):
                failed.add(Failure(suite, test, match[1]))
        summary = re.search(r"^ +tests +\d+ +(\d+) ", done.stdout, re.MULTILINE)
        self.assertIsNotNone(summary, done.stdout[-2000:] + done.stderr)
        return int(summary[1]), failed

    def test_nothing_listens_but_what_the_documentation_lists(self):
        self.deployment.kill_agent(self.node)
        self.deployment.start_agent(self.node, {"peers": {"ip": self.node.address}})
        self.create(self.node, "vm1")
        found = self.scan(self.node.address)
        report(f"TCP ports of a node that are open: {sorted(found)}")
        self.assertEqual({*documented_ports(), LAB_PORT}, found)
        # no one answers on UDP either; what is not bound to the loopback would be shown here
        self.assertEqual("", self.sh("cat /proc/net/udp /proc/net/udp6 | grep -v local_address"
                                     " | grep -v 0100007F: || true"))  # fmt: skip

    def scan(self, address):
        """Return all TCP ports that accept connections."""

        def try_some(ports):
            with self.bed.inside():
                return {port for port in ports if _accepts(address, port)}

        with ThreadPoolExecutor(8) as pool:
            parts = pool.map(try_some, [range(first, 65536, 8) for first in range(1, 9)])
        return set().union(*parts)

    def sh(self, command):
        return self.node.run(["sh", "-c", command]).stdout


def documented_ports():
    """Return the TCP ports that the documentation lists for a compute node."""
    page = (TOP / "doc/source/operator/security.rst").read_text()
    _, _, rows, *_ = re.split(r"^=+ =+ =+\n", page.partition("\nPorts\n")[2], flags=re.MULTILINE)
    host, found = "", set()
    for row in rows.splitlines():
        host = row[:24].strip() or host
        if host == "compute node":
            found |= set(map(int, re.findall(r"\d+", row[24:50])))
    return found


def _tests(failed):
    """Return which tests some failures are of."""
    return {f"{failure.suite}.{failure.test}" for failure in failed}


def _accepts(address, port):
    with contextlib.suppress(OSError):
        socket.create_connection((address, port), 2).close()
        return True
    return False


class TestFileSystem(FaultCase):
    """ext4 in the image, its files changed and read while parents lose their power."""

    name = "faults-files"
    node_count = 3
    memory = "384M"

    @classmethod
    def write_image(cls, file):
        folder = cls.bed.folder / "files"
        folder.mkdir()
        content = random.Random(1)
        for number in range(FILES):
            (folder / f"file{number}").write_bytes(content.randbytes(FILE_SIZE))
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", folder, file, f"{cls.size // MIB}M"],
                       check=True)  # fmt: skip
        return ""

    def test_files_are_right_while_parents_are_killed(self):
        *parents, node = self.nodes
        devices = [self.create(one, f"vm-{one.name}") for one in self.nodes]
        self.await_ready(*self.nodes)
        shutil.copytree(self.bed.folder / "files", node.share / "files", dirs_exist_ok=True)
        node.run(["sh", "-ec", f"mkdir -p /mnt/vm; mount -t ext4 {devices[-1]} /mnt/vm"])
        self.addCleanup(node.run, ["sh", "-c", "umount /mnt/vm || true"])
        pid = node.spawn(
            ["python3", f"{PROGRAMS}/exerciser.py", "/mnt/vm", "/host/files", str(SECONDS), "1"],
            log="exerciser",
        )  # fmt: skip
        self.addCleanup(node.run, ["kill", "-KILL", str(pid)], check=False)
        chance, kills, end = random.Random(2), 0, time.time() + SECONDS
        while time.time() < end - 20:
            parent = chance.choice(parents)
            parent.kill()
            kills += 1
            time.sleep(chance.uniform(0, 5))
            self.revive(parent)
            self.await_ready(*self.nodes)
        node.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=SECONDS + 300)
        said = (node.share / "exerciser").read_text()
        self.assertRegex(said, r"\A\d+\n\Z")
        node.run(["umount", "/mnt/vm"])
        node.run(["e2fsck", "-fn", devices[-1]])
        report(f"ext4 over a VM device: {said.strip()} operations in {SECONDS:.0f} s, parents "
               f"killed {kills} times, all files right, the file system clean")  # fmt: skip
