"""Which exception stores a VM or a snapshot consists of; which can be merged, which can go.

Pure. The stores of an image form trees over it. A VM and a snapshot each end at one store
and consist of that one and all below it, the chain::

    image ── s1 ── s2 ── s4      vm1 = s1 s2 s4     snapshot "monday" = s1
                    └─── s3      vm2 = s1 s2 s3     snapshot "tuesday" = s1 s2

What a VM writes goes to the store that it ends at, which is its own. All others are frozen:
something else lies on them, or a snapshot ends there.

A chain is kept short, as ACStor does (section 3.4.3): when it has more than three stores, the
one on the image and the one on that become one. A store is emptied into the one below, by the
kernel and under load. Where somebody needs the one below as it is, a copy of it takes the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from virtman.errors import InstanceUnknown

LONGEST = 3
"""Stores of a chain. More cost each read another look-up, and nobody any data."""


@dataclass(frozen=True)
class Store:
    """An exception store.

    :ivar size: bytes of the disk of which it may hold something
    :ivar path: file or block device that holds it
    :ivar lower: name of the store below; empty if it lies on the image
    :ivar merging: it is being emptied into the one below
    :ivar identity: tells a device that somebody else connects from others that may have its path;
        perhaps nothing
    :ivar length: bytes of that device; 0 if that was not known, and for all other stores
    """

    name: str
    image: str
    size: int
    path: str
    lower: str = ""
    merging: bool = False
    identity: str = ""
    length: int = 0


@dataclass(frozen=True)
class Instance:
    """A VM's device.

    :ivar size: of its disk, in bytes: that of its image, or more
    :ivar store: name of the one that takes what the VM writes
    :ivar quota: bytes that its chain may take; 0 for all that it can need
    :ivar move: id of the move that brought it here; empty if it was created here
    :ivar origin: tells the image from others that have its name; empty if that was not known
    :ivar temporary: it goes by itself once nobody has its device open
    """

    vm: str
    image: str
    size: int
    store: str
    quota: int = 0
    move: str = ""
    origin: str = ""
    temporary: bool = False


@dataclass(frozen=True)
class Snapshot:
    """A VM's data as of a moment.

    :ivar vm: whose it was
    :ivar store: name of the last one of its chain
    :ivar created_at: seconds since 1970
    :ivar origin: as that of a VM
    """

    name: str
    vm: str
    image: str
    size: int
    store: str
    created_at: float
    origin: str = ""

    @property
    def is_hidden(self) -> bool:
        """Whether it is no user's, but holds what a move sends."""
        return "_" in self.name


@dataclass(frozen=True)
class Merge:
    """Two stores, one on the other, that become one.

    :ivar copy: somebody needs the lower one as it is: a copy takes its place
    """

    upper: Store
    lower: Store
    copy: bool


class Inventory:
    """All stores of a node and who needs them, as of a moment."""

    def __init__(
        self,
        stores: Iterable[Store],
        instances: Iterable[Instance],
        snapshots: Iterable[Snapshot],
    ) -> None:
        self.stores = {one.name: one for one in stores}
        self.instances = {one.vm: one for one in instances}
        self.snapshots = {one.name: one for one in snapshots}

    def instance(self, vm: str) -> Instance:
        """Return a VM.

        :raises InstanceUnknown: if there is none
        """
        found = self.instances.get(vm)
        if found is None:
            raise InstanceUnknown(f"there is no VM {vm} on this node")
        return found

    def chain(self, top: str) -> tuple[Store, ...]:
        """Return the stores of a VM or snapshot that ends at ``top``, the one on the image first.

        :raises KeyError: if one of them is not known
        """
        found: list[Store] = []
        while top:
            found.append(self.stores[top])
            top = found[-1].lower
        return tuple(reversed(found))

    def on(self, store: Store) -> tuple[Instance, ...]:
        """Return the VMs that have a store in their chains, however long it was."""
        return tuple(
            one
            for one in self.instances.values()
            if any(mine.name == store.name for mine in self.chain(one.store))
        )

    def served(self) -> set[str]:
        """Return the names of all stores of which a VM consists."""
        return {store.name for one in self.instances.values() for store in self.chain(one.store)}

    def frozen(self) -> set[str]:
        """Return the names of the stores to which nothing is written any more."""
        lower = {one.lower for one in self.stores.values()}
        return lower | {one.store for one in self.snapshots.values()}

    def descending(self) -> list[Store]:
        """Return all stores, each before those that it lies on."""
        return sorted(self.stores.values(), key=self._depth, reverse=True)

    def garbage(self) -> list[Store]:
        """Return the stores that nobody needs, each before those that it lies on."""
        needed = {store.name for top in self._tops() for store in self.chain(top)}
        return [one for one in self.descending() if one.name not in needed]

    def merge(self, vm: str) -> Merge | None:
        """Return what should be merged next of a VM's chain, or is being merged."""
        chain = self.chain(self.instances[vm].store) if vm in self.instances else ()
        pairs = [(upper, lower) for lower, upper in itertools.pairwise(chain)]
        for upper, lower in pairs:
            if upper.merging:
                return Merge(upper, lower, copy=False)
        for upper, lower in pairs:
            if self.may_take(lower, upper):
                return Merge(upper, lower, copy=False)
        if len(chain) > LONGEST:
            return Merge(*pairs[0], copy=True)
        return None

    def may_take(self, lower: Store, upper: Store) -> bool:
        """Tell whether all who need a store need the one on it too."""
        return lower.name not in self._tops() and all(
            one.name == upper.name for one in self.stores.values() if one.lower == lower.name
        )

    def without(self, store: Store) -> Iterator[Store | Instance | Snapshot]:
        """Return who has to be led past an emptied store to the one below, and so changed.

        Should only some of them be, a VM that still has the store in its chain leads to the rest:
        so what belongs to VMs comes last.
        """
        served = self.served()
        for snapshot in self.snapshots.values():
            if snapshot.store == store.name:
                yield replace(snapshot, store=store.lower)
        for one in sorted(self.stores.values(), key=lambda one: one.name in served):
            if one.lower == store.name:
                yield replace(one, lower=store.lower)
        for instance in self.instances.values():
            if instance.store == store.name:
                yield replace(instance, store=store.lower)

    def left(self) -> list[Store]:
        """Return the stores past which somebody was led: they were emptied into those below."""
        return [
            one
            for one in self.stores.values()
            if one.merging and not self.may_take(self.stores[one.lower], one)
        ]

    def _ends(self) -> tuple[Instance | Snapshot, ...]:
        return (*self.instances.values(), *self.snapshots.values())

    def _tops(self) -> set[str]:
        return {end.store for end in self._ends()}

    def _depth(self, store: Store) -> int:
        depth = 0
        while store.lower in self.stores:
            store, depth = self.stores[store.lower], depth + 1
        return depth
