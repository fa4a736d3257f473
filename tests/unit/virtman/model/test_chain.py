"""Who needs which store, and what becomes of stores that are not needed."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.model.chain import LONGEST, Instance, Inventory, Merge, Snapshot, Store


def store(name, lower="", merging=False):
    return Store(name, "i", 512, f"/{name}", lower, merging)


def vm(name, top):
    return Instance(name, "i", 512, top)


def snapshot(name, top):
    return Snapshot(name, "vm", "i", 512, top, 0.0)


@st.composite
def inventories(draw):
    """Trees of stores, VMs on leaves of their own, snapshots anywhere."""
    count = draw(st.integers(1, 8))
    stores = [store("s0")]
    for number in range(1, count):
        below = draw(st.integers(-1, number - 1))
        stores.append(store(f"s{number}", f"s{below}" if below >= 0 else ""))
    lowers = {one.lower for one in stores}
    names = [one.name for one in stores]
    snapshots = [snapshot(name, name) for name in names if draw(st.booleans())]
    kept = {one.store for one in snapshots}
    leaves = [name for name in names if name not in lowers | kept]
    vms = [vm(f"v-{name}", name) for name in leaves if draw(st.booleans())]
    return Inventory(stores, vms, snapshots)


def contents(inventory):
    """What each VM and snapshot consists of, store by store that was ever written to."""
    ends = [*inventory.instances.values(), *inventory.snapshots.values()]
    return {repr((type(end).__name__, getattr(end, "vm", ""), getattr(end, "name", ""))):
            [one.path for one in inventory.chain(end.store)] for end in ends}  # fmt: skip


def merged(inventory, merge):
    """Carry a merge out; a store's path says what it holds."""
    lower, stores = merge.lower, dict(inventory.stores)
    path = f"{merge.lower.path}{merge.upper.path}"
    if merge.copy:
        lower = Store("copy-" + merge.lower.name, "i", 512, path, merge.lower.lower)
    else:
        lower = Store(lower.name, "i", 512, path, lower.lower)
    stores[lower.name] = lower
    upper = stores[merge.upper.name] = store(merge.upper.name, lower.name, True)
    now = Inventory(stores.values(), inventory.instances.values(), inventory.snapshots.values())
    for changed in now.without(upper):
        match changed:
            case Store():
                now.stores[changed.name] = changed
            case Instance():
                now.instances[changed.vm] = changed
            case Snapshot():
                now.snapshots[changed.name] = changed
    return clean(now)


def clean(inventory):
    gone = {one.name for one in inventory.garbage()}
    stores = (one for name, one in inventory.stores.items() if name not in gone)
    return Inventory(stores, inventory.instances.values(), inventory.snapshots.values())


class ChainsTest(testtools.TestCase):
    def test_a_chain_begins_at_the_image(self):
        inventory = Inventory([store("b", "a"), store("a")], [vm("v", "b")], [])
        self.assertEqual(["a", "b"], [one.name for one in inventory.chain("b")])
        self.assertEqual((), inventory.chain(""))

    def test_what_nobody_needs_is_garbage_upper_ones_first(self):
        stores = [store("a"), store("b", "a"), store("c", "b"), store("d", "a")]
        inventory = Inventory(stores, [vm("v", "d")], [])
        self.assertEqual(["c", "b"], [one.name for one in inventory.garbage()])

    def test_a_store_that_only_one_other_needs_takes_it(self):
        stores = [store("a"), store("b", "a")]
        self.assertEqual(
            Merge(stores[1], stores[0], copy=False),
            Inventory(stores, [vm("v", "b")], []).merge("v"),
        )
        for others in ([], [snapshot("x", "a")]), ([vm("w", "c")], []):
            more = [*stores, store("c", "a")] if others[0] else stores
            inventory = Inventory(more, [vm("v", "b"), *others[0]], others[1])
            self.assertIsNone(inventory.merge("v"))

    def test_a_merge_that_was_begun_comes_first(self):
        stores = [store("a"), store("b", "a"), store("c", "b", merging=True)]
        found = Inventory(stores, [vm("v", "c")], []).merge("v")
        self.assertEqual(Merge(stores[2], stores[1], copy=False), found)

    def test_of_a_long_chain_that_others_need_the_lowest_two_are_copied(self):
        stores = [store("0")] + [store(str(n), str(n - 1)) for n in range(1, LONGEST + 1)]
        needed = [snapshot(f"x{one.name}", one.name) for one in stores[:-1]]
        found = Inventory(stores, [vm("v", stores[-1].name)], needed).merge("v")
        self.assertEqual(Merge(stores[1], stores[0], copy=True), found)

    def test_a_merge_that_others_were_led_past_is_known_by_it(self):
        stores = [store("a"), store("b", "a", merging=True)]
        self.assertEqual([], Inventory(stores, [vm("v", "b")], []).left())
        led = Inventory(stores, [vm("v", "a")], [])
        self.assertEqual([stores[1]], led.left())

    def test_nobody_merges_for_a_vm_that_has_gone(self):
        self.assertIsNone(Inventory([store("a")], [], []).merge("v"))

    @given(inventories())
    def test_merging_loses_nothing_and_ends_with_short_chains(self, inventory):
        now = clean(inventory)
        before = {end: "".join(paths) for end, paths in contents(now).items()}
        for _ in range(50):
            todo = [found for name in now.instances if (found := now.merge(name))]
            if not todo:
                break
            now = merged(now, todo[0])
            after = {end: "".join(paths) for end, paths in contents(now).items()}
            self.assertEqual(before, after)
        self.assertEqual([], todo)
        for one in now.instances.values():
            self.assertLessEqual(len(now.chain(one.store)), LONGEST)
