"""How devices are made, and what their status tells, as kernels of several ages say it."""

import errno

import fixtures
import testtools

from virtman.errors import DeviceBusy
from virtman.privileged import dm
from virtman.stack import mapped


class CorruptTest(testtools.TestCase):
    def corrupt(self, **statuses):
        found = {name: [(0, 512, *told)] for name, told in statuses.items()}
        self.useFixture(fixtures.MockPatchObject(dm, "statuses", lambda names: found))
        return mapped.corrupt(found)

    def test_a_verity_device_says_whether_it_has_met_wrong_bytes(self):
        for more in ("", " -", " 12"):  # Linux 6.1, 7.2 and 7.2 with error correction
            found = self.corrupt(
                well=("verity", f"V{more}"), ill=("verity", f"C{more}"), other=("linear", "")
            )
            self.assertEqual({"ill"}, found)


class MadeTest(testtools.TestCase):
    """A device that is to be made while there is one of its name, or what is below is in use."""

    def setUp(self):
        super().setUp()
        self.there, self.below_is_used = False, False
        for verb in ("create", "remove", "table"):
            self.useFixture(fixtures.MockPatchObject(dm, verb, getattr(self, f"{verb}_")))

    def create_(self, name, table, read_only, owner):
        if self.there or self.below_is_used:
            raise OSError(errno.EBUSY, "busy")
        self.there = True

    def remove_(self, name):
        if not self.there:
            raise OSError(errno.ENXIO, "none")
        self.there = False

    def table_(self, name):
        return []

    def make(self):
        mapped.Mapped("virtman_debian_image").set_up([(0, 8, "zero", "")])

    def test_one_without_a_table_is_made_anew(self):
        self.there = True
        self.make()
        self.assertTrue(self.there)

    def test_what_is_below_is_in_use(self):
        self.below_is_used = True
        self.assertRaises(DeviceBusy, self.make)
        self.assertFalse(self.there)
