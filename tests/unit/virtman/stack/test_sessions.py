"""What the kernel says of connections with parents."""

from pathlib import Path

import fixtures
import testtools

from virtman.model.address import Portal
from virtman.model.naming import Device
from virtman.stack.transport.iscsi import sessions

# as the kernel prints them: 10.0.0.1:3260 unanswered three times, 10.0.0.2:3260 once
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0300000A:8EA0 0100000A:0CBC 01 00000030:00000000 01:00000064 00000003     0        0 7
   1: 0300000A:8EA1 0200000A:0CBC 01 00000030:00000000 01:00000014 00000001     0        0 8
   2: 0300000A:8EA2 0500000A:0CBC 02 00000001:00000000 01:00000064 00000004     0        0 9
   3: 00000000:0CBC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 10
"""


class SilenceTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        table = Path(self.useFixture(fixtures.TempDir()).join("tcp"))
        table.write_text(TCP)
        self.useFixture(fixtures.MockPatchObject(sessions, "_TCP", table))
        table6 = table.with_name("tcp6")
        local, peer = "000080FE" + 24 * "0", "000080FE" + 16 * "0" + "01000000"
        row = f"sl\n0: {local}:8EA0 {peer}:0CBC 01 00000030:00000000 01:00000064 00000005 0 0 7"
        table6.write_text(row)
        self.useFixture(fixtures.MockPatchObject(sessions, "_TCP6", table6))

    def test_peers_to_whom_something_is_sent_again_are_known(self):
        found = sessions.unacknowledging()
        self.assertTrue({("10.0.0.1", 3260), ("fe80::1", 3260)} <= found, found)

    def test_a_connection_that_is_being_made_and_one_that_is_fine_say_nothing(self):
        peers = {ip for ip, _ in sessions.unacknowledging()}
        self.assertFalse({"10.0.0.5", "10.0.0.3", "0.0.0.0"} & peers)


class SessionTest(testtools.TestCase):
    def test_a_session_that_logs_in_for_the_first_time_is_not_cut_off(self):
        root = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(sessions, "_SESSIONS", root))
        session = root / "session1"
        (session / "device").mkdir(parents=True)
        (session / "targetname").write_text("iqn.2026-11.org.virtman:b:i\n")
        seen = []
        for has_disks, state in ((0, "FREE"), (1, "LOGGED_IN"), (1, "FAILED"), (1, "FREE")):
            if has_disks:
                (session / "device/target2:0:0").mkdir(exist_ok=True)
            (session / "state").write_text(f"{state}\n")
            iqn = "iqn.2026-11.org.virtman:b:i"
            seen.append((sessions.is_logged_in(iqn), iqn in sessions.cut_off()))
        self.assertEqual([(False, False), (True, False), (False, True), (False, True)], seen)

    def test_a_disk_that_linux_still_adds_is_not_there_yet(self):
        root = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(sessions, "_SESSIONS", root))
        iqn = "iqn.2026-11.org.virtman:b:i"
        disk = root / "session1/device/target2:0:0/2:0:0:3/block/sda"
        disk.mkdir(parents=True)
        (root / "session1/targetname").write_text(f"{iqn}\n")
        self.assertIsNone(sessions.disk(iqn, 3))
        (disk / "queue").mkdir()
        self.assertIsNone(sessions.disk(iqn, 3))
        (disk / "bdi").mkdir()
        self.assertEqual("sda", sessions.disk(iqn, 3))
        self.assertIsNone(sessions.disk(iqn, 2))

    def test_what_lies_on_a_session_and_what_it_lies_on_is_known(self):
        root = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(sessions, "_SESSIONS", root))
        connection = root / "session1/device/connection1:0/iscsi_connection/connection1:0"
        holders = root / "session1/device/target2:0:0/2:0:0:0/block/sda/holders"
        shown = {
            root / "session1/targetname": "iqn.2026-11.org.virtman:b:i",
            connection / "persistent_address": "10.0.0.2",
            connection / "persistent_port": "3260",
            connection / "local_port": "36513",
            holders / "dm-1/dm/name": "virtman_i_path1_b",
            holders / "dm-2/dm/name": "virtman_other_path0_b",
            holders / "dm-3/dm/name": "somebody-else-s",
        }
        for file, text in shown.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        portal = Portal("10.0.0.2", 3260, "iqn.2026-11.org.virtman:b:i")
        self.assertEqual({Device("i", "path1", "b"): portal}, sessions.paths("i"))
        self.assertEqual([36513], sessions.own_ports("iqn.2026-11.org.virtman:b:i"))
