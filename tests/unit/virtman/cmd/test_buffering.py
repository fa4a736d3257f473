"""Whether enough is there for a VM, and what a person is told who waits for it."""

import testtools

from virtman.cmd import buffering

MIB = 1 << 20


class BufferingTest(testtools.TestCase):
    def test_a_vm_goes_on_once_what_it_needs_first_is_there(self):
        self.assertFalse(buffering.is_enough({"there": 4095, "head": 4096}))
        self.assertTrue(buffering.is_enough({"there": 4096, "head": 4096}))
        self.assertTrue(buffering.is_enough({"there": 0, "head": 0}))

    def test_who_waits_is_told_for_how_long(self):
        ahead = {"there": 8 * MIB, "head": 20 * MIB, "fetched": 4 * MIB, "seconds": 2.0}
        expected = "web stands still for about 6 s more: 8M of 20M are here"
        self.assertEqual(expected, buffering.notice("web", ahead))
        ahead |= {"fetched": 0, "seconds": 0.0}
        self.assertEqual("web stands still: 8M of 20M are here", buffering.notice("web", ahead))
