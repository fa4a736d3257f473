"""A loop device is found even if others look for one at the same moment."""

import errno
from contextlib import contextmanager

import fixtures
import testtools

from virtman.privileged import loop

ATTACH = loop.attach.args[0]  # what the privileged part calls


class AttachTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.taken = 0
        self.opened = []
        self.pauses = []

        @contextmanager
        def opened(path, flags):
            self.opened.append((path, flags))
            yield len(self.opened)

        def ioctl(descriptor, request, argument=None):
            if request == loop._CTL_GET_FREE:
                return self.taken
            if self.taken:
                self.taken -= 1
                raise OSError(errno.EBUSY, "busy")
            return 0

        self.useFixture(fixtures.MockPatchObject(loop, "_opened", opened))
        self.useFixture(fixtures.MockPatchObject(loop.fcntl, "ioctl", ioctl))
        self.useFixture(fixtures.MockPatchObject(loop.time, "sleep", self.pauses.append))

    def test_one_that_another_took_first_is_left_to_it(self):
        self.taken = 3
        self.assertEqual("/dev/loop0", ATTACH("/file", 0, True))
        self.assertEqual(3, len(self.pauses))

    def test_one_that_is_held_for_ever_is_an_error_at_last(self):
        self.taken = 1000
        error = self.assertRaises(OSError, ATTACH, "/file", 0, True)
        self.assertEqual(errno.EBUSY, error.errno)

    def test_writes_may_have_to_be_on_the_disk_when_they_end(self):
        ATTACH("/file", 0, False, True)
        self.assertTrue(self.opened[0][1] & loop.os.O_DSYNC)
