"""Which User Mode Linux nodes run: this machine's, or that of another release of Debian.

VIRTMAN_LAB_KERNEL=forky takes what that release has. It is fetched once, with its C library:

    mmdebstrap -> $VIRTMAN_CACHE/kernel-<release>/usr/bin/linux.uml
                                                  usr/lib/uml/modules/<version>
                                                  usr/lib/x86_64-linux-gnu
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.errors import BuildFailed
from lab.rootfs import building, cache_folder, run_step

VARIABLE = "VIRTMAN_LAB_KERNEL"
_PROGRAM = "linux.uml"
_MODULES = "usr/lib/uml/modules"
_LOADER = "/lib64/ld-linux-x86-64.so.2"
# The kernel starts itself again, by its own loader: so that is in the place of the machine's. With
# SECCOMP, which kernels from 6.16 on have, a system call takes half as long as with ptrace.
_START = f"""
mount --bind "$1/usr{_LOADER}" {_LOADER}
LD_LIBRARY_PATH=$1/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH
root=$1
shift
exec "$root/usr/bin/{_PROGRAM}" seccomp=auto "$@"
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel.

    :ivar command: what becomes it; its own arguments follow
    :ivar modules: folder of its modules, called as its version
    """

    command: tuple[str, ...]
    modules: Path


def chosen() -> Kernel:
    """Return the kernel that new beds have, fetched if it is not there yet."""
    release = os.environ.get(VARIABLE, "")
    if not release:
        return Kernel((_PROGRAM,), _modules(Path("/")))
    if not release.isalpha():
        raise BuildFailed(f"{VARIABLE}={release}: name a release of Debian, such as forky")
    root = cache_folder() / f"kernel-{release}"
    with building():
        if not root.exists():
            _fetch(release, root)
    script = ("sh", "-euc", _START, _PROGRAM, str(root))
    return Kernel(("unshare", "--mount", *script), _modules(root))


def _modules(root: Path) -> Path:
    found = sorted(folder for folder in (root / _MODULES).glob("*") if folder.is_dir())
    if not found:
        raise BuildFailed(f"{root / _MODULES} has no kernel modules: install user-mode-linux")
    return found[-1]


def _fetch(release: str, root: Path) -> None:
    part = Path(tempfile.mkdtemp(prefix="kernel-", dir=root.parent))
    try:
        run_step(
            *("mmdebstrap", "--mode=root", "--variant=extract", "--include=user-mode-linux,libc6"),
            # a mirror may be older than its releases' word
            '--aptopt=Acquire::Check-Valid-Until "false"',
            *(release, part, f"deb http://deb.debian.org/debian {release} main"),
        )
        part.rename(root)
    finally:
        shutil.rmtree(part, ignore_errors=True)
