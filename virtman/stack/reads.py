"""How much VMs read of an image, and where: counted by the kernel, not by us.

One look at 4096 areas is cheap however large the image is, and takes less than a MiB of kernel
memory a processor. So an area of a large image has more than one piece: which of these were read,
the page cache tells.
"""

from __future__ import annotations

from virtman import sysfs
from virtman.model.naming import Device
from virtman.model.read_counts import BOUNDS, Count
from virtman.privileged import dmstats
from virtman.stack.mapped import explained

AREAS = 4096
"""How many areas an image has at most."""

_SMALLEST = 64 * 1024
"""Bytes of an area: dm-snapshot cuts what VMs read into no more."""


class Reads:
    """Counts the reads of all VMs from one image on this node.

    :ivar area: bytes of an area: a power of two
    :ivar seen: what the last look returned
    """

    def __init__(self, image: str, size: int) -> None:
        self.device = Device(image, "origin")
        self.seen: dict[int, Count] = {}
        self._sectors = -1  # read of the device, as of what was seen
        self.area = _SMALLEST
        while self.area * AREAS < size:
            self.area *= 2

    def begin(self) -> None:
        """Count from nothing."""
        with explained(f"counting reads of {self.device}"):
            bounds = [round(seconds * 1e9) for seconds in BOUNDS]
            dmstats.count_reads(str(self.device), self.area, bounds)

    def look(self) -> dict[int, Count]:
        """Return what was read so far, by the number of the area; without those of no reads."""
        with explained(f"reads of {self.device}"):
            read = sysfs.sectors_read(self.device.node)
            if read == self._sectors:  # to count them by areas costs more
                return self.seen
            found = dmstats.counted(str(self.device))
        self._sectors = read
        self.seen = {
            number: Count(sectors, nanoseconds / 1e9, tuple(classes))
            for number, sectors, nanoseconds, classes in found
        }
        return self.seen

    def end(self) -> None:
        """Count no longer; may be called at any time."""
        with explained(f"counting reads of {self.device}"):
            dmstats.count_no_more(str(self.device))
