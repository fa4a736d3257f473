"""Has a VM go on from a suspended image, in a QEMU that is made for it.

::

    <image>  memory   mapped privately by all VMs of the image on this node: what one of them has
                      read the next one finds there
             state    read by this process, believed only if it has its checksum, and sent to QEMU
    <vm>     disk     the VM's own device
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from virtman.errors import HostUnfit, InvalidRequest, VirtmanError
from virtman.model import suspended
from virtman.model.suspended import Suspended
from virtman.qemu import guests, inspection, process
from virtman.qemu.domain import Domains
from virtman.qemu.guests import Account, Guest, Image
from virtman.qemu.process import Processes
from virtman.qemu.qmp import Qemu


class Starter(Protocol):
    """Whoever runs QEMUs for VMs that go on: ``Processes`` or ``Domains``."""

    @property
    def account(self) -> Account:
        """Whom they run as."""

    def started(self, guest: Guest, image: Image) -> AbstractContextManager[Qemu]:
        """Start one that waits for its state; it ends if what is done with it fails."""


def starter(account: str, libvirt: str) -> Starter:
    """Return who runs QEMUs.

    :param account: name of whom they run as, without libvirt
    :param libvirt: where it is; empty for none
    :raises InvalidRequest: if there is no such account or libvirt, or this process is not root's
    """
    if os.geteuid() != 0:
        raise InvalidRequest("resuming a VM takes a QEMU of another account: run this as root")
    return Domains(libvirt) if libvirt else Processes(process.account(account))


@dataclass(frozen=True)
class Resumed:
    """A VM that goes on.

    :ivar seconds: until it did
    :ivar buffered_s: of these, for which it stood still until enough was there
    :ivar uuid: its own; its generation is the same
    :ivar mac: of the card that it was given then; empty for none
    """

    seconds: float
    buffered_s: float
    uuid: str
    mac: str


def check_host(record: Suspended, who: Account) -> None:
    """See that VMs of an image can go on here; nothing is made for that.

    To ask takes a start of QEMU. What it could be once it can be until the host is booted, or has
    another QEMU.

    :raises HostUnfit: if they cannot
    """
    wanted = record.hardware
    known = _known(record, who)
    if known is not None and known.exists():
        return
    words = suspended.options(wanted)
    try:
        with tempfile.TemporaryDirectory(prefix="virtman-") as name:
            path = Path(name, "qmp")
            asked = process.running([*words, "-S"], who, path, os.geteuid(), keep=False)
            with asked as monitor:
                qemu, (_, can) = inspection.version(monitor), inspection.processor(monitor)
    except VirtmanError as err:
        raise HostUnfit(f"this host cannot resume it: {err}") from err
    if qemu != wanted.qemu:
        raise HostUnfit(f"this host has QEMU {qemu}, and it was suspended by QEMU {wanted.qemu}")
    if can != wanted.features:
        raise HostUnfit(
            f"this host's processor cannot be the {wanted.cpu} that it was suspended with: "
            "it lacks features of that, or has more"
        )
    if known is not None:
        guests.GUESTS.mkdir(mode=0o755, parents=True, exist_ok=True)
        known.touch()


def check_tap(name: str) -> None:
    """See that there is a TAP interface of a name.

    :raises InvalidRequest: if there is none
    """
    if not Path("/sys/class/net", name, "tun_flags").exists():
        raise InvalidRequest(
            f"there is no TAP interface {name}: 'ip tuntap add {name} mode tap' makes one"
        )


def _known(record: Suspended, who: Account) -> Path | None:
    """Return the file that tells that a host can resume VMs of such hardware; None without QEMU."""
    program = process.program()
    if program is None:
        return None
    found = os.stat(program)
    about = (asdict(record.hardware), who.uid, found.st_ino, found.st_size, found.st_mtime_ns)
    digest = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    return guests.GUESTS / f".fits-{digest[:16]}"


def runs(vm: str) -> bool:
    """Tell whether a VM runs that was resumed."""
    libvirt = guests.libvirt_of(vm)
    return Domains(libvirt).runs(vm) if libvirt else process.runs(vm)


def end(vm: str) -> None:
    """End the QEMU of a VM, if it has one: its start was killed, and it never went on."""
    libvirt = guests.libvirt_of(vm)
    if libvirt:
        Domains(libvirt).end(vm)
    else:
        process.end(vm)


def resume(
    vm: str,
    disk: str,
    image: Image,
    starter: Starter,
    tap: str = "",
    buffer: Callable[[], object] | None = None,
    project: str = "",
) -> Resumed:
    """Have a VM go on.

    :param disk: path of the VM's own device
    :param project: the VM's; empty for none
    :param buffer: returns once enough is there for it; the VM stands still until then. None: it
        does not
    :param tap: name of a TAP interface for a card that comes then; empty for none
    :raises QemuFailed: if QEMU does not start, or does not take the state
    :raises HostUnfit: if the device state is not what it was
    """
    begin = time.monotonic()
    own = uuid.uuid4()
    with starter.started(Guest(vm, str(own), disk, project), image) as qemu:
        qemu.leave_memory_out(True)
        _give_state(qemu, _state(image))
        still = time.monotonic()
        if buffer:
            buffer()
        buffered = time.monotonic() - still
        qemu.go_on()
        seconds = time.monotonic() - begin
        mac = ""
        if tap:
            mac = "52:54:00:" + own.bytes[-3:].hex(":")
            qemu.plug(tap, mac)
    return Resumed(seconds, buffered, str(own), mac)


def _give_state(qemu: Qemu, state: bytes) -> None:
    """Have a VM be as it was, but for its memory; the state may not fit a socket at once."""
    ours, its = socket.socketpair()

    def send() -> None:
        with contextlib.suppress(OSError):  # QEMU's own word says why it did not take it
            ours.sendall(state)
            ours.shutdown(socket.SHUT_WR)

    with ours:
        with its:
            qemu.give("state", its.fileno())
        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        qemu.ask("migrate-incoming", uri="fd:state")
        qemu.await_migrated()
        sending.join()


def _state(image: Image) -> bytes:
    """Return the device state, which lies behind the memory."""
    record = image.record
    at = record.at + record.hardware.memory
    descriptor = os.open(image.device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # nothing is read ahead of this device: each page would be waited for
        os.posix_fadvise(descriptor, at, record.state, os.POSIX_FADV_WILLNEED)
        state = bytearray()
        while part := os.pread(descriptor, record.state - len(state), at + len(state)):
            state += part
    finally:
        os.close(descriptor)
    if hashlib.sha256(state).hexdigest() != record.sha256:
        raise HostUnfit("the device state in the image is not the one that is on record")
    return bytes(state)
