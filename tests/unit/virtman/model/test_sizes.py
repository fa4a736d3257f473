"""Which sizes a device can have."""

import testtools

from virtman.errors import InvalidSize
from virtman.model import sizes


class SizesTest(testtools.TestCase):
    def test_sizes_that_no_device_can_have_are_refused(self):
        for size in (0, -512, 511, 513, 1000):
            self.assertRaises(InvalidSize, sizes.sectors, size)

    def test_what_all_hosts_must_agree_on_stays_as_it_is(self):
        self.assertEqual((1048576, 1048576), (sizes.HEADER, sizes.REGION))

    def test_readers_take_whole_turns_in_a_region(self):
        self.assertEqual(0, sizes.REGION % (sizes.PIECE * sizes.READERS))
        self.assertEqual((4096, 32768), (sizes.BLOCK, sizes.READ_AHEAD))
