"""What can be on record of a suspended image, and what QEMU is told of it."""

from dataclasses import asdict, replace

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.errors import InvalidRequest, SuspendedForeign, SuspendedInvalid
from virtman.model import suspended
from virtman.model.suspended import CONTROLLER, DISK, NIC, PORT, Device, Hardware, Suspended

HASH = "ab" * 32
HARDWARE = Hardware(
    "10.0", "tcg", "pc-i440fx-10.0", "qemu64", HASH, 1, 2, 1, 96 << 20, "pc.ram",
    canonical=False, serials=1,
    devices=(Device("vmgenid"), Device(DISK, "02.0", serial="vm1"), Device("VGA", "03.0")),
)  # fmt: skip
RECORD = Suspended(suspended.place(1), 1000, HASH, HARDWARE)


class SuspendedTest(testtools.TestCase):
    def test_a_record_is_read_as_it_was_written(self):
        self.assertEqual(RECORD, suspended.parse(asdict(RECORD)))
        self.assertEqual((), HARDWARE.nics)

    def test_memory_of_layers_on_each_other_is_apart_and_behind_any_disk(self):
        first, second = suspended.place(0), suspended.place(1)
        self.assertEqual(suspended.SPAN // 2, first)
        self.assertLess(first + suspended.STRIDE // 2 + suspended.MOST_STATE, second)
        self.assertLess(suspended.place(7) + suspended.STRIDE, suspended.SPAN)

    def test_what_would_change_a_command_line_is_refused(self):
        for name, value in (
            ("machine", "pc-i440fx-10.0,accel=kvm"), ("cpu", "qemu64,+svm"), ("cpu", "qemu64\n"),
            ("block", "ram,share=on"), ("qemu", "10"), ("accel", "xen"), ("features", "ab"),
            ("sockets", 0), ("sockets", True), ("cores", "1"), ("memory", 96 << 20 | 4096),
            ("memory", 0), ("canonical", 1), ("serials", 9), ("devices", ()),
        ):  # fmt: skip
            hardware = replace(HARDWARE, **{name: value})
            self.assertRaises(SuspendedInvalid, suspended.check, hardware)
            record = asdict(replace(RECORD, hardware=hardware))
            self.assertRaises(SuspendedInvalid, suspended.parse, record)

    def test_so_are_devices_that_are_none(self):
        for device in (
            Device("vfio-pci", "04.0"), Device(DISK, "04.0"), Device("VGA", "4"),
            Device(NIC, "04.0", mac="x"), Device("VGA", "04.0", serial="a,b"),
        ):  # fmt: skip
            hardware = replace(HARDWARE, devices=(*HARDWARE.devices, device))
            self.assertRaises(SuspendedInvalid, suspended.check, hardware)

    def test_so_are_records_with_more_or_less(self):
        form = asdict(RECORD)
        for changed in (
            form | {"more": 1}, form | {"at": RECORD.at + 4096}, form | {"at": 0},
            form | {"state": 0}, form | {"state": suspended.MOST_STATE + 1}, form | {"sha256": ""},
            form | {"hardware": form["hardware"] | {"args": "-fsdev"}}, {}, form | {"hardware": 1},
            form | {"project": "shop,on"}, form | {"project": None},
        ):  # fmt: skip
            self.assertRaises(SuspendedInvalid, suspended.parse, changed)

    def test_memory_of_a_project_is_for_its_vms_and_that_of_none_for_all(self):
        for project in ("", "shop"):
            suspended.check_same("gold", RECORD, project)
        own = replace(RECORD, project="shop")
        suspended.check_same("gold", own, "shop")
        for project, named in (("", "none"), ("shop2", "shop2")):
            refused = self.assertRaises(
                SuspendedForeign, suspended.check_same, "gold", own, project
            )
            self.assertIn(f"gold is of project shop, and not of {named}", str(refused))

    def test_what_is_no_name_of_a_project_is_refused(self):
        for name in ("", "shop", "a" * 64, "Shop_1.x-y"):
            self.assertEqual(name, suspended.check_project(name))
        for name in ("a b", "a,b", "a" * 65, "a\n", "a/b"):
            self.assertRaises(InvalidRequest, suspended.check_project, name)

    @given(st.text(max_size=30))
    def test_no_word_of_a_valid_record_has_a_separator(self, text):
        try:
            hardware = suspended.check(replace(HARDWARE, cpu=text))
        except SuspendedInvalid:
            return
        self.assertFalse(set(hardware.cpu) & set(", =\n"))

    def test_qemu_is_told_what_is_on_record(self):
        told = " ".join(suspended.options(HARDWARE))
        self.assertIn("-machine pc-i440fx-10.0 -accel tcg -cpu qemu64", told)
        self.assertIn("-smp sockets=1,cores=2,threads=1", told)
        told = " ".join(suspended.devices(HARDWARE, "auto"))
        self.assertIn("-device vmgenid,guid=auto", told)
        self.assertIn(f"{DISK},id=device1,addr=02.0,drive=disk,serial=vm1", told)

    def test_memory_is_shared_with_a_file_and_private_of_a_device(self):
        told = " ".join(suspended.memory(HARDWARE, "/f", offset=None))
        self.assertIn("-m 98304k", told)
        self.assertIn("mem-path=/f,x-use-canonical-path-for-ramblock-id=off,share=on", told)
        told = " ".join(suspended.memory(HARDWARE, "/d", offset=RECORD.at))
        self.assertIn(f"share=off,readonly=on,rom=off,offset={RECORD.at}", told)

    def test_cards_stay_without_a_network(self):
        card = Device(NIC, "04.0", mac="52:54:00:00:00:01")
        hardware = suspended.check(replace(HARDWARE, devices=(*HARDWARE.devices, card)))
        self.assertEqual((card,), hardware.nics)
        told = suspended.devices(hardware, "auto")
        self.assertIn(f"{NIC},id=device3,addr=04.0,mac={card.mac}", told)
        self.assertFalse([word for word in told if "netdev" in word])

    def test_a_guest_agent_has_a_port_of_the_one_controller(self):
        port, controller = Device(PORT), Device(CONTROLLER, "04.0")
        self.assertFalse(HARDWARE.has_agent)
        hardware = replace(HARDWARE, devices=(port, *HARDWARE.devices, controller))
        self.assertTrue(suspended.check(hardware).has_agent)
        told = suspended.devices(hardware, "auto")
        self.assertIn("name=org.qemu.guest_agent.0,chardev=agent", told[-1])
        self.assertIn(f"{CONTROLLER},id=device3,addr=04.0", told)
        for more in ((port,), (port, port, controller), (controller, controller)):
            hardware = replace(HARDWARE, devices=(*HARDWARE.devices, *more))
            self.assertRaises(SuspendedInvalid, suspended.check, hardware)
