"""What the children of this node read: the image behind a header of zeros, served by LIO."""

from __future__ import annotations

from collections.abc import Sequence

from virtman import plan, sysfs
from virtman.layers import Mapped, explained
from virtman.plan import HEADER, SECTOR
from virtman.privileged import lio


class Export(Mapped):
    """A linear device that LIO serves write-protected."""

    flush = False

    def __init__(self, step: plan.Export) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Serve the device below."""
        (image,) = below
        header = HEADER // SECTOR
        self.set_up(
            [
                (0, header, "zero", ""),
                (header, self.step.sectors - header, "linear", f"{sysfs.number(image)} 0"),
            ]
        )
        portal = self.step.portal
        with explained(f"serving {portal.iqn} on {portal.ip}"):
            if not lio.serves(self.storage, portal.iqn):
                lio.withdraw(self.storage, portal.iqn)
                size = self.step.sectors * SECTOR
                lio.serve(self.storage, self.node, size, portal.iqn, portal.ip, portal.port)
        return self.node

    def release(self) -> None:
        """Nothing waits here."""

    def down(self) -> None:
        """Stop serving, then remove the device."""
        with explained(f"withdrawing {self.step.portal.iqn}"):
            lio.withdraw(self.storage, self.step.portal.iqn)
        self.take_down()

    def is_up(self) -> bool:
        """Tell whether children can log in."""
        return self.exists() and bool(lio.serves(self.storage, self.step.portal.iqn))

    def children(self) -> list[str]:
        """Initiator names of those who are logged in."""
        with explained(f"sessions of {self.step.portal.iqn}"):
            return list(lio.sessions(self.step.portal.iqn))

    @property
    def storage(self) -> str:
        """Name of LIO's storage object; udev knows our disks by how it begins."""
        return f"virtman_{self.step.device.image}"
