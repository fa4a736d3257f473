"""What a parent sends, held against the image's hash tree: wrong bytes are errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from virtman import sysfs
from virtman.model import plan
from virtman.model.naming import Device
from virtman.model.sizes import BLOCK, SECTOR
from virtman.privileged import kernel
from virtman.stack import mapped
from virtman.stack.mapped import Mapped, explained


class VerityLayer(Mapped):
    """dm-verity. An error is not remembered: what is read again is verified again."""

    def __init__(self, step: plan.Verity) -> None:
        super().__init__(str(step.device))
        self.step = step

    def up(self, below: Sequence[str]) -> str:
        """Verify the first device below by the hashes on the second."""
        tree = self.step.tree
        assert tree is not None
        data, hashes = map(sysfs.number, below)
        blocks = self.step.sectors * SECTOR // BLOCK
        parameters = f"1 {data} {hashes} {BLOCK} {BLOCK} {blocks} 0 sha256 {tree.root} {tree.salt}"
        _fetch_few_hashes()
        self.set_up([(0, self.step.sectors, "verity", parameters)])
        return self.node


def _fetch_few_hashes() -> None:
    """Have a read fetch the hash block that it needs, and no more.

    By itself Linux fetches 256 KiB of hashes around it, which are those of 32 MiB: a boot reads a
    little everywhere, and of a large image it would fetch more hashes than data. The kernel has
    one such setting, for all devices of a host.
    """
    if sysfs.hashes_fetched() != BLOCK:
        with explained("how many hashes dm-verity fetches"):
            kernel.fetch_hashes(BLOCK)


def corrupt(steps: Iterable[plan.Verity]) -> set[Device]:
    """Return those through which wrong bytes came; each is named after the host they are from."""
    devices = {str(step.device): step.device for step in steps}
    return {devices[name] for name in mapped.corrupt(devices)}
