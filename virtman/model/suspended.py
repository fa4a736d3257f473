"""What it takes to let a VM go on from a suspended image: its hardware, and where its memory is.

Pure. A suspended image is a layer that holds the memory of the VM too, far behind its disk::

    0           disk_size             MEMORY + n * STRIDE
    | disk ...  |  zeros ...          | memory | device state |

A layer may lie on another suspended image, whose memory shows where its own has zeros. So each has
a place of its own: the one of its depth. What a record says comes from Volt, and becomes part of a
command line: nothing passes that does not look as it must.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from virtman.errors import InvalidRequest, SuspendedForeign, SuspendedInvalid
from virtman.model.dirty import CHUNK
from virtman.model.sizes import SPAN

MEMORY = SPAN // 2
"""Where the memory of a layer begins that lies on no other one; no suspended disk is so long."""

STRIDE = 1 << 44
"""Bytes from there to where that of a layer one higher begins."""

MOST_STATE = 64 * 1024 * 1024
"""Bytes of device state at most; that of a small VM has 400 kB."""

DISK, NIC, GENERATION = "virtio-blk-pci", "virtio-net-pci", "vmgenid"
CONTROLLER, PORT = "virtio-serial-pci", "virtserialport"

DRIVERS = {DISK, NIC, GENERATION, CONTROLLER, PORT, "virtio-rng-pci", "VGA"}
"""Devices that a VM may have beside those of its board."""

AGENT, AGENT_NUMBER = "org.qemu.guest_agent.0", 1
"""Name of the only port that a VM may have: the guest agent's channel. And its number."""

_LEVELS = 8
_MOST = 1024

_PATTERNS = {
    "qemu": r"\d{1,3}\.\d{1,3}",
    "accel": r"kvm|tcg",
    "machine": r"pc-(i440fx|q35)-\d{1,3}\.\d{1,3}",
    "cpu": r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}",
    "features": r"[0-9a-f]{64}",
    "block": r"[a-z][a-z0-9_.-]{0,63}",
    "sha256": r"[0-9a-f]{64}",
    "address": r"([0-9a-f]{2}\.[0-7])?",
    "serial": r"[A-Za-z0-9_.-]{0,20}",
    "mac": r"(([0-9a-f]{2}:){5}[0-9a-f]{2})?",
    "project": r"[A-Za-z0-9_.-]{0,64}",
}


@dataclass(frozen=True)
class Device:
    """A device beside those of the board.

    :ivar address: slot and function on the first PCI bus; empty for a device that is on none
    :ivar serial: of a disk
    :ivar mac: of a network card
    """

    driver: str
    address: str = ""
    serial: str = ""
    mac: str = ""


@dataclass(frozen=True)
class Hardware:
    """What a VM consists of; whoever resumes it has to have the same.

    :ivar qemu: major and minor version
    :ivar cpu: name of the model
    :ivar features: SHA-256 of what the processor says that it can do
    :ivar memory: bytes
    :ivar block: name of the memory in the device state; a path if it is ``canonical``
    :ivar serials: how many serial ports there are
    """

    qemu: str
    accel: str
    machine: str
    cpu: str
    features: str
    sockets: int
    cores: int
    threads: int
    memory: int
    block: str
    canonical: bool
    serials: int
    devices: tuple[Device, ...]

    @property
    def has_agent(self) -> bool:
        """Whether there is a channel for QEMU's guest agent."""
        return any(one.driver == PORT for one in self.devices)

    @property
    def nics(self) -> tuple[Device, ...]:
        """The network cards."""
        return tuple(one for one in self.devices if one.driver == NIC)


@dataclass(frozen=True)
class Suspended:
    """What makes a layer a suspended image.

    :ivar at: byte at which the memory begins; the device state follows it
    :ivar state: bytes of device state
    :ivar sha256: of the device state
    :ivar project: whose VMs alone may have the memory; empty if all may
    """

    at: int
    state: int
    sha256: str
    hardware: Hardware
    project: str = ""


def place(depth: int) -> int:
    """Return where the memory of a layer begins that lies on so many others."""
    return MEMORY + depth * STRIDE


def parse(found: Mapping[str, Any]) -> Suspended:
    """Return what a record says.

    :raises SuspendedInvalid: if it cannot be one
    """
    try:
        hardware = dict(found["hardware"])
        devices = tuple(Device(**one) for one in hardware.pop("devices"))
        made = Suspended(**{**found, "hardware": Hardware(**hardware, devices=devices)})
        _check(made)
        _check_all(made.hardware)
    except (KeyError, TypeError, ValueError) as err:
        raise SuspendedInvalid(f"the record of the suspended image is not valid: {err}") from err
    return made


def check(hardware: Hardware) -> Hardware:
    """Return hardware that can be on record.

    :raises SuspendedInvalid: if it cannot
    """
    try:
        _check_all(hardware)
    except (TypeError, ValueError) as err:
        raise SuspendedInvalid(f"this VM cannot be suspended: {err}") from err
    return hardware


def _check_all(hardware: Hardware) -> None:
    _check(hardware)
    for one in hardware.devices:
        _check(one)


def _check(part: Suspended | Hardware | Device) -> None:
    for name, value in vars(part).items():
        pattern = _PATTERNS.get(name)
        if pattern and not (isinstance(value, str) and re.fullmatch(pattern, value)):
            raise ValueError(f"{name} {value!r}")
    match part:
        case Suspended():
            levels, rest = divmod(part.at - MEMORY, STRIDE)
            if rest or levels not in range(_LEVELS) or part.state not in range(1, MOST_STATE + 1):
                raise ValueError(f"at {part.at} with {part.state} bytes of state")
        case Hardware():
            _check_counts(part)
        case Device() if part.driver not in DRIVERS:
            raise ValueError(f"device {part.driver!r}: only {', '.join(sorted(DRIVERS))} can be")


def _check_counts(part: Hardware) -> None:
    counts = (part.sockets, part.cores, part.threads)
    if not all(type(one) is int and one in range(1, _MOST + 1) for one in counts):
        raise ValueError(f"processors {counts}")
    if type(part.canonical) is not bool or part.serials not in range(5):
        raise ValueError(f"canonical {part.canonical}, serials {part.serials}")
    if part.memory not in range(CHUNK, STRIDE // 2, CHUNK):
        raise ValueError(f"memory {part.memory}: must be a multiple of {CHUNK} bytes")
    if sum(one.driver == DISK for one in part.devices) != 1:
        raise ValueError(f"there must be one disk, a {DISK}")
    controllers, ports = (
        sum(one.driver == driver for one in part.devices) for driver in (CONTROLLER, PORT)
    )
    if not 1 >= controllers >= ports:
        raise ValueError(f"there may be one {CONTROLLER}, with one port")


def check_project(name: str) -> str:
    """Return a name that a project can have.

    :raises InvalidRequest: if none can
    """
    if not re.fullmatch(_PATTERNS["project"], name):
        raise InvalidRequest(
            f"{name!r} is no project: give letters, digits and any of _.-, at most 64"
        )
    return name


def is_for(owner: str, project: str) -> bool:
    """Tell whether VMs of a project may have memory of its owner's.

    :param owner: a project; empty for memory that all may have
    :param project: empty for VMs that are of none
    """
    return owner in ("", project)


def check_same(image: str, record: Suspended, project: str) -> None:
    """See that VMs of a project may have the memory that is in an image.

    :param project: empty for VMs that are of none
    :raises SuspendedForeign: if they may not
    """
    if not is_for(record.project, project):
        raise SuspendedForeign(
            f"suspended image {image} is of project {record.project}, and not of "
            f"{project or 'none'}: VMs have no memory of another project"
        )


def options(hardware: Hardware) -> list[str]:
    """Return what QEMU is told for the same processor and board."""
    smp = f"sockets={hardware.sockets},cores={hardware.cores},threads={hardware.threads}"
    words = ["-machine", hardware.machine, "-accel", hardware.accel, "-cpu", hardware.cpu]
    return [*words, "-smp", smp, "-nodefaults", "-display", "none"]


def memory(hardware: Hardware, path: str, *, offset: int | None) -> list[str]:
    """Return what QEMU is told for its memory.

    :param path: of a file that takes it, or of a device that has it
    :param offset: byte at which the device has it; None for the file
    """
    words = ["-m", f"{hardware.memory // 1024}k", "-object", backend(hardware, path, offset)]
    return [*words, "-machine", f"memory-backend={hardware.block}"]


def backend(hardware: Hardware, path: str, offset: int | None) -> str:
    """Return the object of QEMU's that is the memory; see ``memory``."""
    name = "on" if hardware.canonical else "off"
    told = f"memory-backend-file,id={hardware.block},size={hardware.memory},mem-path={path}"
    told += f",x-use-canonical-path-for-ramblock-id={name}"
    own = "share=on" if offset is None else f"share=off,readonly=on,rom=off,offset={offset}"
    return f"{told},{own}"


def devices(hardware: Hardware, generation: str) -> list[str]:
    """Return what QEMU is told for the devices.

    The disk is on the block node ``disk``, and the guest agent's channel on the character device
    ``agent``.

    :param generation: UUID by which the guest sees that it goes on as another VM
    """
    words: list[str] = []
    # a port is on the controller that is there
    for number, one in enumerate(sorted(hardware.devices, key=lambda one: one.driver == PORT)):
        words += ["-device", _device(one, number, generation)]
    return words


def cards(hardware: Hardware) -> list[str]:
    """Return what QEMU is told for network cards, which no network is behind."""
    found = enumerate(hardware.nics)
    return [word for number, one in found for word in ("-device", _device(one, number))]


def _device(one: Device, number: int, generation: str = "") -> str:
    told = one.driver if one.driver == GENERATION else f"{one.driver},id=device{number}"
    told += f",addr={one.address}" if one.address else ""
    if one.driver == DISK:
        told += ",drive=disk" + (f",serial={one.serial}" if one.serial else "")
    if one.driver == NIC:
        told += f",mac={one.mac}"
    if one.driver == GENERATION:
        told += f",guid={generation}"
    if one.driver == PORT:
        told += f",nr={AGENT_NUMBER},name={AGENT},chardev=agent"
    return told
