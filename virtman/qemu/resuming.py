"""Starts QEMU for a VM that goes on from a suspended image, as an account without privileges.

::

    /dev/virtman/<vm>.disk      the VM's own device
    /dev/virtman/<vm>.memory    what all VMs of the image on this node have before them: mapped
                                privately, so what one of them has read the next one finds there

Both are nodes of the account's own, and gone once QEMU has opened them. Its monitor and its serial
ports are sockets in a folder of the VM, which QEMU is given open: it cannot have this process,
which is root's, take something else for them. Device state is read by this process, and believed
only if it has its checksum.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from virtman.errors import HostUnfit, InvalidRequest, QemuFailed, VirtmanError
from virtman.model import suspended
from virtman.model.suspended import Suspended
from virtman.qemu import inspection, sandbox
from virtman.qemu.qmp import Monitor, listening_at

GUESTS = Path("/run/virtman-guests")
"""A folder for each VM: ``qmp``, ``serial0`` ..., ``agent`` if it has a guest agent, ``project``.

A file for each kind of hardware that this host is known to be able to resume, too.
"""

_NODES = Path("/dev/virtman")
_PROJECT = "project"
_PROGRAM = "qemu-system-x86_64"
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# Sets how many sectors the kernel reads ahead of a device.
_SET_READ_AHEAD = 0x1262
# Chooses an interface of a kind: TAP, without a header of packets, but with one of virtio.
_SET_INTERFACE, _TAP = 0x400454CA, 0x0002 | 0x1000 | 0x4000


@dataclass(frozen=True)
class Account:
    """Whom QEMU runs as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Image:
    """A suspended image on this node.

    :ivar device: that has the memory, and the device state
    :ivar agent: path of the agent's socket; whose that is may use a VM's monitor too
    """

    record: Suspended
    device: str
    agent: str


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


def account(name: str) -> Account:
    """Return an account of this host.

    :raises InvalidRequest: if there is none, it is root, or this process cannot become another
    """
    if os.geteuid() != 0:
        raise InvalidRequest("resuming a VM needs root, which starts QEMU as another account")
    try:
        found = pwd.getpwnam(name)
    except KeyError as err:
        raise InvalidRequest(f"there is no account {name}: give --account another one") from err
    if found.pw_uid == 0:
        raise InvalidRequest("QEMU does not run as root: give --account another account")
    return Account(name, found.pw_uid, found.pw_gid)


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
            with _running([*words, "-S"], who, path, os.geteuid(), keep=False) as monitor:
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
        GUESTS.mkdir(mode=0o755, parents=True, exist_ok=True)
        known.touch()


def _known(record: Suspended, who: Account) -> Path | None:
    """Return the file that tells that a host can resume VMs of such hardware; None without QEMU."""
    program = shutil.which(_PROGRAM, path=_PATH)
    if program is None:
        return None
    found = os.stat(program)
    about = (asdict(record.hardware), who.uid, found.st_ino, found.st_size, found.st_mtime_ns)
    return GUESTS / f".fits-{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]}"


def monitor_of(vm: str) -> Path:
    """Return the socket of a VM's QEMU."""
    return GUESTS / vm / "qmp"


def project_at(qmp: str) -> str:
    """Return the project of the VM whose monitor listens there; empty for one of none.

    Only a VM that was resumed here tells it.
    """
    path = Path(qmp)
    if path.parent.parent != GUESTS:
        return ""
    with contextlib.suppress(FileNotFoundError):
        return path.with_name(_PROJECT).read_text()
    return ""


def disk_of(vm: str) -> str:
    """Return what the QEMU of a VM that was resumed calls its disk."""
    return str(_NODES / f"{vm}.disk")


def runs(vm: str) -> bool:
    """Tell whether a VM runs."""
    try:
        with Monitor(str(monitor_of(vm))) as monitor:
            return monitor.status == "running"
    except QemuFailed:
        return False


def end(vm: str) -> None:
    """End the QEMU of a VM, if it has one: its start was killed, and it never went on."""
    with contextlib.suppress(QemuFailed), Monitor(str(monitor_of(vm))) as monitor:
        monitor.ask("quit")


def resume(
    vm: str,
    disk: str,
    image: Image,
    who: Account,
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
    folder = GUESTS / vm
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755, parents=True)
    (folder / _PROJECT).write_text(project)
    hardware = image.record.hardware
    own, owner = uuid.uuid4(), os.stat(image.agent).st_uid
    with (
        _node(_NODES / f"{vm}.memory", image.device, who, 0o400) as memory,
        _node(Path(disk_of(vm)), disk, who, 0o600) as drive,
        ExitStack() as sockets,
    ):
        _read_nothing_ahead(memory)
        words = [*suspended.options(hardware), "-name", vm, "-uuid", str(own)]
        words += suspended.memory(hardware, memory, offset=image.record.at)
        block = f"driver=host_device,node-name=disk,filename={drive},cache.direct=on"
        words += ["-blockdev", block, *suspended.devices(hardware, str(own))]
        passed = [
            sockets.enter_context(listening_at(folder / f"serial{number}", os.geteuid()))
            for number in range(hardware.serials)
        ]
        for number, one in enumerate(passed):
            words += _at(f"serial{number}", one)
            words += ["-serial", f"chardev:serial{number}"]
        if hardware.has_agent:
            passed.append(sockets.enter_context(listening_at(folder / "agent", owner)))
            words += _at("agent", passed[-1])
        ours, its = map(sockets.enter_context, socket.socketpair())
        words += ["-incoming", "defer"]
        with _running(words, who, monitor_of(vm), owner, (*passed, its)) as monitor:
            sender = _sending(ours, _state(image))
            monitor.leave_memory_out(True)
            monitor.ask("migrate-incoming", uri=f"fd:{its.fileno()}")
            monitor.await_migrated()
            sender.join()
            still = time.monotonic()
            if buffer:
                buffer()
            buffered = time.monotonic() - still
            monitor.ask("cont")
            seconds = time.monotonic() - begin
            mac = _plug(monitor, tap, own) if tap else ""
    return Resumed(seconds, buffered, str(own), mac)


def _plug(monitor: Monitor, tap: str, own: uuid.UUID) -> str:
    """Give a VM a network card; return its address, which is the VM's own.

    :raises InvalidRequest: if there is no such interface
    """
    mac = "52:54:00:" + own.bytes[-3:].hex(":")
    asked = struct.pack("16sH22x", tap.encode(), _TAP)
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _SET_INTERFACE, asked)
        monitor.give("tap0", descriptor)
    except OSError as err:
        raise InvalidRequest(f"{tap!r} is no TAP interface that can be used: {err}") from err
    finally:
        os.close(descriptor)
    monitor.ask("netdev_add", type="tap", id="net0", fd="tap0")
    monitor.ask("device_add", driver=suspended.NIC, id="nic0", netdev="net0", mac=mac)
    return mac


def _sending(to: socket.socket, state: bytes) -> threading.Thread:
    """Send the device state, which may not fit a socket at once."""

    def send() -> None:
        with contextlib.suppress(OSError):  # QEMU's own word says why it did not take it
            to.sendall(state)
            to.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def _state(image: Image) -> bytes:
    """Return the device state, which lies behind the memory."""
    record = image.record
    at = record.at + record.hardware.memory
    descriptor = os.open(image.device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        state = bytearray()
        while part := os.pread(descriptor, record.state - len(state), at + len(state)):
            state += part
    finally:
        os.close(descriptor)
    if hashlib.sha256(state).hexdigest() != record.sha256:
        raise HostUnfit("the device state in the image is not the one that is on record")
    return bytes(state)


@contextmanager
def _node(path: Path, device: str, who: Account, mode: int) -> Iterator[str]:
    """Give an account a node of a device; whoever has opened it keeps it."""
    _NODES.mkdir(mode=0o711, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mknod(path, mode | stat.S_IFBLK, os.stat(device).st_rdev)
    try:
        os.chown(path, who.uid, who.gid)
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


def _read_nothing_ahead(device: str) -> None:
    """Have a fault bring its page, and no more: those beside it are another program's."""
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _SET_READ_AHEAD, 0)
    finally:
        os.close(descriptor)


def _at(name: str, listening: socket.socket) -> list[str]:
    return ["-chardev", f"socket,id={name},fd={listening.fileno()},server=on,wait=off"]


@contextmanager
def _running(
    words: Sequence[str],
    who: Account,
    path: Path,
    owner: int,
    passed: Sequence[socket.socket] = (),
    *,
    keep: bool = True,
) -> Iterator[Monitor]:
    """Run QEMU; give its monitor. What this thread is, as to huge pages, QEMU is too.

    :param path: where the monitor is to be
    :param owner: whose that is
    :param passed: sockets that QEMU has too
    :param keep: whether it goes on if all goes well
    """
    with tempfile.TemporaryFile() as said:
        with listening_at(path, owner) as listening:
            monitored = [*_at("qmp", listening), "-mon", "chardev=qmp,mode=control"]
            process = subprocess.Popen(
                [_PROGRAM, *words, *monitored, *sandbox.OPTIONS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                cwd="/",
                env={"PATH": _PATH},
                start_new_session=True,
                user=who.uid,
                group=who.gid,
                extra_groups=[],
                pass_fds=[one.fileno() for one in (*passed, listening)],
            )
        try:
            # who has ended listens no more
            with Monitor(str(path)) as monitor:
                yield monitor
        except BaseException as err:
            process.kill()
            process.wait()
            said.seek(0)
            last = said.read(1000).decode(errors="replace").strip().splitlines()
            if last and isinstance(err, QemuFailed):
                raise QemuFailed(f"QEMU ended: {'; '.join(last)}") from err
            raise
        if not keep:
            process.kill()
            process.wait()
