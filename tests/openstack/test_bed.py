"""A bed whose start fails or is killed: what stays of it, and what does not."""

import os
import shutil
import signal
import subprocess
import sys
import time

import testtools
from fixtures import MockPatch

from lab.cluster import Bed
from lab.errors import LabError
from lab.openstack.bed import LOGS, OpenStack
from lab.openstack.services import Service
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


class TestFailedStart(testtools.TestCase):
    def test_logs_stay_when_all_else_is_gone(self):
        broken = Service("broken", ["sh", "-c", "echo no such file; exit 3"], 3306)
        self.useFixture(MockPatch("lab.openstack.services.infrastructure", return_value=[broken]))
        name = f"test-failed-{os.getpid()}"
        kept = LOGS / name
        self.addCleanup(shutil.rmtree, kept, ignore_errors=True)
        error = self.assertRaises(LabError, OpenStack(name).up)
        self.assertIn("broken ended: no such file", str(error))
        self.assertEqual("no such file\n", (kept / "openstack/logs/broken.out").read_text())
        self.assertTrue((kept / "compute1/console").exists())
        self.assertNotIn(name, recorded_beds())
