"""The guard that keeps unit tests pure."""

import os
import subprocess
import time

import testtools

from tests.unit import ImpureTest


class GuardTest(testtools.TestCase):
    def test_sleeping_fails_a_unit_test(self):
        self.assertRaises(ImpureTest, time.sleep, 0.001)

    def test_starting_a_process_fails_a_unit_test(self):
        self.assertRaises(ImpureTest, subprocess.run, ["true"], check=False)
        self.assertRaises(ImpureTest, os.fork)
