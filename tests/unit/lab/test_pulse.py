"""Which processes a signal does not end."""

import signal

import testtools

from lab.pulse import catches

STATUS = "Name:\tlinux\nSigBlk:\t0000000000000000\nSigCgt:\t00000000{:08x}\nCapInh:\t0\n"


class TestCatches(testtools.TestCase):
    def test_its_bit_is_that_of_the_number_less_one(self):
        for caught, expected in ((1 << 28, True), (0xEFFFFFFF, False), (0, False)):
            self.assertEqual(expected, catches(STATUS.format(caught), signal.SIGIO))
