"""Which devices stand for the stores and VMs that are written down, and which lies on which."""

from __future__ import annotations

from collections.abc import Iterable

from virtman.disk.capacity import volume
from virtman.disk.records import Records
from virtman.model import plan, planner
from virtman.model.chain import Instance, Inventory, Store
from virtman.stack.builder import Stack
from virtman.stack.layers.instance import InstanceLayer
from virtman.stack.layers.store import StoreLayer
from virtman.stack.mapped import Mapped


class Devices:
    """The devices of this node's stores and VMs; the caller has the lock of their image."""

    def __init__(self, stack: Stack, records: Records) -> None:
        self.stack = stack
        self.records = records

    def store(self, store: Store) -> StoreLayer:
        """Return what makes the device of a store."""
        layer = self.stack.layer(planner.store(store))
        assert isinstance(layer, StoreLayer)
        return layer

    def vm(self, instance: Instance) -> InstanceLayer:
        """Return what makes the device of a VM."""
        layer = self.stack.layer(planner.device(instance))
        assert isinstance(layer, InstanceLayer)
        return layer

    def is_right(self, instance: Instance) -> bool:
        """Tell whether a VM's device, which is there, lies on the store of its record."""
        return self.vm(instance).lies_on(planner.device(instance).below[0].node)

    def steps(self, instance: Instance) -> plan.Plan:
        """Return the steps to a VM's device, whose stores are looked at first.

        :raises StoreUnusable: if another device has the path of one of them
        """
        chain = self.records.inventory().chain(instance.store)
        for store in chain:
            volume(store).check()
        return planner.instance(instance, chain)

    def up(self, steps: plan.Plan) -> None:
        """Bring devices up; what the first one lies on is there."""
        self.stack.up(steps, {below: below.node for below in steps[0].below})

    def retire(self, inventory: Inventory, image: str) -> None:
        """Take down the devices of stores of which no VM consists, upper ones first."""
        served = inventory.served()
        for store in inventory.descending():
            if store.image == image and store.name not in served:
                self.store(store).down()

    def on(self, store: Store) -> list[Mapped]:
        """Return the devices that lie on a store's, whatever the records say."""
        inventory, image = self.records.inventory(), store.image
        layers = self._layers(
            (one for one in inventory.stores.values() if one.image == image),
            (one for one in inventory.instances.values() if one.image == image),
        )
        return _on(store, layers)

    def emptied(self, instance: Instance) -> list[Store]:
        """Return the stores past which a VM is to be led: merges whose end was begun."""
        inventory, image = self.records.inventory(), instance.image
        chain = inventory.chain(instance.store)
        left = [one for one in inventory.left() if one.image == image and one not in chain]
        own = self._layers(chain, [instance])
        return [one for one in left if _on(one, own)]

    def _layers(self, stores: Iterable[Store], vms: Iterable[Instance]) -> list[Mapped]:
        return [*(self.store(one) for one in stores), *(self.vm(one) for one in vms)]


def _on(store: Store, layers: Iterable[Mapped]) -> list[Mapped]:
    """Return which of these devices lie on a store's."""
    return [one for one in layers if one.lies_on(planner.store(store).device.node)]
