"""What libvirt is told of a VM that goes on."""

from dataclasses import replace
from xml.etree import ElementTree

import testtools

from tests.unit.virtman.model.test_suspended import HARDWARE
from virtman.model.suspended import CONTROLLER, NIC, PORT, Device
from virtman.qemu import domain_xml
from virtman.qemu.guests import Guest

UUID = "0e6e2b4c-5a0e-4b2e-9a55-6c0f2f6e7a10"
GUEST = Guest("web-1", UUID, "/dev/mapper/web-1", "shop")


def domain(hardware=HARDWARE, memory="memory-backend-file,id=pc.ram"):
    return ElementTree.fromstring(
        domain_xml.domain(GUEST, hardware, memory, "/usr/bin/virtman-qemu")
    )


class DomainTest(testtools.TestCase):
    def told(self, **changed):
        """Return what QEMU itself is told of a VM with such hardware."""
        return [
            one.get("value")
            for one in domain(replace(HARDWARE, **changed)).iterfind(".//*[@value]")
        ]

    def test_it_is_the_vm_and_has_its_disk(self):
        made = domain()
        self.assertEqual(
            ("web-1", UUID, UUID, "98304", "2", "/usr/bin/virtman-qemu"),
            tuple(made.findtext(name) for name in (
                "name", "uuid", "genid", "memory", "vcpu", "devices/emulator")),
        )  # fmt: skip
        self.assertEqual("/dev/mapper/web-1", made.find("devices/disk/source").get("dev"))
        self.assertEqual("vm1", made.findtext("devices/disk/serial"))
        self.assertEqual("shop", made.find(f".//{{{domain_xml.OWN}}}resumed").get("project"))

    def test_devices_are_where_they_were(self):
        devices = domain().find("devices")
        for kind, slot in (("disk", "0x02"), ("video", "0x03")):
            self.assertEqual(
                {"type": "pci", "domain": "0", "bus": "0", "slot": slot, "function": "0x0"},
                devices.find(f"{kind}/address").attrib,
            )
        self.assertEqual(1, len(devices.findall("serial")))

    def test_it_has_a_generation_and_a_guest_agent_only_if_the_vm_had(self):
        plain = domain(replace(HARDWARE, devices=HARDWARE.devices[1:2]))
        self.assertIsNone(plain.find("genid"))
        self.assertIsNone(plain.find("devices/channel"))
        both = domain(
            replace(HARDWARE, devices=(*HARDWARE.devices, Device(CONTROLLER, "04.0"), Device(PORT)))
        )
        self.assertEqual("1", both.find("devices/channel/address").get("port"))
        self.assertEqual("0x04", both.find("devices/controller/address").get("slot"))

    def test_a_processor_is_told_by_its_model_or_by_what_that_stands_for(self):
        for model, mode in (("host", "host-passthrough"), ("max", "maximum")):
            found = domain(replace(HARDWARE, cpu=model)).find("cpu")
            self.assertEqual((mode, None), (found.get("mode"), found.find("model")))
        found = domain().find("cpu")
        self.assertEqual(("custom", "qemu64"), (found.get("mode"), found.findtext("model")))
        self.assertEqual("2", found.find("topology").get("cores"))

    def test_qemu_itself_is_told_of_its_memory_and_of_cards_without_a_network(self):
        memory = "memory-backend-file,id=pc.ram"
        self.assertEqual(["-object", memory, "-incoming", "defer"], self.told())
        card = Device(NIC, "05.0", mac="52:54:00:00:00:01")
        told = self.told(devices=(*HARDWARE.devices, card))
        self.assertEqual(
            ["-device", "virtio-net-pci,id=device0,addr=05.0,mac=52:54:00:00:00:01"], told[2:4]
        )

    def test_what_a_name_has_is_no_markup(self):
        odd = replace(GUEST, project="<a&b>")
        text = domain_xml.domain(odd, HARDWARE, "", "/usr/bin/virtman-qemu")
        found = ElementTree.fromstring(text).find(f".//{{{domain_xml.OWN}}}resumed")
        self.assertEqual("<a&b>", found.get("project"))
