"""What the kernel has of ours although nothing needs it, and letting go of it."""

from __future__ import annotations

import os

from virtman import sysfs
from virtman.model.naming import MAPPER, PREFIX
from virtman.stack.mapped import Mapped, detach_loop

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
