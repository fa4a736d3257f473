"""What the kernel shows without root of sessions with parents."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
from collections.abc import Iterator
from pathlib import Path

from virtman.model import naming
from virtman.model.address import Portal
from virtman.model.naming import Device

_SESSIONS = Path("/sys/class/iscsi_session")
_TCP, _TCP6 = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
_DISK_STATISTICS = Path("/proc/diskstats")
_ESTABLISHED = "01"
_LOGGED_IN = "LOGGED_IN"


def disk(iqn: str, lun: int) -> str | None:
    """Return the name of an iSCSI disk, such as ``sda``; not through udev.

    A disk shows in sysfs before it has its queue and may be opened: ``bdi`` is the last of it that
    Linux adds.
    """
    for session in _sessions(iqn):
        for found in session.glob(f"device/target*/*:{lun}/block/*/bdi"):
            return found.parent.name
    return None


def session_of(device_number: str) -> Portal | None:
    """Return the portal of the session that a disk belongs to; None if it is no such disk."""
    parts = (Path("/sys/dev/block") / device_number).resolve().parts
    names = [part for part in parts if part.startswith("session")]
    return _portal(_SESSIONS / names[0]) if names else None


def session_behind(disk: str) -> Portal | None:
    """Return the portal of the session that a disk, such as ``sda``, belongs to."""
    with contextlib.suppress(OSError):  # it goes just now
        return session_of((Path("/sys/class/block") / disk / "dev").read_text().strip())
    return None


def session_to(iqn: str) -> Portal | None:
    """Return the portal of a session with this target; None if there is none."""
    return next(map(_portal, _sessions(iqn)), None)


def session_in_use(iqn: str) -> bool:
    """Tell whether any device lies on a disk of a session with this target."""
    return any(map(_is_used, _sessions(iqn)))


def own_ports(iqn: str) -> list[int]:
    """Return this side's port of each connection that sessions with this target have."""
    found = []
    for session in _sessions(iqn):
        for port in session.glob("device/connection*/iscsi_connection/*/local_port"):
            with contextlib.suppress(OSError):  # it has been lost already
                found.append(int(port.read_text()))
    return found


def paths(image: str) -> dict[Device, Portal]:
    """Return the devices of an image that lie on disks of sessions, and the session's portal."""
    found = {}
    for session in _SESSIONS.glob("session*"):
        with contextlib.suppress(OSError):  # it goes just now
            for name in session.glob("device/target*/*/block/*/holders/*/dm/name"):
                device = naming.parse(name.read_text().strip())
                if device is not None and device.image == image:
                    found[device] = _portal(session)
    return found


def idle_sessions() -> list[Portal]:
    """Return the portals of iSCSI sessions on whose disks nothing lies."""
    idle = []
    for session in _SESSIONS.glob("session*"):
        with contextlib.suppress(OSError):
            if not _is_used(session):
                idle.append(_portal(session))
    return idle


def is_logged_in(iqn: str) -> bool:
    """Tell whether there is a session with this target that has its connection."""
    return any(_state(session) == _LOGGED_IN for session in _sessions(iqn))


def cut_off() -> set[str]:
    """Return the targets of sessions that have lost their connection.

    One that still logs in for the first time has none to lose, and no disks yet. This is looked at
    all the time, and nodes may have a hundred sessions: of one that is well, one file is read.
    """
    found = set()
    for session in _SESSIONS.glob("session*"):
        if _state(session) not in (_LOGGED_IN, "") and any(session.glob("device/target*")):
            with contextlib.suppress(OSError):  # it goes just now
                found.add((session / "targetname").read_text().strip())
    return found


def unacknowledging() -> set[tuple[str, int]]:
    """Return address and port of peers to whom this kernel sends something again, in vain so far.

    A peer that is merely busy acknowledges what it gets at once.
    """
    found = set()
    for table, length in ((_TCP, 4), (_TCP6, 16)):
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            for line in table.read_text().splitlines()[1:]:
                row = line.split()
                if row[3] == _ESTABLISHED and int(row[6], 16):
                    found.add(_peer(row[2], length))
    return found


def reads() -> dict[str, tuple[int, bool]]:
    """Return of each SCSI disk how many reads it has answered, and whether it has more to answer.

    This is looked at all the time: one file has it of all disks.
    """
    rows = map(str.split, _DISK_STATISTICS.read_text().splitlines())
    return {row[2]: (int(row[3]), row[11] != "0") for row in rows if row[2].startswith("sd")}


def _peer(text: str, length: int) -> tuple[str, int]:
    """Return address and port from /proc/net/tcp, which has an address in words of the host."""
    address, _, port = text.partition(":")
    raw = bytes.fromhex(address)
    packed = b"".join(raw[at : at + 4][::-1] for at in range(0, length, 4))
    return str(ipaddress.ip_address(packed)), int(port, 16)


def _sessions(iqn: str) -> Iterator[Path]:
    for session in _SESSIONS.glob("session*"):
        with contextlib.suppress(OSError):
            if (session / "targetname").read_text().strip() == iqn:
                yield session


def _state(session: Path) -> str:
    with contextlib.suppress(OSError):  # it goes just now
        return (session / "state").read_text().strip()
    return ""


def _is_used(session: Path) -> bool:
    return any(session.glob("device/target*/*/block/*/holders/*"))


def _portal(session: Path) -> Portal:
    connection = next(iter((session / "device").glob("connection*/iscsi_connection/*")), None)
    if connection is None:
        raise OSError(errno.ENOTCONN, f"{session.name} has no connection")
    return Portal(
        (connection / "persistent_address").read_text().strip(),
        int((connection / "persistent_port").read_text()),
        (session / "targetname").read_text().strip(),
    )
