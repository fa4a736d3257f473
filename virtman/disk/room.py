"""How full the stores of VMs are, and in which state that has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from virtman.disk.capacity import Space, volume
from virtman.disk.suspension import Suspension
from virtman.model import planner
from virtman.model.chain import Instance, Store
from virtman.stack.layers.store import Usage, usages


@dataclass(frozen=True)
class Room:
    """Bytes that the stores of a VM's chain take, each, the one on the image first.

    :ivar ahead: disk space that is there for what the VM will write; infinite if it is enough
        for all of it
    """

    each: tuple[int, ...]
    ahead: float

    @property
    def taken(self) -> int:
        """What they take in all."""
        return sum(self.each)


class Rooms:
    """How much room the VMs of this node have."""

    def __init__(self, suspension: Suspension, space: Space) -> None:
        self.suspension = suspension
        self.devices = suspension.devices
        self.space = space

    def room(self, chain: tuple[Store, ...]) -> Room:
        """Return how full the stores of a VM are."""
        each = tuple(self.devices.store(one).usage().taken for one in chain)
        return Room(each, _ahead(chain, each))

    def reserve(self, chain: tuple[Store, ...], room: Room, ahead: int) -> Room:
        """Have disk space for what a VM will write; return how much there is then.

        :raises NoSpace: if there is too little
        """
        for store, taken in zip(chain, room.each, strict=True):
            if store in written(chain):
                self.space.afford(0)
                volume(store).reserve(taken + ahead)
        return Room(room.each, _ahead(chain, room.each))

    def states(
        self, chains: Mapping[Instance, tuple[Store, ...]]
    ) -> dict[Instance, tuple[str, int | None]]:
        """Return how VMs' devices are, each in a word, and the bytes that their stores take.

        The kernel is asked once for all. A store that went meanwhile takes nothing.
        """
        found = usages(planner.store(store) for chain in chains.values() for store in chain)
        beginning = self.suspension.beginning(chains)
        there = {device.argument: usage for device, usage in found.items()}
        return {
            instance: self._state(
                instance,
                [there[store.name] for store in chain if store.name in there],
                begins=instance.vm in beginning,
            )
            for instance, chain in chains.items()
        }

    def _state(
        self, instance: Instance, stores: Sequence[Usage | None], *, begins: bool
    ) -> tuple[str, int | None]:
        waits = self.suspension.is_suspended(instance)
        if waits is None:
            return "absent", None
        if None in stores:
            return "lost", None
        taken = sum(store.taken for store in stores if store)
        if waits or begins:
            return "waits", taken
        low = 0 < instance.quota * self.space.limits.warning <= taken
        return ("low" if low else "ready"), taken


def written(chain: tuple[Store, ...]) -> tuple[Store, ...]:
    """Return the stores that take what a VM writes: one that is being merged passes some down."""
    *_, top = chain
    return chain[-2:] if top.merging else chain[-1:]


def _ahead(chain: tuple[Store, ...], each: tuple[int, ...]) -> float:
    """Return the disk space that is there for what a VM will write."""
    mine = written(chain)
    return min(
        volume(one).ahead(taken) for one, taken in zip(chain, each, strict=True) if one in mine
    )
