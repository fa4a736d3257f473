"""Which kernel modules are there."""

from __future__ import annotations

import contextlib

from virtman.privileged import context
from virtman.privileged.command import run


@context.entrypoint
def load_modules(names: list[str]) -> list[str]:
    """Load modules and return the names of those that the kernel does not have."""
    missing: list[str] = []
    with contextlib.suppress(OSError):
        run("modprobe", "--all", *names)
        return missing
    for name in names:
        try:
            run("modprobe", name)
        except OSError:
            missing.append(name)
    return missing
