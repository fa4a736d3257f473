"""A process with the filter asks for huge pages, and this machine's kernel does not hear of it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import testtools

from virtman.model.sizes import READ_AHEAD

MIB = 1 << 20

# Maps 8 MiB, asks for huge pages, and prints how many mappings shall have them.
SCRIPT = """
import mmap, os, sys
from virtman.qemu import sandbox
if sys.argv[1:] == ["filtered"]:
    sandbox.have_no_huge_pages()
memory = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(14)
memory.madvise(mmap.MADV_RANDOM)
print(sum(" hg" in line for line in open("/proc/self/smaps") if line.startswith("VmFlags")))
os.execv(sys.executable, [sys.executable, "-c", "print(open('/proc/self/status').read())"])
"""
# Maps a device as guests' memory is mapped, asks for huge pages, and reads one byte.
TOUCH = """
import mmap, os, sys
from virtman.qemu import sandbox
if sys.argv[2:] == ["filtered"]:
    sandbox.have_no_huge_pages()
device = os.open(sys.argv[1], os.O_RDONLY)
memory = mmap.mmap(device, 8 << 20, flags=mmap.MAP_PRIVATE)
memory.madvise(14)
memory[4 << 20]
"""


class SandboxTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        if not Path("/sys/kernel/mm/transparent_hugepage").exists():
            self.skipTest("this kernel has no huge pages that a program could ask for")

    def run_(self, *words):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=True
        )
        asked, _, status = done.stdout.partition("\n")
        return int(asked), status

    def device(self):
        """Return a block device of 8 MiB that reads ahead as those of images do."""
        if os.geteuid():
            self.skipTest("only root makes block devices")
        file = self.enterContext(tempfile.NamedTemporaryFile())
        file.truncate(8 * MIB)
        words = ["losetup", "--find", "--show", "--read-only", file.name]
        device = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        self.addCleanup(subprocess.run, ["losetup", "--detach", device], check=True)
        queue = Path("/sys/block", Path(device).name, "queue/read_ahead_kb")
        queue.write_text(str(READ_AHEAD // 1024))
        return device

    def read_bytes(self, *words):
        """Return how much is read of a new device when one byte of its mapping is touched."""
        device = self.device()
        statistics = Path("/sys/block", Path(device).name, "stat")
        before = int(statistics.read_text().split()[2])
        subprocess.run([sys.executable, "-c", TOUCH, device, *words], check=True)
        return (int(statistics.read_text().split()[2]) - before) * 512

    def test_without_it_the_kernel_hears_of_it(self):
        self.assertGreater(self.run_()[0], 0)

    def test_with_it_nothing_is_asked_and_what_is_run_then_has_it_too(self):
        asked, status = self.run_("filtered")
        self.assertEqual(0, asked)
        self.assertIn("NoNewPrivs:\t1", status)
        self.assertIn("Seccomp:\t2", status)

    def test_a_touch_of_a_mapped_device_reads_huge_pages_only_without_it(self):
        self.assertGreaterEqual(self.read_bytes(), 2 * MIB)
        self.assertLessEqual(self.read_bytes("filtered"), 2 * READ_AHEAD)
