"""What Volt keeps of a suspended image: where its memory is, and which hardware it needs.

Volt does not use any of it. It keeps nothing but these members, each of which looks as it must, for
agents make command lines of them.
"""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Device:
    """A device beside those of the board; what does not apply is empty.

    ``address`` is its slot and function on the first PCI bus.
    """

    driver: str
    address: str
    serial: str
    mac: str


@dataclass(frozen=True)
class Hardware:
    """What a VM consists of; ``qemu`` is the version of its QEMU, ``memory`` is in bytes.

    ``features`` is the SHA-256 of what its processor can do. The device state calls the memory
    ``block``, a path if it is ``canonical``. ``serials`` is how many serial ports there are.
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


@dataclass(frozen=True)
class Suspended:
    """How a VM goes on: its memory begins at byte ``at`` of the layer's disk, behind the data.

    So many bytes of device ``state`` follow it, with this ``sha256``. VMs of the ``project`` alone
    may have the memory, unless it is empty.
    """

    at: int
    state: int
    sha256: str
    hardware: Hardware
    project: str


def form(suspended: Suspended) -> dict[str, Any]:
    """Return it as JSON has it."""
    return asdict(suspended)


def parse(content: dict[str, Any]) -> Suspended:
    """Return what JSON says that looks as it must."""
    hardware = dict(content["hardware"])
    devices = tuple(Device(**one) for one in hardware.pop("devices"))
    return Suspended(**content | {"hardware": Hardware(**hardware, devices=devices)})
