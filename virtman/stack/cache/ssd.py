"""The SSD group: the node's local cache devices, put end to end.

What each device begins with is left out, and says that the device is ours. So nobody else
finds a cache there: udev's rules for bcache would take the device before we do.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from virtman import sysfs
from virtman.errors import KernelFailure, VirtmanError
from virtman.model.naming import CACHE_GROUP
from virtman.model.sizes import SECTOR
from virtman.privileged import ssd
from virtman.stack.mapped import Mapped, Table

LOG = logging.getLogger(__name__)

UNIT = 1024 * 1024 // SECTOR
"""Sectors that are left out."""


class Full(KernelFailure):
    """The SSD group has no space for another image."""


class Ssd(Mapped):
    """A dm-linear over ``[cache] devices``, in their order."""

    read_only = False
    flush = False  # I/O to a device that died only ends once it fails

    def __init__(self, devices: Sequence[str]) -> None:
        super().__init__(CACHE_GROUP)
        self.devices = tuple(devices)
        self._lacking: dict[str, str] = {}

    def __str__(self) -> str:
        """Return the devices' names, for messages."""
        return ", ".join(self.devices)

    def up(self) -> None:
        """Make the device; one that lies on other devices than these is moved to them.

        :raises KernelFailure: if there are no devices, or one is not there or holds
            something else
        """
        if not self.devices:
            raise KernelFailure("no cache device: set [cache] devices, or [cache] driver = none")
        table: Table = []
        start = 0
        for device in self.devices:
            try:
                number, length = sysfs.number(device), sysfs.sectors(sysfs.kernel_name(device))
                ssd.claim(device)
            except OSError as err:
                raise KernelFailure(
                    f"cache device {device}: {err.strerror}; check [cache] devices"
                ) from err
            table.append((start, length - UNIT, "linear", f"{number} {UNIT}"))
            start += length - UNIT
        self.set_up(table)

    def note(self, image: str, lack: VirtmanError | None) -> None:
        """Log why an image has no cache here, once: each heartbeat tries to give it one.

        :param lack: None once it has one, or is left
        """
        reason = "" if lack is None else str(lack)
        if reason and self._lacking.get(image) != reason:
            LOG.warning("image %s goes on without a cache: %s", image, reason)
        self._lacking[image] = reason

    def block_size(self) -> int:
        """Return the bytes of its blocks."""
        return sysfs.block_size(self.node)

    def sectors(self) -> int:
        """Return its length."""
        return sum(row[1] for row in self.table())
