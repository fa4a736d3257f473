"""The root of an image's trees: a raw file or block device, and its hashes, as they are."""

from __future__ import annotations

from collections.abc import Sequence

from virtman.model import plan
from virtman.model.address import Proof
from virtman.model.sizes import SECTOR
from virtman.privileged import lio
from virtman.stack.mapped import explained


class SourceLayer:
    """A write-protected LUN over a file or block device."""

    def __init__(self, step: plan.Source) -> None:
        self.step = step
        self.storage = str(step.device)

    def up(self, below: Sequence[str]) -> str:
        """Serve it."""
        portal, path = self.step.portal, self.step.path
        with explained(f"serving {path} on {portal.ip}:{portal.port}"):
            if not lio.serves(self.storage, portal.iqn, portal.lun):
                lio.withdraw(self.storage, portal.iqn, portal.lun)
                size = self.step.sectors * SECTOR
                lio.serve(self.storage, path, size, portal.iqn, portal.lun, portal.ip, portal.port)
        return path

    def require(self, proof: Proof) -> None:
        """Let those hosts log in who know this; until it is called first, none can."""
        with explained(f"what {self.step.portal.iqn} asks for"):
            lio.require(self.step.portal.iqn, proof.user, proof.secret)

    def release(self) -> None:
        """Nothing waits here."""

    def down(self) -> None:
        """Stop serving it."""
        with explained(f"withdrawing {self.step.portal.iqn}"):
            lio.withdraw(self.storage, self.step.portal.iqn, self.step.portal.lun)

    def is_up(self) -> bool:
        """Tell whether hosts can log in."""
        return bool(lio.serves(self.storage, self.step.portal.iqn, self.step.portal.lun))
