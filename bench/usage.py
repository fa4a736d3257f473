"""What processes take of this machine."""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


class Cores:
    """Processor seconds a second, from when it was made."""

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        """Ask ``processes`` for those that are there, now and in the end."""
        self._processes = processes
        self._began = time.monotonic()
        self._seconds = {pid: seconds(pid) for pid in processes()}

    def used(self) -> float:
        """Return how many processors these processes kept busy on average.

        What one that ended meanwhile took is not known.
        """
        took = sum(
            max(0.0, seconds(pid) - self._seconds.get(pid, 0.0)) for pid in self._processes()
        )
        return took / (time.monotonic() - self._began)


def peak_memory(pid: int) -> int:
    """Return the most bytes that were resident, shared ones with them."""
    return _status(pid, "VmHWM")


def memory(pid: int) -> int:
    """Return the bytes that are resident, shared ones with them."""
    return _status(pid, "VmRSS")


def _status(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("every process with memory has this line")


def seconds(pid: int) -> float:
    """Return the processor seconds that a process has had; 0 if it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK
    return 0.0


class Machine:
    """Processor seconds a second of the whole machine, from when it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seconds = _busy_seconds()

    def used(self) -> float:
        """Return how many processors were busy on average."""
        return (_busy_seconds() - self._seconds) / (time.monotonic() - self._began)


def _busy_seconds() -> float:
    """Return for how many seconds processors were neither idle nor waiting for a disk."""
    user, nice, system, _, _, *interrupts = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
    )
    return (user + nice + system + sum(interrupts)) / _TICK
