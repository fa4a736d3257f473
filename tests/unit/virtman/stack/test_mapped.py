"""What the status of devices tells, as kernels of several ages say it."""

import fixtures
import testtools

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
