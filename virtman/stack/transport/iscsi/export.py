"""What the children of this node read of one stripe, behind a header of zeros, by LIO."""

from __future__ import annotations

from collections.abc import Sequence

from virtman import sysfs
from virtman.model import plan
from virtman.model.address import Proof
from virtman.model.sizes import SECTOR
from virtman.privileged import lio
from virtman.stack.mapped import Mapped, Table, explained, one_stripe


class ExportLayer(Mapped):
    """One stripe's regions of the image, served write-protected as one LUN.

    See ``virtman.model.planner`` for why each stripe is served, and cached in memory, apart.
    """

    flush = False

    def __init__(self, step: plan.Export) -> None:
        super().__init__(str(step.device))
        self.step = step
        self.read_ahead = step.read_ahead
        # Begins the disk's model name at the child, by which udev rules know our disks.
        self.storage = f"virtman_{step.device.image}_{step.portal.lun}"

    def up(self, below: Sequence[str]) -> str:
        """Serve the regions below, one device a stripe of which one is the image; then leaves."""
        leaves = self.step.leaves
        end = self.step.sectors - leaves
        *image, last = below if leaves else (*below, "")
        behind = [(end, leaves, "linear", f"{sysfs.number(last)} 0")] if leaves else []
        self.set_up([*one_stripe(image, end), *behind])
        portal = self.step.portal
        with explained(f"serving {portal.iqn} on {portal.ip}"):
            if not self._served():
                lio.withdraw(self.storage, portal.iqn, portal.lun)
                size = self.step.sectors * SECTOR
                lio.serve(
                    self.storage, self.node, size, portal.iqn, portal.lun, portal.ip, portal.port
                )
        return self.node

    def require(self, proof: Proof) -> None:
        """Let those children log in who know this; until it is called first, none can."""
        with explained(f"what {self.step.portal.iqn} asks for"):
            lio.require(self.step.portal.iqn, proof.user, proof.secret)

    def down(self) -> None:
        """Stop serving, then remove the device."""
        portal = self.step.portal
        with explained(f"withdrawing {portal.iqn}"):
            lio.withdraw(self.storage, portal.iqn, portal.lun)
        super().down()

    def is_up(self) -> bool:
        """Tell whether children can read the stripe."""
        return self.exists() and self._served()

    def is_seen(self, status: Table) -> bool:
        """Tell the same by the device's status."""
        return bool(status) and self._served()

    def children(self) -> list[str]:
        """Initiator names of those who are logged in to the target, for any stripe."""
        with explained(f"sessions of {self.step.portal.iqn}"):
            return list(lio.sessions(self.step.portal.iqn))

    def _served(self) -> bool:
        return bool(lio.serves(self.storage, self.step.portal.iqn, self.step.portal.lun))
