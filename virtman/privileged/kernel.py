"""Which kernel modules are there."""

from __future__ import annotations

import contextlib
from pathlib import Path

from virtman.privileged import context
from virtman.privileged.command import run

_LOADED = Path("/sys/module")
"""Modules; of those that are built in, only some."""


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
