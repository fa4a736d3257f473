"""What a host has of the VMs that it resumes: a folder of each, and nodes of devices for QEMU.

::

    /run/virtman-guests/<vm>/    ``project``; ``domain`` if libvirt has the VM, else ``qmp``,
                                 ``serial0`` ..., and ``agent`` if it has a guest agent
    /dev/virtman/                nodes of the account's own, gone once QEMU has opened them
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from virtman.model.suspended import Suspended

GUESTS = Path("/run/virtman-guests")
"""A folder for each VM.

A file for each kind of hardware that this host is known to be able to resume, too.
"""

_NODES = Path("/dev/virtman")
_PROJECT, _DOMAIN = "project", "domain"
# Sets how many sectors the kernel reads ahead of a device.
_SET_READ_AHEAD = 0x1262


@dataclass(frozen=True)
class Account:
    """Whom QEMU runs as."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Guest:
    """A VM that is to go on.

    :ivar vm: its name
    :ivar uuid: its own; its generation is the same
    :ivar disk: path of its own device
    :ivar project: its; empty for none
    """

    vm: str
    uuid: str
    disk: str
    project: str


@dataclass(frozen=True)
class Image:
    """A suspended image on this node.

    :ivar device: that has the memory, and the device state
    :ivar agent: path of the agent's socket; whose that is may use a VM's monitor too
    """

    record: Suspended
    device: str
    agent: str


def begin(guest: Guest, libvirt: str = "") -> Path:
    """Return the folder of a VM, with nothing of an earlier one.

    :param libvirt: who has the VM; empty if it is a process of its own
    """
    folder = GUESTS / guest.vm
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755, parents=True)
    (folder / _PROJECT).write_text(guest.project)
    if libvirt:
        (folder / _DOMAIN).write_text(libvirt)
    return folder


def libvirt_of(vm: str) -> str:
    """Return which libvirt has a VM; empty if none has."""
    with contextlib.suppress(FileNotFoundError):
        return (GUESTS / vm / _DOMAIN).read_text()
    return ""


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


def memory_of(vm: str = "") -> str:
    """Return what its QEMU calls the memory; without a name, that of a domain of libvirt."""
    return str(_NODES / (f"{vm}.memory" if vm else "memory"))


@contextmanager
def node(path: str, device: str, who: Account, mode: int) -> Iterator[str]:
    """Give an account a node of a device; whoever has opened it keeps it."""
    _NODES.mkdir(mode=0o711, exist_ok=True)
    made = Path(path)
    made.unlink(missing_ok=True)
    os.mknod(path, mode | stat.S_IFBLK, os.stat(device).st_rdev)
    try:
        os.chown(path, who.uid, who.gid)
        yield path
    finally:
        made.unlink(missing_ok=True)


def read_nothing_ahead(device: str) -> None:
    """Have a fault bring its page, and no more: those beside it are another program's."""
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _SET_READ_AHEAD, 0)
    finally:
        os.close(descriptor)
