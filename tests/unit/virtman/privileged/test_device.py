"""A device is made an empty exception store in the kernel's format, and blank again."""

from pathlib import Path

import fixtures
import testtools

from virtman.model.dirty import CHUNK
from virtman.privileged import chunks, device

BEGIN, CLEAR = device.begin.args[0], device.clear.args[0]  # what the privileged part calls


class BeginTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.device = Path(self.useFixture(fixtures.TempDir()).join("device"))
        # what lies behind the first chunk is left of whoever had the device before
        self.device.write_bytes(bytes(CHUNK) + b"x" * 2 * CHUNK)

    def test_who_reads_it_finds_a_store_that_holds_nothing(self):
        BEGIN(str(self.device), CHUNK)
        with open(self.device, "rb") as opened:
            self.assertEqual(CHUNK, chunks._chunk("device", opened.fileno()))
            self.assertEqual([], list(chunks._exceptions(opened.fileno(), CHUNK)))
        self.assertEqual(b"x" * CHUNK, self.device.read_bytes()[2 * CHUNK :])

    def test_it_begins_with_zeros_again_once_it_is_cleared(self):
        BEGIN(str(self.device), CHUNK)
        CLEAR(str(self.device))
        self.assertFalse(any(self.device.read_bytes()[:CHUNK]))
