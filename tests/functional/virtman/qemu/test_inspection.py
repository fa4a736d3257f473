"""What hardware a VM has, as its monitor tells it, and with which none can be suspended."""

import tempfile
from pathlib import Path

import testtools

from tests.functional.virtman.doubles.qemu import CARD, CONTROLLER, DISK, PORT, Qemu
from virtman.errors import QemuFailed, SessionsOpen, SuspendedInvalid
from virtman.model.suspended import Device
from virtman.qemu import inspection, saving
from virtman.qemu.qmp import Monitor


class InspectionTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.qemu = Qemu(Path(folder.name, "qmp"), "/dev/null")
        self.addCleanup(self.qemu.stop)

    def look(self, by=inspection.hardware):
        with Monitor(self.qemu.path) as monitor:
            return by(monitor)

    def refused(self, by=inspection.hardware):
        with Monitor(self.qemu.path) as monitor:
            return str(self.assertRaises(SuspendedInvalid, by, monitor))

    def test_hardware_is_what_another_vm_has_to_have(self):
        found = self.look()
        self.assertEqual(
            ("10.0", "tcg", "pc-i440fx-10.0", "qemu64", 96 << 20, "pc.ram", False, 1),
            (found.qemu, found.accel, found.machine, found.cpu, found.memory, found.block,
             found.canonical, found.serials),
        )  # fmt: skip
        self.assertEqual((Device("vmgenid"), Device(DISK, "02.0", serial="vm1")), found.devices)
        self.qemu.devices = (DISK, CARD)
        self.assertEqual(["52:54:00:00:00:01"], [one.mac for one in self.look().nics])

    def test_a_serial_port_counts_whoever_made_it(self):
        self.qemu.devices = (DISK, "isa-serial")  # as libvirt does
        self.assertEqual(2, self.look().serials)
        self.assertEqual((Device(DISK, "02.0", serial="vm1"),), self.look().devices)

    def test_what_cannot_be_had_again_is_named(self):
        self.qemu.devices = (DISK, "vfio-pci")
        self.assertIn("vfio-pci", self.refused())
        self.qemu.devices = ()
        self.assertIn("one disk", self.refused())
        self.qemu.devices = (DISK,)
        self.qemu.version = (7, 2)
        self.assertIn("QEMU 7.2", self.refused())

    def test_a_guest_agent_is_where_its_port_leads_if_it_listens(self):
        self.assertEqual("", self.look(inspection.guest_agent))
        self.qemu.devices = (DISK, CONTROLLER, PORT)
        found = self.look()
        self.assertTrue(found.has_agent)
        self.assertEqual((Device(PORT), Device(DISK, "02.0", serial="vm1")), found.devices[:2])
        self.assertEqual("/nowhere/agent", self.look(inspection.guest_agent))
        self.qemu.channel = "disconnected:unix:/nowhere/agent,server"
        self.assertEqual("/nowhere/agent", self.look(inspection.guest_agent))
        self.qemu.channel = "pty:/dev/pts/3"
        with Monitor(self.qemu.path) as monitor:
            refused = self.assertRaises(SessionsOpen, inspection.guest_agent, monitor)
        self.assertIn("/dev/pts/3", str(refused))
        self.qemu.is_agent_there = False
        self.assertEqual("", self.look(inspection.guest_agent))
        self.qemu.port = "com.redhat.spice.0"
        self.assertIn("com.redhat.spice.0", self.refused())

    def test_a_disk_is_told_in_either_form(self):
        self.assertEqual("/dev/null", self.look(inspection.drive))
        self.qemu.disk = 'json:{"driver": "raw", "file": {"driver": "file", "filename": "/x"}}'
        self.assertEqual("/x", self.look(inspection.drive))

    def test_who_stands_still_goes_on_and_others_are_left_alone(self):
        for status, goes in (
            ("postmigrate", True),
            ("paused", True),
            ("running", False),
            ("inmigrate", False),
            ("prelaunch", False),
        ):
            self.qemu.status, self.qemu.told = status, []
            self.look(saving.go_on)
            self.assertEqual(goes, "cont" in self.qemu.told)
            self.assertEqual("running" if goes else status, self.qemu.status)

    def test_an_error_has_qemus_words(self):
        with Monitor(self.qemu.path) as monitor:
            refused = self.assertRaises(QemuFailed, monitor.value, "/machine", "nothing")
        self.assertIn("no 'nothing'", str(refused))

    def test_a_socket_at_which_nobody_listens_is_named(self):
        refused = self.assertRaises(QemuFailed, Monitor, "/nowhere/qmp")
        self.assertIn("/nowhere/qmp", str(refused))
