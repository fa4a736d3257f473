"""How a node's kernel is started, and what in its log is a fault."""

from dataclasses import replace
from pathlib import Path

import testtools

from lab.node import faults_in, kernel_command, size_in_bytes
from lab.state import BedRecord, Disk, NodeRecord

BED = BedRecord("demo", None, Path("/cache/root.img"), Path("/src"))
DISKS = (Disk(Path("/image"), readonly=True), Disk(Path("/guest")))
NODE = NodeRecord("node3", 3, "448M", "4G", DISKS)


class TestKernelCommand(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.words = kernel_command(BED, NODE, Path("/beds/demo/node3"), Path("/run/uml"))

    def test_the_kernel_is_the_beds(self):
        self.assertEqual(["linux.uml", "umid=node3"], self.words[:2])
        other = replace(BED, kernel=("sh", "-c", "exec other", "linux.uml"))
        words = kernel_command(other, NODE, Path("/beds/demo/node3"), Path("/run/uml"))
        self.assertEqual([*other.kernel, *self.words[1:]], words)

    def test_root_image_is_shared_and_writes_are_kept_apart(self):
        self.assertIn("ubd0=/beds/demo/node3/root.cow,/cache/root.img", self.words)

    def test_given_images_are_never_written(self):
        self.assertIn("ubd2r=/image", self.words)
        self.assertIn("ubd3=/beds/demo/node3/disk3.cow,/guest", self.words)

    def test_address_and_tap_belong_to_the_same_node(self):
        self.assertIn("lab.address=10.78.0.3/24", self.words)
        (link,) = [word for word in self.words if word.startswith("vec0:")]
        self.assertIn("ifname=tap3,", link)


class TestKernelLog(testtools.TestCase):
    def test_faults_are_found(self):
        for line in (
            "BUG: unable to handle kernel paging request",
            "Oops: 0002 [#1] SMP",
            "Kernel panic - not syncing: Attempted to kill init!",
            "general protection fault, probably for non-canonical address",
            "INFO: task dd:812 blocked for more than 120 seconds.",
            "rcu: INFO: rcu_sched self-detected stall on CPU",
            "WARNING: CPU: 0 PID: 1 at block/bio.c:100",
            "WARNING: block/bio.c:100 at bio_put+0x1/0x20, CPU#0: dd/829",
        ):
            self.assertEqual([line], faults_in(f"EXT4-fs (ubda): mounted\n{line}\n"))

    def test_a_fault_is_shown_with_its_call_trace(self):
        trace = ["WARNING: CPU: 0 PID: 1 at block/bio.c:100 bio_put+0x1/0x20", "Call Trace:",
                 " [<6025a>] ? dm_submit_bio+0x7f/0x98"]  # fmt: skip
        self.assertEqual(trace, faults_in("\n".join(["random: crng init done", *trace, "vda"])))

    def test_reads_ahead_that_meet_others_are_none_and_hide_nothing(self):
        trace = ["Call Trace:", " [<60466>] bio_attempt_back_merge+0x75/0xba"]
        end = "---[ end trace 0000000000000000 ]---"
        fault = ["WARNING: CPU: 0 PID: 1 at block/bio.c:100 bio_put+0x1/0x20", *trace]
        for first in (
            "[14] WARNING: CPU: 0 PID: 9 at block/blk-merge.c:751 blk_rq_set_mixed_merge+0x7f/0x98",
            "WARNING: block/blk-merge.c:685 at blk_rq_set_mixed_merge+0x7f/0x98, CPU#0: dd/829",
        ):
            known = [first, *trace, end]
            self.assertEqual([], faults_in("\n".join(["vda", *known, "vdb"])))
            for lines in ([*fault, end, *known], [*known, *fault, end]):
                self.assertEqual(fault, faults_in("\n".join(lines)))
            self.assertEqual([first, *fault], faults_in("\n".join([first, *fault, end])))

    def test_a_healthy_boot_has_none(self):
        healthy = (
            "debug messages on\nEXT4-fs (ubda): mounted filesystem\nRun /usr/local/sbin/init\n"
        )
        self.assertEqual([], faults_in(healthy))


class TestSize(testtools.TestCase):
    def test_sizes_are_powers_of_two(self):
        self.assertEqual([2048, 1 << 20, 4 << 30], [size_in_bytes(s) for s in ("2K", "1M", "4G")])
