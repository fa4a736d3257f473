"""The end of a bed, whatever becomes of its start."""

import os
import signal
import subprocess
import sys
import time

import testtools

from lab.cluster import Bed
from lab.rootfs import TOP
from lab.state import recorded_beds
from lab.waiting import wait_until

KILLED_AFTER = 8  # seconds of starting the control plane


class TestKilledStart(testtools.TestCase):
    def test_down_removes_all_of_a_start_that_was_killed(self):
        name = f"test-killed-{os.getpid()}"
        command = [sys.executable, "-m", "lab", "openstack", "up", "--name", name]
        with subprocess.Popen(command, cwd=TOP, stderr=subprocess.PIPE) as starting:
            self.addCleanup(Bed(name).down)
            wait_until(lambda: name in recorded_beds(), "a bed", 60)
            time.sleep(KILLED_AFTER)
            starting.send_signal(signal.SIGKILL)
            starting.wait()
        self.assertGreater(len(Bed.attach(name).nodes), 0)
        done = subprocess.run(
            [*command[:4], "down", "--name", name], cwd=TOP, capture_output=True, check=False
        )
        self.assertEqual((0, b""), (done.returncode, done.stderr))
        self.assertNotIn(name, recorded_beds())
