"""The layers of a stack, one a file, and what those made of device mapper share."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from virtman import sysfs
from virtman.errors import DeviceBusy, DevicePending, KernelFailure
from virtman.model import naming, sizes
from virtman.privileged import block, dm, kernel, loop
from virtman.stack.layer import wait_until

LOG = logging.getLogger(__name__)

Table = list[tuple[int, int, str, str]]

PATIENCE: float = dm.PATIENCE
"""Seconds that I/O has to end for which whoever uses a device is held back."""

_NUMBER = re.compile(r"\b\d+:\d+\b")
# Path states in a multipath's status line: device, A(ctive) or F(ailed), failures.
_PATH = re.compile(r"(\d+:\d+) ([AF]) (\d+)")
# How roles begin of devices that this account may read, and see what their page caches hold: what
# children read, and bases, which may have the memory of VMs.
_READ = ("export", "base")
_REMOVE_DEADLINE = 5.0
_DETACH_DEADLINE = 10.0


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an error of a root verb into one that users can read."""
    try:
        yield
    except OSError as err:
        if err.errno == errno.EBUSY:
            raise DeviceBusy(f"{what}: still in use; stop what holds it and try again") from err
        if err.errno == errno.EINTR:
            raise DevicePending(
                f"{what}: what is being read or written does not end; reads wait for the image's "
                "parents while those do not answer ('virtman node check' tells): try again later"
            ) from err
        raise KernelFailure(f"{what}: {err.strerror or err}") from err


def detach_loop(path: str, offset: int = 0) -> None:
    """Detach the loop device that shows this file or device from a byte on; none is fine."""
    device = sysfs.loop_of(path, offset)
    if device is not None:
        with explained(f"detaching {device} from {path}"):
            loop.detach(device)
        wait_until(
            lambda: sysfs.loop_of(path, offset) is None, _DETACH_DEADLINE, f"detaching {device}"
        )


def names() -> list[str]:
    """Names of all device-mapper devices that the kernel has."""
    with explained("listing device-mapper devices"):
        return sorted(dm.names())


def mend_node(name: str) -> None:
    """Have a device's node as the kernel has the device; see ``dm.mend_node``."""
    with explained(f"device {name}"):
        dm.mend_node(name, _owner(name))


def wake(name: str) -> None:
    """Let a device go on that is held back, with the table that it has."""
    with explained(f"device {name}"), contextlib.suppress(FileNotFoundError):
        if sysfs.is_suspended(f"/dev/mapper/{name}"):
            LOG.warning("device %s was held back: it goes on", name)
            dm.revert(name)


def load_modules(names: Iterable[str]) -> list[str]:
    """Load kernel modules; return the names of those that the kernel does not have."""
    with explained("loading kernel modules"):
        return list(kernel.load_modules(list(names)))


def statuses(names: Iterable[str]) -> dict[str, Table]:
    """Return the status of device-mapper devices, by name.

    Those that are not there, or still have no table, are left out.
    """
    with explained("status of device-mapper devices"):
        found = dm.statuses(list(names))
    return {
        name: [(row[0], row[1], row[2], row[3]) for row in rows]
        for name, rows in found.items()
        if rows
    }


def failed_paths(status: Table) -> list[str]:
    """Return the numbers of the paths of a multipath that do not work."""
    return [number for number, state, _ in _paths(status) if state == "F"]


def path_failures(status: Table) -> int:
    """Return how often paths of a multipath have failed since its table was loaded."""
    return sum(failures for _, _, failures in _paths(status))


def failed(status: Table) -> bool:
    """Tell whether any path of a multipath does not work."""
    return bool(failed_paths(status))


def works(status: Table) -> bool:
    """Tell whether a path of a multipath works."""
    return any(state == "A" for _, state, _ in _paths(status))


def corrupt(names: Iterable[str]) -> set[str]:
    """Return which of these devices have met wrong bytes; only verity devices can."""
    found = {name: rows[0] for name, rows in statuses(names).items()}
    # newer kernels say more behind the letter
    return {name for name, row in found.items() if row[2] == "verity" and row[3].startswith("C")}


def one_stripe(below: Sequence[str], end: int) -> Table:
    """Return the table of one stripe: zeros, then region r on device r mod n, where it is there.

    :param below: one device a stripe, of which one has the stripe's regions
    :param end: sector at which the regions end
    """
    header = sizes.HEADER // sizes.SECTOR
    devices = "".join(f" {sysfs.number(device)} 0" for device in below)
    words = f"{len(below)} {sizes.REGION // sizes.SECTOR} 0{devices}"
    return [(0, header, "zero", ""), (header, end - header, "switch", words)]


@runtime_checkable
class Seen(Protocol):
    """A layer whose device is looked at together with many others."""

    def is_seen(self, status: Table) -> bool:
        """Tell the same as ``is_up`` by the device's status, which is empty if it is not there."""


class Mapped:
    """A device-mapper device whose table follows from what lies below it.

    :ivar read_ahead: bytes that its page cache reads ahead; None if nobody reads it so
    """

    flush = True
    freeze = False
    read_only = True
    read_ahead: int | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.node = f"/dev/mapper/{name}"

    def set_up(self, table: Table) -> None:
        """Make the device, or swap its table if it lies on other devices."""
        with explained(f"device {self.name}"):
            present = self.table()
            if not present:
                self._create(table)
            elif _shape(present) != _shape(table):
                self._swap(table, self.to_settle(present, table))
            if self.read_ahead is not None:
                block.read_ahead(sysfs.kernel_name(self.node), self.read_ahead)

    def to_settle(self, present: Table, table: Table) -> str:
        """Return the path of a device whose data must be on the disk before a swap; or nothing."""
        return ""

    def _swap(self, table: Table, below: str) -> None:
        try:
            dm.reload(self.name, table, self.read_only, self.flush, self.freeze, below)
        except OSError as err:
            if below and err.errno == errno.ETIMEDOUT:
                raise DevicePending(
                    f"device {self.name}: what was written does not get from {below} to the disk "
                    "of the exception stores, which does not answer (the kernel's log tells more): "
                    "try again once it does"
                ) from err
            raise

    def _create(self, table: Table) -> None:
        try:
            dm.create(self.name, table, self.read_only, _owner(self.name))
        except OSError as err:
            if err.errno != errno.EBUSY or self.table():
                raise
            # an agent that died in the middle of this left a device without a table; if there is
            # none, what is below is in use
            with contextlib.suppress(OSError):
                dm.remove(self.name)
            dm.create(self.name, table, self.read_only, _owner(self.name))

    def down(self) -> None:
        """Remove the device.

        A prober such as udev may hold any device for a moment, so a busy one is tried
        again for a short while.

        :raises DeviceBusy: if somebody still holds it after that
        """
        with contextlib.suppress(KernelFailure):
            wait_until(self._removed, _REMOVE_DEADLINE, f"removing {self.name}")
            return
        with explained(f"device {self.name}"):
            dm.remove(self.name)

    def _removed(self) -> bool:
        try:
            dm.remove(self.name)
        except OSError as err:
            if err.errno != errno.ENXIO:
                return False
        return True

    def suspend(self, patience: float = PATIENCE) -> None:
        """Hold back I/O until ``resume``, or until the table is swapped.

        :param patience: seconds
        :raises DevicePending: if I/O that is on its way does not end within them
        """
        with explained(f"device {self.name}"):
            dm.suspend(self.name, self.flush, self.freeze, patience)

    def resume(self) -> None:
        """Let I/O go on."""
        with explained(f"device {self.name}"):
            dm.resume(self.name)

    def release(self) -> None:
        """Fail I/O that waits here: by itself, a device holds none."""

    def is_up(self) -> bool:
        """Tell whether the device is there and complete."""
        return self.exists()

    def is_seen(self, status: Table) -> bool:
        """Tell the same by the device's status."""
        return bool(status)

    def table(self) -> Table:
        """Return the live table; empty if there is no such device."""
        with explained(f"device {self.name}"):
            return [(row[0], row[1], row[2], row[3]) for row in dm.table(self.name)]

    def exists(self) -> bool:
        """Tell whether the kernel has the device."""
        return bool(self.table())

    def status(self) -> Table:
        """Return the live status; empty if there is no such device."""
        return statuses([self.name]).get(self.name, [])

    def lies_on(self, device: str) -> bool:
        """Tell whether the device lies on the device of this path."""
        try:
            number = sysfs.number(device)
        except FileNotFoundError:
            return False
        return any(number in row[3].split() for row in self.table())

    def is_well(self, status: Table) -> bool:
        """Tell by its status whether the device is there, and all paths that it has work."""
        return bool(status) and all(row[2] != "error" for row in status) and not failed(status)

    def path_states(self) -> list[tuple[str, str]]:
        """Return number and state of a multipath's paths: A(ctive) or F(ailed), in order."""
        return [(number, state) for number, state, _ in _paths(self.status())]

    def has_failed(self) -> bool:
        """Tell whether any path of a multipath does not work."""
        return failed(self.status())

    def reinstate(self, devices: Collection[str], *, shared: bool = False) -> None:
        """Use failed paths again, the best path that works first.

        :param shared: whether all paths are one group
        """
        paths = self.path_states()
        for device in devices:
            with contextlib.suppress(OSError):
                dm.message(self.name, f"reinstate_path {device}")
        works = [state == "A" or device in devices for device, state in paths]
        if devices and any(works) and not shared:
            with contextlib.suppress(OSError):
                dm.message(self.name, f"switch_group {works.index(True) + 1}")


def _owner(name: str) -> int:
    """Return the number of the account that a device's node belongs to."""
    device = naming.parse(name)
    is_read = device is not None and device.role.startswith(_READ)
    return os.getuid() if is_read else 0


def _paths(status: Table) -> list[tuple[str, str, int]]:
    rows = (words for _, _, target, words in status if target == "multipath")
    return [
        (match[1], match[2], int(match[3])) for words in rows for match in _PATH.finditer(words)
    ]


def _shape(
    table: Sequence[tuple[int, int, str, str]],
) -> list[tuple[int, int, str, bool, list[str]]]:
    """Return what makes two tables the same: the devices, under which targets, and where.

    The kernel prints a table's other words in its own way, so they are not compared, but
    for the one that ``fail_if_no_path`` takes away.
    """
    return [
        (row[0], row[1], row[2], "queue_if_no_path" in row[3], _NUMBER.findall(row[3]))
        for row in table
    ]
