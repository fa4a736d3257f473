"""Who has the lock of an image."""

import threading
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import testtools

from virtman.disk.suspension import Suspension


class LockTest(testtools.TestCase):
    def test_two_who_come_first_together_have_one_lock(self):
        making, inside = threading.Barrier(2), threading.Barrier(2)

        def make_together():
            making.wait(5)
            return threading.RLock()

        def enter(_):
            with suspension.locked_image("image"):
                try:
                    inside.wait(0.05)
                except threading.BrokenBarrierError:
                    return False
                return True

        library = mock.Mock(wraps=threading, RLock=make_together)
        with (
            ThreadPoolExecutor(2) as pool,
            mock.patch("virtman.disk.suspension.threading", library),
        ):
            suspension = Suspension(None, None)
            self.assertEqual([False, False], list(pool.map(enter, range(2))))
