"""What a guest's console says."""

import testtools

from lab.guest import parse

READY = "VIRTMAN-GUEST ready name=vm1 manifest=ok files=11 private=ok uptime=2.33\n"


class ParseTest(testtools.TestCase):
    def test_a_guest_that_has_not_spoken_yet(self):
        self.assertIsNone(parse(""))
        self.assertIsNone(parse("Booting...\n[    0.1] random: crng init done\n"))

    def test_half_a_line_is_no_report(self):
        self.assertIsNone(parse(READY[:40]))

    def test_a_guest_that_is_ready(self):
        report = parse("noise\r\n" + READY + "more noise")
        self.assertTrue(report.ok)
        self.assertEqual("vm1", report.fields["name"])
        self.assertEqual("2.33", report.fields["uptime"])

    def test_a_guest_whose_disk_is_wrong(self):
        report = parse("VIRTMAN-GUEST failed name=vm1 reason=manifest manifest=bad bad=07\n")
        self.assertFalse(report.ok)
        self.assertEqual("07", report.fields["bad"])
