"""A node of a ring keeps in its cache what it owns, and more only as there is room."""

from tests.functional.virtman.base import MIB, SIZE, TestCase
from tests.functional.virtman.doubles.model import SSD
from virtman.coordinator.interface import Shape
from virtman.model.sizes import SECTOR
from virtman.stack.cache.ssd import Ssd

STRIPES = 8
HALF = (SIZE // 2 + MIB) // SECTOR  # the cache group leaves a MiB out
KEPT, CACHE = "virtman_ring_kept", "bcache over virtman_ring_backing"


class TestKept(TestCase):
    def setUp(self):
        super().setUp()
        self.bed.register("ring", shape=Shape("ring", STRIPES, 64))

    def node(self, name, sectors=HALF):
        node = self.bed.node(name)
        node.kernel.ssd_sectors = sectors
        node.create("vm1", "ring")
        return node

    def kept(self, node):
        """Return which stripes lead to the cache; None if all do."""
        tables = node.kernel.state()["dm"]
        if KEPT not in tables:
            return None
        ((_, _, _, words),) = tables[KEPT][0]
        ways = words.split(" ", 3)[3].split(" 0")
        return {one for one, way in enumerate(ways[:STRIPES]) if way.strip() == CACHE}

    def owned(self, node):
        trees = self.bed.volt.trees("ring").trees
        return {
            tree.stripe
            for tree in trees
            for place in tree.nodes
            if place.host == node.name and place.inner
        }

    def settle(self, *nodes):
        for _ in range(3):
            for node in nodes:
                node.beat()

    def test_a_cache_with_room_for_the_image_keeps_all(self):
        node = self.node("a", 8 * HALF)
        node.beat()
        self.assertIsNone(self.kept(node))

    def test_what_is_owned_is_kept_and_follows_owners(self):
        one = self.node("a")
        one.beat()
        self.assertEqual(set(range(STRIPES)), self.kept(one))  # it owns all
        others = [self.node(name) for name in "bcd"]
        self.settle(one, *others)
        for node in (one, *others):
            self.assertEqual(2, len(self.owned(node)))
            self.assertLess(self.owned(node), self.kept(node))
            self.assertEqual(3, len(self.kept(node)))
        self.bed.volt.ground.hosts.drain("d", True)
        self.settle(one, *others)
        for node in (one, *others):
            self.assertLessEqual(self.owned(node), self.kept(node))

    def test_an_agent_that_starts_changes_nothing(self):
        one, two = self.node("a"), self.node("b")
        self.settle(one, two)
        before, kept = one.kernel.state(), self.kept(one)
        one.stop()
        one.start()
        self.assertEqual([], one.recover())
        one.settle()
        self.assertEqual(before, one.kernel.state())
        self.assertEqual(kept, self.kept(one))

    def test_what_a_killed_agent_left_goes_with_the_image(self):
        node = self.node("a")
        node.beat()
        self.assertIsNotNone(self.kept(node))
        node.die()
        node.start()
        self.assertEqual([], node.recover())
        node.settle()
        node.destroy("vm1")
        node.drop("ring")
        self.assertEqual({}, node.kernel.state()["dm"])

    def test_once_the_cache_has_room_it_keeps_all(self):
        node = self.node("a")
        node.beat()
        self.assertIsNotNone(self.kept(node))
        node.kernel.ssd_sectors = 8 * HALF
        ssd = Ssd([SSD])
        with node.process.here():
            ssd.up()
        node.beat()
        self.assertIsNone(self.kept(node))
