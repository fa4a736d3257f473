"""Which sizes a device can have."""

import testtools

from virtman.errors import InvalidSize
from virtman.model import sizes


class SizesTest(testtools.TestCase):
    def test_sizes_that_no_device_can_have_are_refused(self):
        for size in (0, -512, 511, 513, 1000):
            self.assertRaises(InvalidSize, sizes.sectors, size)
