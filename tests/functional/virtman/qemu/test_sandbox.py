"""A process with the filter asks for huge pages, and the kernel does not hear of it."""

import subprocess
import sys
from pathlib import Path

import testtools

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

    def test_without_it_the_kernel_hears_of_it(self):
        self.assertGreater(self.run_()[0], 0)

    def test_with_it_nothing_is_asked_and_what_is_run_then_has_it_too(self):
        asked, status = self.run_("filtered")
        self.assertEqual(0, asked)
        self.assertIn("NoNewPrivs:\t1", status)
        self.assertIn("Seccomp:\t2", status)
