"""What a bed left on this machine after it went down."""

import os
from contextlib import suppress
from pathlib import Path

from lab.errors import NoSuchBed
from lab.network import Network
from lab.processes import Process, all_stats, network_namespace
from lab.state import State


class Traces:
    """By what a bed's remains are recognised; taken before it goes down."""

    def __init__(self, network: Network, state: State):
        self._network = network
        self._folders = (state.folder, state.disks)
        self._inode = network.inode()
        self._processes: list[Process] = []
        with suppress(NoSuchBed):
            self._processes = state.read().everything()

    def left(self) -> list[str]:
        """Return a line for everything that is still there."""
        paths = [*self._folders, self._network.path]
        return [
            *(f"path {path}" for path in paths if os.path.lexists(path)),
            *self._running(),
            *(f"mount {point}" for point in _mounts() if self._ours(point)),
            *(f"loop device {name}" for name, file in _loop_devices() if self._ours(file)),
        ]

    def _running(self) -> list[str]:
        recorded = [f"process {p.pid} ({p.what})" for p in self._processes if p.alive()]
        if self._inode is None:
            return recorded
        inside = [stat.pid for stat in all_stats() if network_namespace(stat.pid) == self._inode]
        return recorded + [f"process {pid} in the bed's network" for pid in inside]

    def _ours(self, path: str) -> bool:
        ours = [str(folder) for folder in (*self._folders, self._network.path)]
        return any(path == own or path.startswith(own + "/") for own in ours)


def _mounts() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4] for line in lines]


def _loop_devices() -> list[tuple[str, str]]:
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return [(file.parent.parent.name, file.read_text().strip()) for file in files]
