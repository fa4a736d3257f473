"""Which kernel modules are there, and how one of them works."""

from __future__ import annotations

import contextlib
from pathlib import Path

from virtman.privileged import context
from virtman.privileged.command import run

_LOADED = Path("/sys/module")
"""Modules; of those that are built in, only some."""


_HASHES = "dm_verity/parameters/prefetch_cluster"


@context.entrypoint
def fetch_hashes(size: int) -> None:
    """Have dm-verity fetch so many bytes of hashes at a time, for all its devices on this host.

    :param size: a power of two
    """
    (_LOADED / _HASHES).write_text(str(size))


@context.entrypoint
def load_modules(names: list[str]) -> list[str]:
    """Load modules and return the names of those that the kernel does not have.

    No process is started where the kernel shows that it has all of them.
    """
    missing: list[str] = []
    absent = [name for name in names if not (_LOADED / name.replace("-", "_")).exists()]
    if not absent:
        return missing
    with contextlib.suppress(OSError):
        run("modprobe", "--all", *absent)
        return missing
    for name in absent:
        try:
            run("modprobe", name)
        except OSError:
            missing.append(name)
    return missing
