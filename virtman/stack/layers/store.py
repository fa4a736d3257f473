"""A store: what was written over what lies below, up to some moment or still."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtman import sysfs
from virtman.errors import StoreInvalid
from virtman.model import plan
from virtman.model.dirty import CHUNK, chunks
from virtman.model.naming import Device
from virtman.model.sizes import SECTOR
from virtman.privileged import chunks as data
from virtman.privileged import dm, loop
from virtman.stack.mapped import Mapped, detach_loop, explained, statuses

Runs = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Usage:
    """Bytes of a store that are taken, in all and by what it knows of itself."""

    taken: int
    metadata: int

    @property
    def is_empty(self) -> bool:
        """Tell whether it holds no data."""
        return self.taken <= self.metadata


class StoreLayer(Mapped):
    """dm-snapshot with a persistent exception store, or snapshot-merge, which empties it.

    Both show the same data at any moment. A store goes from one to the other by a new table: the
    kernel hands the exceptions over in memory. It goes from one store below to another so too, but
    then the kernel reads its exceptions as the table is loaded, so it is held back before that.
    """

    read_only = False

    def __init__(self, step: plan.Store) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Put the store on what lies below."""
        (lower,) = below
        with explained(f"exception store {self.step.path}"):
            device = self._attach()
        target = "snapshot-merge" if self.step.merging else "snapshot"
        parameters = f"{sysfs.number(lower)} {sysfs.number(device)} P {CHUNK // SECTOR}"
        self.set_up([(0, self.step.sectors, target, parameters)])
        return self.node

    def down(self) -> None:
        """Remove the device and let go of the file."""
        super().down()
        detach_loop(self.step.path)

    def _attach(self) -> str:
        """Return the store's block device, which a file becomes by a loop device."""
        path = self.step.path
        if path.startswith("/dev/"):
            return path
        device = sysfs.loop_of(path)
        if device is None:
            return str(loop.attach(path, 0, False))
        if sysfs.sectors(sysfs.kernel_name(device)) < Path(path).stat().st_size // SECTOR:
            loop.lengthen(device)
        return device

    def usage(self) -> Usage:
        """Return how full the store is.

        :raises StoreInvalid: if it is lost
        """
        with explained(f"device {self.name}"):
            ((_, _, _, status),) = dm.status(self.name)
        found = _usage(status)
        if found is None:
            raise StoreInvalid(
                f"the exception store {self.step.path} is lost; the kernel says {status!r}: "
                "roll back to a snapshot, or destroy the VM and create it again"
            )
        return found

    # What is read here is of the whole device, the store and all below it; what is written goes
    # into the store.

    def written(self) -> bytes:
        """Return a map of the chunks in the store itself; nobody may write to it meanwhile."""
        with explained(f"exception store {self.step.path}"):
            count = chunks(self.step.size)
            found: bytes = data.written(self._attach(), CHUNK, count)
        return found

    def read(self, runs: Runs) -> bytes:
        """Return parts of the device, one after the other."""
        with explained(f"device {self.name}"):
            return data.read(self.node, runs)

    def write(self, runs: Runs, content: bytes) -> None:
        """Write over parts of the device."""
        with explained(f"device {self.name}"):
            data.write(self.node, runs, content)

    def settle(self) -> None:
        """Have on the disk what was written."""
        with explained(f"device {self.name}"):
            data.flush(self.node)

    def sync(self) -> None:
        """Have on the disk what the kernel wrote to the store, even while it is swapped or goes."""
        with (
            explained(f"exception store {self.step.path}"),
            contextlib.suppress(FileNotFoundError),
        ):
            data.flush(self.step.path)


def usages(steps: Iterable[plan.Store]) -> dict[Device, Usage | None]:
    """Return how full many stores are, None for one that is lost; absent ones are left out."""
    devices = {str(step.device): step.device for step in steps}
    return {devices[name]: _usage(rows[0][3]) for name, rows in statuses(devices).items()}


def _usage(status: str) -> Usage | None:
    """Understand a status, which is "taken/size metadata" in sectors, or a word for the end."""
    taken, _, rest = status.partition("/")
    return Usage(int(taken) * SECTOR, int(rest.split()[1]) * SECTOR) if rest else None
