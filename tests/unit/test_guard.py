"""The guard that keeps unit tests pure, and lets others in the same process alone."""

import os
import subprocess
import threading
import time

import testtools

from tests.unit import ImpureTest


def sleep():
    time.sleep(0.001)


class GuardTest(testtools.TestCase):
    def outcome(self, module, method):
        """Run a test of a module on a thread of its own; return what went wrong."""
        case = type("Case", (testtools.TestCase,), {"__module__": module, "test": method})("test")
        result = testtools.TestResult()
        thread = threading.Thread(target=case.run, args=(result,))
        thread.start()
        thread.join()
        return [text for _, text in (*result.errors, *result.failures)]

    def test_sleeping_fails_a_unit_test(self):
        self.assertRaises(ImpureTest, time.sleep, 0.001)

    def test_starting_a_process_fails_a_unit_test(self):
        self.assertRaises(ImpureTest, subprocess.run, ["true"], check=False)
        self.assertRaises(ImpureTest, os.fork)

    def test_so_does_what_cleans_up_after_it(self):
        (wrong,) = self.outcome("tests.unit.some", lambda case: case.addCleanup(sleep))
        self.assertIn("ImpureTest", wrong)

    def test_other_tests_in_the_same_process_may(self):
        def test(case):
            sleep()
            subprocess.run(["true"], check=True)

        self.assertEqual([], self.outcome("tests.functional.some", test))
        (wrong,) = self.outcome("tests.unit.some", test)
        self.assertIn("ImpureTest", wrong)
