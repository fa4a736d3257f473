"""What the kernel shows without root of what this node serves."""

from __future__ import annotations

import contextlib
from pathlib import Path

_TARGETS = Path("/sys/kernel/config/target/iscsi")
_CORE = Path("/sys/kernel/config/target/core")
_MIB = 1024 * 1024


def storages() -> dict[str, str]:
    """Return what LIO could serve of files and devices: the path of each, by its name."""
    found = {}
    for path in _CORE.glob("fileio_*/*/udev_path"):
        with contextlib.suppress(OSError):  # gone meanwhile
            found[path.parent.name] = path.read_text().strip()
    return found


def sent(iqn: str) -> int:
    """Return how many bytes a target of this node has sent, each LUN to the MiB below."""
    counters = (_TARGETS / iqn).glob("tpgt_1/lun/lun_*/statistics/scsi_tgt_port/read_mbytes")
    total = 0
    for counter in counters:
        with contextlib.suppress(OSError):  # gone meanwhile
            total += int(counter.read_text()) * _MIB
    return total
