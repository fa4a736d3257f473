"""What the kernel has of ours although nothing needs it, and letting go of it."""

from __future__ import annotations

import os

from virtman import sysfs
from virtman.model import naming
from virtman.model.naming import MAPPER, PREFIX
from virtman.model.plan import Portal
from virtman.privileged import iscsi, lio
from virtman.stack.mapped import Mapped, detach_loop, explained

_OURS = f"{MAPPER}{PREFIX}_"


def remove(name: str) -> None:
    """Remove a device-mapper device; refused while it is open."""
    Mapped(name).down()


def idle_loops(folder: str) -> list[tuple[str, int]]:
    """Return the files and devices of ours that are shown by a loop device nobody uses.

    :param folder: whose files are ours
    :returns: each with the byte from which on it is shown
    """
    ours = (_OURS, f"{os.path.realpath(folder)}/")
    return sorted(one for one in sysfs.idle_loops() if one[0].startswith(ours))


def detach(path: str, offset: int) -> None:
    """Detach the loop device that shows a file or device from a byte on."""
    detach_loop(path, offset)


def exports() -> dict[str, str]:
    """Return the image of each storage object by which this node serves one, by its name."""
    found = {}
    for name, path in sysfs.storages().items():
        device = naming.parse(path.removeprefix(MAPPER)) if path.startswith(_OURS) else None
        if device is not None and device.role.startswith("export"):
            found[name] = device.image
    return found


def withdraw(name: str, target: str) -> None:
    """Stop serving a storage object, named ``virtman_<image>_<lun>``."""
    with explained(f"withdrawing {name}"):
        lio.withdraw(name, target, int(name.rpartition("_")[2]))


def idle_sessions() -> list[Portal]:
    """Return the iSCSI sessions with hosts of ours on whose disks nothing lies."""
    return [one for one in sysfs.idle_sessions() if naming.parse_iqn(one.iqn)]


def log_out(portal: Portal) -> None:
    """Close a session."""
    with explained(f"logging out of {portal.iqn}"):
        iscsi.logout(portal.ip, portal.port, portal.iqn)
