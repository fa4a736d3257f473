"""Who may log in to what this node serves of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from virtman.model import plan
from virtman.model.address import Proof


class Target(Protocol):
    """What children log in to."""

    def require(self, proof: Proof) -> None:
        """Let those children log in who know this."""


class AdmissionLayer:
    """What a target asks of children. It is no device, and goes with the target."""

    def __init__(self, step: plan.Admission, target: Target) -> None:
        self.step = step
        self.target = target

    def up(self, below: Sequence[str]) -> str:
        """Let those children log in who know the secret; return what they log in to."""
        self.target.require(self.step.proof)
        return below[0]

    def release(self) -> None:
        """Nothing waits here."""

    def down(self) -> None:
        """It goes with the target."""

    def is_up(self) -> bool:
        """Tell that nothing is missing: the kernel keeps a secret as long as its target."""
        return True
