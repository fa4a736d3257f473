"""Small local files as block devices: what a cache driver must keep off the image."""

from __future__ import annotations

import os
from pathlib import Path

from virtman import sysfs
from virtman.model import plan, sizes
from virtman.model.naming import Device
from virtman.privileged import loop
from virtman.stack.mapped import Mapped, detach_loop, explained

_MIB = 1024 * 1024


class LocalFile:
    """A sparse file of a fixed size, shown by a loop device.

    :param durable: whether each write is on the disk when it ends
    """

    def __init__(self, path: Path, size: int, *, durable: bool = False) -> None:
        self.path = path
        self.durable = durable
        self.size = size

    def up(self) -> str:
        """Attach the loop device, over what the file holds already."""
        found = sysfs.loop_of(str(self.path))
        if found is not None:
            return found
        with explained(f"file {self.path}"):
            with open(self.path, "ab") as file:
                file.truncate(self.size)
            device: str = loop.attach(str(self.path), 0, False, self.durable)
        return device

    def down(self) -> None:
        """Detach the loop device and remove the file."""
        detach_loop(str(self.path))
        self.path.unlink(missing_ok=True)

    def sync(self) -> None:
        """Let what was written to the loop device survive a power cut."""
        for path in (self.path, self.path.parent):
            opened = os.open(path, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)


class Shim(Mapped):
    """A writable device over a read-only one, for drivers that ask for one.

    A dm-snapshot with a throw-away store: passes reads through, keeps writes off the image.

    :param chunk: bytes that the store keeps at a time
    :param store: bytes that it keeps at most; with more it is lost, and the image with it
    """

    read_only = False

    def __init__(
        self, step: plan.Cache, folder: Path, chunk: int = _MIB, store: int = 4 * _MIB
    ) -> None:
        super().__init__(str(Device(step.device.image, "shim")))
        self.sectors = step.sectors
        self.chunk = chunk
        self.store = LocalFile(folder / f"{step.device.image}.shim", store)

    def up(self, below: str) -> str:
        """Lie on the device below."""
        store = sysfs.number(self.store.up())
        parameters = f"{sysfs.number(below)} {store} N {self.chunk // sizes.SECTOR}"
        self.set_up([(0, self.sectors, "snapshot", parameters)])
        return self.node

    def below(self) -> str:
        """Return the path of the mapped device that it lies on."""
        ((_, _, _, words),) = self.table()
        return f"/dev/mapper/{sysfs.mapped_name(words.split()[0])}"

    def down(self) -> None:
        """Remove the device and its store."""
        super().down()
        self.store.down()
