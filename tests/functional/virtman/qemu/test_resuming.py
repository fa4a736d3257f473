"""Who may resume VMs, and as whom; what is read of a device is what it was, or is refused."""

import contextlib
import os
import pwd
import tempfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from unittest import skipIf

import fixtures
import testtools

from tests.functional.virtman.doubles.qemu import Qemu
from tests.unit.virtman.model.test_suspended import RECORD
from virtman.errors import HostUnfit, InvalidRequest
from virtman.qemu import guests, inspection, process, resuming
from virtman.qemu.guests import Account, Guest, Image


class ResumingTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)

    @skipIf(os.geteuid() != 0, "only root can start QEMU as another account")
    def test_qemu_runs_as_an_account_that_is_not_root(self):
        nobody = pwd.getpwnam("nobody")
        starter = resuming.starter("nobody", "")
        self.assertEqual(Account(nobody.pw_uid, nobody.pw_gid), starter.account)
        for name in ("root", "nobody-of-this-name"):
            self.assertRaises(InvalidRequest, resuming.starter, name, "")

    def test_only_root_can_have_one(self):
        self.useFixture(fixtures.MockPatchObject(resuming.os, "geteuid", lambda: 1000))
        for libvirt in ("", "qemu:///system"):
            refused = self.assertRaises(InvalidRequest, resuming.starter, "nobody", libvirt)
            self.assertIn("as root", str(refused))

    @skipIf(os.geteuid() != 0, "only root can start QEMU as another account")
    def test_a_host_without_such_a_qemu_is_told(self):
        who = process.account("nobody")
        self.useFixture(fixtures.MockPatchObject(process, "PROGRAM", "false"))
        refused = self.assertRaises(HostUnfit, resuming.check_host, RECORD, who)
        self.assertIn("cannot resume", str(refused))

    def test_a_host_that_can_resume_them_is_asked_once(self):
        wanted, starts = RECORD.hardware, []

        @contextlib.contextmanager
        def running(words, *_, **__):
            starts.append(words)
            yield None

        for where, name, stand_in in (
            (guests, "GUESTS", self.folder / "guests"),
            (process, "PROGRAM", "false"),
            (process, "running", running),
            (inspection, "version", lambda _: wanted.qemu),
            (inspection, "processor", lambda _: (wanted.cpu, wanted.features)),
        ):
            self.useFixture(fixtures.MockPatchObject(where, name, stand_in))
        other = replace(RECORD, hardware=replace(wanted, features="other"))
        nobody, somebody = Account(1, 1), Account(2, 2)
        for record, who, count in (
            (RECORD, nobody, 1),
            (RECORD, nobody, 1),
            (replace(RECORD, at=0), nobody, 1),
            (RECORD, somebody, 2),
        ):
            resuming.check_host(record, who)
            self.assertEqual(count, len(starts))
        for _ in range(2):
            self.assertRaises(HostUnfit, resuming.check_host, other, nobody)
        self.assertEqual(4, len(starts))
        self.useFixture(fixtures.MockPatchObject(process, "PROGRAM", "true"))
        resuming.check_host(RECORD, nobody)
        self.assertEqual(5, len(starts))

    def test_a_vm_that_was_resumed_here_tells_its_project_and_no_other_does(self):
        self.useFixture(fixtures.MockPatchObject(guests, "GUESTS", self.folder / "guests"))
        for vm, project in (("vm1", "shop"), ("vm2", "")):
            guests.begin(Guest(vm, "uuid", "/dev/null", project))
        found = [guests.project_at(str(guests.monitor_of(vm))) for vm in ("vm1", "vm2", "vm3")]
        self.assertEqual(["shop", "", ""], found)
        (self.folder / "project").write_text("shop")
        self.assertEqual("", guests.project_at(str(self.folder / "qmp")))

    def test_device_state_is_that_on_record_or_none(self):
        state = os.urandom(1000)
        with tempfile.NamedTemporaryFile() as device:
            record = replace(RECORD, at=0, sha256=sha256(state).hexdigest())
            os.pwrite(device.fileno(), state, record.hardware.memory)
            image = Image(record, device.name, "")
            self.assertEqual(state, resuming._state(image))
            os.pwrite(device.fileno(), b"x", record.hardware.memory + 999)
            if not state.endswith(b"x"):
                self.assertRaises(HostUnfit, resuming._state, image)

    def test_what_was_never_let_go_on_is_ended_and_what_runs_is_left_alone(self):
        self.useFixture(fixtures.MockPatchObject(guests, "GUESTS", self.folder))
        self.assertFalse(resuming.runs("vm1"))
        (self.folder / "vm1").mkdir()
        qemu = Qemu(guests.monitor_of("vm1"), "/nowhere")
        self.addCleanup(qemu.stop)
        self.assertTrue(resuming.runs("vm1"))
        qemu.status = "inmigrate"
        self.assertFalse(resuming.runs("vm1"))
        self.assertNotIn("quit", qemu.told)
        resuming.end("vm1")
        self.assertIn("quit", qemu.told)
        resuming.end("vm2")
