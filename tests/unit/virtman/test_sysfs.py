"""What sysfs says of devices that may go at any moment."""

import errno
from pathlib import Path
from unittest import mock

import testtools

from virtman import sysfs

DEVICE = "/dev/null"  # there is one anywhere


class MappedTest(testtools.TestCase):
    def test_a_device_that_the_kernel_is_removing_is_none(self):
        with mock.patch.object(Path, "read_text", side_effect=OSError(errno.EINVAL, "Invalid")):
            self.assertEqual("", sysfs.mapper_name(DEVICE))
            self.assertRaises(FileNotFoundError, sysfs.is_suspended, DEVICE)

    def test_what_is_no_mapped_device_has_no_name(self):
        self.assertEqual("", sysfs.mapper_name(DEVICE))
        self.assertRaises(FileNotFoundError, sysfs.mapper_name, "/dev/virtman-none")
