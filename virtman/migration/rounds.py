"""What belongs to a round: the snapshots at its ends, and the chunks written in between."""

from __future__ import annotations

from virtman.disk.disks import Stores
from virtman.model import dirty
from virtman.model.chain import Instance, Snapshot, Store
from virtman.model.handover import Move

End = Snapshot | Instance
"""What consists of the stores up to one of them."""

Runs = tuple[tuple[int, int], ...]


class Rounds:
    """The rounds of a VM's moves; the merger may lead their ends to other stores meanwhile."""

    def __init__(self, stores: Stores, vm: str) -> None:
        self.stores = stores
        self.records = stores.records
        self.vm = vm

    def held(self, move: Move) -> dict[int, Snapshot]:
        """Return the snapshots at the ends of a move's rounds, in order."""
        held = {
            int(one.name.removeprefix(move.prefix)): one
            for one in self.records.inventory().snapshots.values()
            if one.name.startswith(move.prefix)
        }
        return dict(sorted(held.items()))

    def changed(self, end: End, base: Snapshot | None) -> bytes:
        """Return what the stores hold that belong to one of two ends only.

        That is all in which they differ, also if a VM was rolled back in between. A store that is
        being merged hands its chunks down: so upper ones are looked at first.
        """
        with self.stores.suspension.locked(self.vm):
            stores = [*reversed(self._newer(end, base))]
            if base is not None:
                stores += reversed(self._newer(base, end))
            return dirty.union(self.stores.layer(one).written() for one in stores)

    def rest(self, kept: Snapshot) -> int:
        """Return the bytes that stores took for what was written since a snapshot."""
        with self.stores.suspension.locked(self.vm) as instance:
            newer = self._newer(instance, kept)
            return sum(self.stores.layer(one).usage().taken for one in newer)

    def read(self, end: End, runs: Runs) -> bytes:
        """Return parts of what the VM's disk held, or holds, at one end."""
        with self.stores.suspension.locked(self.vm):
            return self.stores.layer(self._chain(end)[-1]).read(runs)

    def _newer(self, end: End, base: End | None) -> list[Store]:
        """Return the stores of one end but for those of another, lower ones first."""
        below = self._chain(base) if base is not None else ()
        return [one for one in self._chain(end) if one not in below]

    def _chain(self, end: End) -> tuple[Store, ...]:
        """Return the stores of an end as they are now."""
        inventory = self.records.inventory()
        if isinstance(end, Snapshot):
            return inventory.chain(inventory.snapshots[end.name].store)
        return inventory.chain(inventory.instances[end.vm].store)
