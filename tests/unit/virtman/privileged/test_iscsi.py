"""What open-iscsi is told in its own files, and what the kernel says of its connections."""

import stat
from pathlib import Path

import fixtures
import testtools

from virtman import sysfs
from virtman.privileged import iscsi

TARGET = "iqn.2026-11.org.virtman:a:i"
RECORD = """\
# BEGIN RECORD 2.1.8
node.name = iqn.2026-11.org.virtman:a:i
node.startup = automatic
node.session.auth.authmethod = None
node.session.timeo.replacement_timeout = 120
node.conn[0].address = 10.0.0.1
# END RECORD
"""
# as the kernel prints them: 10.0.0.1:3260 unanswered three times, 10.0.0.2:3260 once
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0300000A:8EA0 0100000A:0CBC 01 00000030:00000000 01:00000064 00000003     0        0 7
   1: 0300000A:8EA1 0200000A:0CBC 01 00000030:00000000 01:00000014 00000001     0        0 8
   2: 0300000A:8EA2 0500000A:0CBC 02 00000001:00000000 01:00000064 00000004     0        0 9
   3: 00000000:0CBC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 10
"""


class RecordTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(iscsi, "_RECORDS", (folder / "no", folder)))
        self.folder = folder / TARGET
        self.folder.mkdir()
        self.record = self.folder / "10.0.0.1,3260"
        self.record.write_text(RECORD)

    def remember(self, user, secret):
        iscsi._remember("10.0.0.1", 3260, TARGET, user, secret)
        lines = self.record.read_text().splitlines()
        return lines, dict(line.split(" = ") for line in lines[1:-1])

    def test_a_secret_is_written_where_only_root_reads(self):
        lines, settings = self.remember("i", "secret")
        self.assertEqual(("# BEGIN RECORD 2.1.8", "# END RECORD"), (lines[0], lines[-1]))
        self.assertEqual("CHAP", settings["node.session.auth.authmethod"])
        self.assertEqual("i", settings["node.session.auth.username"])
        self.assertEqual("secret", settings["node.session.auth.password"])
        self.assertEqual("2", settings["node.session.timeo.replacement_timeout"])
        self.assertEqual("10.0.0.1", settings["node.conn[0].address"])
        self.assertEqual(0o600, stat.S_IMODE(self.record.stat().st_mode))
        self.assertEqual([self.record], list(self.folder.iterdir()))

    def test_each_setting_is_there_once(self):
        self.remember("i", "old")
        lines, _ = self.remember("i", "new")
        names = [line.split(" = ")[0] for line in lines]
        self.assertEqual(len(names), len(set(names)))
        self.assertNotIn("old", "".join(lines))

    def test_nothing_to_prove_leaves_no_secret(self):
        self.remember("i", "old")
        lines, settings = self.remember("", "")
        self.assertEqual("None", settings["node.session.auth.authmethod"])
        self.assertNotIn("password", "".join(lines))

    def test_a_record_in_a_folder_of_its_own_is_found(self):
        self.record.unlink()
        self.record = self.folder / "10.0.0.1,3260,1" / "default"
        self.record.parent.mkdir()
        self.record.write_text(RECORD)
        self.assertIn("node.session.auth.password", self.remember("i", "secret")[1])

    def test_a_target_that_is_not_known_is_an_error(self):
        self.assertRaises(OSError, iscsi._remember, "10.0.0.9", 3260, TARGET, "", "")


class SilenceTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        table = Path(self.useFixture(fixtures.TempDir()).join("tcp"))
        table.write_text(TCP)
        self.useFixture(fixtures.MockPatchObject(sysfs, "_TCP", table))
        table6 = table.with_name("tcp6")
        local, peer = "000080FE" + 24 * "0", "000080FE" + 16 * "0" + "01000000"
        row = f"sl\n0: {local}:8EA0 {peer}:0CBC 01 00000030:00000000 01:00000064 00000005 0 0 7"
        table6.write_text(row)
        self.useFixture(fixtures.MockPatchObject(sysfs, "_TCP6", table6))

    def test_peers_to_whom_something_is_sent_again_are_known(self):
        found = sysfs.unacknowledging()
        self.assertTrue({("10.0.0.1", 3260), ("fe80::1", 3260)} <= found, found)

    def test_a_connection_that_is_being_made_and_one_that_is_fine_say_nothing(self):
        peers = {ip for ip, _ in sysfs.unacknowledging()}
        self.assertFalse({"10.0.0.5", "10.0.0.3", "0.0.0.0"} & peers)
