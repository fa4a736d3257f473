"""In which order the processes of a group are ended."""

import fixtures
import testtools

from lab import processes
from lab.processes import Process, Stat

KERNEL = Process(pid=32767, started=5000, what="node node1")
LEADER = Stat(KERNEL.pid, "S", KERNEL.pid, KERNEL.started)


class TestGroup(testtools.TestCase):
    def group(self, *stats):
        self.useFixture(fixtures.MockPatchObject(processes, "all_stats", lambda: iter(stats)))
        self.useFixture(fixtures.MockPatchObject(processes, "stat_of", lambda pid: LEADER))
        return KERNEL.group()

    def test_the_leader_is_first_although_pids_began_anew(self):
        programs = [Stat(pid, "T", KERNEL.pid, 5001) for pid in (300, 301)]
        self.assertEqual([KERNEL.pid, 300, 301], self.group(*programs, LEADER))

    def test_others_and_the_dead_are_no_members(self):
        other, dead = Stat(300, "S", 300, 5001), Stat(301, "Z", KERNEL.pid, 5001)
        self.assertEqual([KERNEL.pid], self.group(other, dead, LEADER))
