"""What libvirt is told of a VM that goes on from a suspended image. Pure.

libvirt knows all of the VM but its memory, for which it has no words: part of a device, mapped
privately. QEMU is told of that by itself, and so it is of network cards that no network is behind.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, register_namespace, tostring

from virtman.model import suspended
from virtman.model.suspended import Device, Hardware
from virtman.qemu.guests import Guest

OWN = "urn:virtman:resumed"
"""The namespace of what a domain tells of itself that was resumed."""

_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
_KINDS = {"kvm": "kvm", "tcg": "qemu"}
_MODELS = {"host": "host-passthrough", "max": "maximum"}
"""Processors that libvirt does not know by a name."""

register_namespace("virtman", OWN)
register_namespace("qemu", _QEMU)


def domain(guest: Guest, hardware: Hardware, memory: str, emulator: str) -> str:
    """Return the text of a domain, whose QEMU waits for its state.

    :param memory: the object of QEMU's that is its memory
    :param emulator: path of the program that is QEMU
    """
    top = Element("domain", type=_KINDS[hardware.accel])
    _add(top, "name", guest.vm)
    _add(top, "uuid", guest.uuid)
    if any(one.driver == suspended.GENERATION for one in hardware.devices):
        _add(top, "genid", guest.uuid)
    SubElement(_add(top, "metadata"), f"{{{OWN}}}resumed", project=guest.project)
    _add(top, "memory", str(hardware.memory // 1024), unit="KiB")
    _add(top, "vcpu", str(hardware.sockets * hardware.cores * hardware.threads))
    _add(_add(top, "os"), "type", "hvm", arch="x86_64", machine=hardware.machine)
    _add(_add(top, "features"), "acpi")
    _add_processor(top, hardware)
    _add(top, "on_crash", "destroy")
    devices = _add(top, "devices")
    _add(devices, "emulator", emulator)
    for one in hardware.devices:
        _add_device(devices, one, guest.disk)
    _add(devices, "controller", type="usb", model="none")
    for number in range(hardware.serials):
        _add(_add(devices, "serial", type="pty"), "target", port=str(number))
    _add(devices, "memballoon", model="none")
    told = SubElement(top, f"{{{_QEMU}}}commandline")
    for word in ("-object", memory, *suspended.cards(hardware), "-incoming", "defer"):
        SubElement(told, f"{{{_QEMU}}}arg", value=word)
    return tostring(top, encoding="unicode")


def card(tap: str, mac: str) -> str:
    """Return the text of a network card at a TAP interface that is there."""
    top = Element("interface", type="ethernet")
    _add(top, "mac", address=mac)
    _add(top, "target", dev=tap, managed="no")
    _add(top, "model", type="virtio")
    return tostring(top, encoding="unicode")


def _add_processor(top: Element, hardware: Hardware) -> None:
    mode = _MODELS.get(hardware.cpu)
    if mode is not None:
        cpu = _add(top, "cpu", mode=mode)
    else:
        cpu = _add(top, "cpu", mode="custom", match="exact", check="none")
        _add(cpu, "model", hardware.cpu, fallback="forbid")
    shape = {name: str(getattr(hardware, name)) for name in ("sockets", "cores", "threads")}
    _add(cpu, "topology", **shape)


def _add_device(devices: Element, one: Device, disk: str) -> None:
    match one.driver:
        case suspended.DISK:
            made = _add(devices, "disk", type="block", device="disk")
            _add(made, "driver", name="qemu", type="raw", cache="none")
            _add(made, "source", dev=disk)
            _add(made, "target", dev="vda", bus="virtio")
            if one.serial:
                _add(made, "serial", one.serial)
        case suspended.CONTROLLER:
            made = _add(devices, "controller", type="virtio-serial", index="0")
        case suspended.PORT:
            made = _add(devices, "channel", type="unix")
            _add(made, "target", type="virtio", name=suspended.AGENT)
            number = str(suspended.AGENT_NUMBER)
            _add(made, "address", type="virtio-serial", controller="0", bus="0", port=number)
        case "virtio-rng-pci":
            made = _add(devices, "rng", model="virtio")
            _add(made, "backend", "/dev/urandom", model="random")
        case "VGA":
            made = _add(devices, "video")
            _add(made, "model", type="vga")
        case _:
            return
    if one.address:
        slot, function = one.address.split(".")
        place = {"domain": "0", "bus": "0", "slot": f"0x{slot}", "function": f"0x{function}"}
        _add(made, "address", type="pci", **place)


def _add(above: Element, kind: str, text: str = "", /, **attributes: str) -> Element:
    made = SubElement(above, kind, attributes)
    if text:
        made.text = text
    return made
