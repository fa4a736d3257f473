"""Who waits in the kernel goes on in time."""

import ctypes
import errno
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import testtools

from virtman.privileged import deadline


class InterruptedTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(signal.signal, signal.SIGURG, signal.getsignal(signal.SIGURG))
        signal.signal(signal.SIGURG, lambda *_: None)  # as the privileged part has it

    def wait(self, patience, milliseconds):
        """Have the kernel wait; return what it says to that."""
        lib = ctypes.CDLL(None, use_errno=True)
        with deadline.interrupted_after(patience):
            return lib.poll(None, 0, milliseconds), ctypes.get_errno()

    def test_who_waits_too_long_in_the_kernel_is_interrupted(self):
        with ThreadPoolExecutor(1) as pool:
            self.assertEqual((-1, errno.EINTR), pool.submit(self.wait, 0.05, 20_000).result())

    def test_who_is_done_in_time_is_not(self):
        with ThreadPoolExecutor(1) as pool:
            self.assertEqual(0, pool.submit(self.wait, 20, 1).result()[0])
            self.assertNotIn("patience", [one.name for one in threading.enumerate()])
