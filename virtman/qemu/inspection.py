"""What hardware a running VM has, as far as another QEMU must have the same."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from virtman.errors import SessionsOpen, SuspendedInvalid
from virtman.model import suspended
from virtman.model.suspended import (
    AGENT,
    AGENT_NUMBER,
    DISK,
    DRIVERS,
    GENERATION,
    NIC,
    PORT,
    Device,
    Hardware,
)
from virtman.qemu.qmp import Qemu, features

OLDEST = (8, 2)
"""The first QEMU whose memory may be a read-only device that the guest writes to for itself."""

_SERIAL = "isa-serial"
_SHAPE = ("sockets", "cores", "threads", "cpus", "maxcpus")
# The board's own: host, ISA, IDE or SATA, power or SMBus. All are Intel's.
_BOARD = {0x1237, 0x7000, 0x7010, 0x7113, 0x29C0, 0x2918, 0x2922, 0x2930}
_INTEL, _VGA = 0x8086, (0x1234, 0x1111)
_CARD = 0x0200  # PCI class of an Ethernet card


def version(monitor: Qemu) -> str:
    """Return QEMU's major and minor version.

    :raises SuspendedInvalid: if nothing can be suspended or resumed with that
    """
    found = monitor.ask("query-version")["qemu"]
    if (found["major"], found["minor"]) < OLDEST:
        raise SuspendedInvalid(
            f"QEMU {found['major']}.{found['minor']} cannot resume a VM from a shared device: "
            f"QEMU {OLDEST[0]}.{OLDEST[1]} or later can"
        )
    return f"{found['major']}.{found['minor']}"


def processor(monitor: Qemu) -> tuple[str, str]:
    """Return the name of a VM's processor, and the SHA-256 of what that can do."""
    kind, words = features(monitor)
    text = json.dumps(words, sort_keys=True).encode()
    return kind.removesuffix("-x86_64-cpu"), hashlib.sha256(text).hexdigest()


def hardware(monitor: Qemu) -> Hardware:
    """Return what a VM consists of.

    :raises SuspendedInvalid: if it has something that no other QEMU can be given the same of
    """
    machine = monitor.value("/machine", "type").removesuffix("-machine")
    cpu, can = processor(monitor)
    smp = {name: count for name, count in monitor.value("/machine", "smp").items() if count}
    odd = [name for name, count in smp.items() if count != 1 and name not in _SHAPE]
    if odd or smp["cpus"] != smp["maxcpus"]:
        raise SuspendedInvalid(f"its processors have {', '.join(odd) or 'free slots'}")
    block = monitor.value("/machine", "memory-backend")
    backends = monitor.ask("query-memdev")
    if len(backends) != 1 or block != f"/objects/{backends[0]['id']}":
        raise SuspendedInvalid("it has more than one memory device, or another than its own")
    return suspended.check(
        Hardware(
            version(monitor),
            "kvm" if monitor.ask("query-kvm")["enabled"] else "tcg",
            machine,
            cpu,
            can,
            smp["sockets"],
            smp["cores"],
            smp["threads"],
            backends[0]["size"],
            backends[0]["id"],
            monitor.value(block, "x-use-canonical-path-for-ramblock-id"),
            _serials(monitor),
            tuple(_devices(monitor)),
        )
    )


def has_memory_in_file(monitor: Qemu) -> bool:
    """Tell whether a VM has its memory in a file or a device, as one has that was resumed."""
    block = monitor.value("/machine", "memory-backend")
    return bool(monitor.value(block, "type") == "memory-backend-file")


def guest_agent(monitor: Qemu) -> str:
    """Return the path of the channel at which a guest agent listens; empty if none does.

    :raises SessionsOpen: if one does, but elsewhere than at a socket
    """
    for path, driver in _made(monitor).items():
        if driver != PORT:
            continue
        label = monitor.value(path, "chardev")
        (found,) = (one for one in monitor.ask("query-chardev") if one["label"] == label)
        if not found["frontend-open"]:
            continue
        match = re.fullmatch(r"(?:disconnected:)?unix:(/[^,]+)(,server(=on)?)?", found["filename"])
        if match is None:
            raise SessionsOpen(
                f"the guest agent is at {found['filename']}, where nobody can ask it who is logged "
                "in: give it a Unix socket, or force it"
            )
        return match[1]
    return ""


def drive(monitor: Qemu) -> str:
    """Return the path of what a VM's only disk is on."""
    found = [one["inserted"]["file"] for one in monitor.ask("query-block") if "inserted" in one]
    if len(found) != 1:
        raise SuspendedInvalid(f"it has {len(found)} disks: one can be suspended")
    path = str(found[0])
    if path.startswith("json:"):
        path = _innermost(json.loads(path.removeprefix("json:")))
    return path


def _innermost(node: dict[str, Any]) -> str:
    while "filename" not in node:
        node = node.get("file", {"filename": ""})
    return str(node["filename"])


def _serials(monitor: Qemu) -> int:
    """Return how many serial ports there are, whether QEMU or whoever started it made them."""
    found = [*monitor.children("/machine/unattached").values(), *_made(monitor).values()]
    return found.count(_SERIAL)


def _devices(monitor: Qemu) -> list[Device]:
    made = {path: driver for path, driver in _made(monitor).items() if driver != _SERIAL}
    unknown = sorted({driver for driver in made.values() if driver not in DRIVERS})
    if unknown:
        raise SuspendedInvalid(
            f"it has devices of which none can be made the same: {', '.join(unknown)}"
        )
    found = [_device(monitor, path, driver) for path, driver in made.items()]
    known = {one.address for one in found}
    for bus in monitor.ask("query-pci"):
        for one in bus["devices"]:
            address = f"{one['slot']:02x}.{one['function']}"
            kind = (one["id"]["vendor"], one["id"]["device"])
            if bus["bus"] == 0 and (address in known or (kind[0] == _INTEL and kind[1] in _BOARD)):
                continue
            if kind != _VGA or bus["bus"]:
                what = "network card" if one["class_info"]["class"] == _CARD else "device"
                raise SuspendedInvalid(
                    f"it has a PCI {what} {kind[0]:04x}:{kind[1]:04x} that no other VM can be given"
                )
            found.append(Device("VGA", address))
    return sorted(found, key=lambda one: (one.address, one.driver))


def _made(monitor: Qemu) -> dict[str, str]:
    """Return the drivers of the devices that QEMU was told of, by their paths."""
    return {
        **monitor.children("/machine/peripheral"),
        **monitor.children("/machine/peripheral-anon"),
    }


def _device(monitor: Qemu, path: str, driver: str) -> Device:
    if driver == GENERATION:
        return Device(driver)
    if driver == PORT:
        told = monitor.value(path, "name"), monitor.value(path, "nr")
        if told != (AGENT, AGENT_NUMBER):
            raise SuspendedInvalid(
                f"it has a port {told[0]!r} of number {told[1]}: there may be one for the guest "
                f"agent, {AGENT}, of number {AGENT_NUMBER}"
            )
        return Device(driver)
    slot, function = divmod(monitor.value(path, "addr"), 8)
    address = f"{slot:02x}.{function}"
    if driver == NIC:
        return Device(driver, address, mac=monitor.value(path, "mac"))
    if driver == DISK:
        serial = monitor.value(path, "serial") or ""
        if not re.fullmatch(r"[A-Za-z0-9_.-]{0,20}", serial):
            raise SuspendedInvalid(f"its disk has the serial number {serial!r}")
        return Device(driver, address, serial=serial)
    return Device(driver, address)
