"""Verbs on what lies on local cache devices."""

from __future__ import annotations

import errno
import os

from virtman.privileged import context
from virtman.privileged.command import run

_SAYS = b"virtman cache group 1\n".ljust(4096, b"\0")


@context.entrypoint
def claim(device: str) -> None:
    """Write at a device's start that it is our cache; one that says so already is fine.

    :raises OSError: EMEDIUMTYPE if it holds anything else
    """
    with open(device, "r+b", buffering=0) as opened:
        if opened.read(len(_SAYS)) == _SAYS:
            return
        found = run("wipefs", "--no-act", "--noheadings", "--output", "TYPE", device).split()
        if found:
            raise OSError(
                errno.EMEDIUMTYPE,
                f"{device} holds {', '.join(found)}: name another device, or give this one up "
                "with 'wipefs --all'",
            )
        opened.seek(0)
        opened.write(_SAYS)
        os.fsync(opened.fileno())


@context.entrypoint
def wipe(device: str) -> None:
    """Make a driver find nothing on a device: zeros in place of its first block."""
    with open(device, "r+b", buffering=0) as opened:
        opened.write(bytes(4096))
        os.fsync(opened.fileno())
