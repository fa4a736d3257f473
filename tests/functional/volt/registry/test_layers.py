"""Images that lie on others: what may lie on what, and what may go."""

from dataclasses import replace

from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.registry.base import NOW, TreesCase
from volt import errors
from volt.model.hosts import ImageReport, Report
from volt.model.images import Layer, NewImage
from volt.placement.rules import Shape
from volt.transport import Portal

MAKER = "node1"


class TestLayers(TreesCase):
    def layer(self, name, parent="x", disk_size=1024, maker=MAKER):
        source = Portal("127.0.0.1", self.ground.source_port, "iqn.2003-01.org.example:l", 0)
        layer = Layer(parent, disk_size, maker)
        return NewImage(name, 4096, Shape.FOREST, 2, 2, source, layer=layer)

    def add(self, name, *arguments, **words):
        return self.images.create(self.layer(name, *arguments, **words), NOW)

    def test_a_layer_is_shown_with_its_parent_and_may_be_said_again(self):
        made, is_new = self.add("y")
        assert is_new
        assert made.layer == Layer("x", 1024, MAKER)
        assert self.add("y") == (made, False)
        assert self.images.show("x").layer is None
        self.assertRaises(errors.ImageExists, self.add, "y", disk_size=2048)

    def test_a_parent_stays_until_its_last_layer_has_gone(self):
        self.add("y")
        self.add("z")
        refused = self.assertRaises(errors.ImageInUse, self.images.delete, "x")
        assert "layer y and z" in str(refused) or "layer y, z" in str(refused), str(refused)
        self.images.delete("y", MAKER)
        self.assertRaises(errors.ImageInUse, self.images.delete, "x")
        self.images.delete("z")
        self.images.delete("x")

    def test_three_layers_lie_on_each_other_and_no_fourth(self):
        self.add("l1")
        self.add("l2", "l1")
        self.add("l3", "l2")
        self.assertRaises(errors.LayersTooMany, self.add, "l4", "l3")
        assert [one.name for one in self.images.index()] == ["l1", "l2", "l3", "x"]

    def test_a_layer_without_a_parent_or_of_a_smaller_disk_is_refused(self):
        self.assertRaises(errors.ImageUnknown, self.add, "y", "unknown")
        self.assertRaises(errors.ImageUnknown, self.add, "y", "y")
        self.add("y", disk_size=2048)
        self.assertRaises(errors.ImageSizeInvalid, self.add, "z", "y", 1024)

    def test_a_host_forgets_only_what_it_keeps(self):
        self.add("y")
        for name in "xy":
            self.assertRaises(errors.NotMaker, self.images.delete, name, "node2")
        self.assertRaises(errors.ImageUnknown, self.images.delete, "z", MAKER)
        self.images.create(replace(self.layer("z"), layer=Layer("x", 1024, None)), NOW)
        self.assertRaises(errors.NotMaker, self.images.delete, "z", MAKER)

    def test_a_host_lets_go_of_what_it_keeps_if_another_has_all_of_it(self):
        self.add("y")
        self.assertRaises(errors.NotMaker, self.images.withdraw, "y", maker="node2")
        assert self.images.withdraw("y", maker=MAKER) is None
        self.add("y")
        self.join("a", image="y")
        self.assertRaises(errors.ImageLastCopy, self.images.withdraw, "y", maker=MAKER)
        self.ground.hosts.heartbeat("a", Report({"y": ImageReport(1, whole=True)}))
        for _ in range(2):
            assert self.images.withdraw("y", maker=MAKER).home == "a"

    def hashed(self):
        """Have a layer y with a hash tree, which its maker keeps."""
        hashes = {"root_hash": "a" * 64, "salt": "b" * 64, "upper_hashes": bytes(4096)}
        made = replace(self.layer("y"), size=1 << 20, **hashes)
        self.images.create(made, NOW)
        return made

    def test_a_layer_without_a_source_gets_another_one_of_the_same_content(self):
        hashed = self.hashed()
        self.join("a", image="y")
        portal = replace(hashed.source, iqn="iqn.2003-01.org.example:storage")
        moved = replace(hashed, source=portal, layer=Layer("x", 1024, None))
        self.images.withdraw("y", forced=True)
        other = replace(moved, root_hash="ff" * 32)
        self.assertRaises(errors.ImageExists, self.images.create, other, NOW)
        before = self.placements.show("y", "a").generation
        found, is_new = self.images.create(moved, NOW)
        assert (found.source.iqn, found.layer.maker, is_new) == (portal.iqn, None, False)
        assert self.placements.show("y", "a").generation > before
        assert self.images.create(moved, NOW) == (found, False)
        self.assertRaises(errors.ImageExists, self.images.create, hashed, NOW)

    def test_a_layer_leaves_the_host_that_made_it_for_a_storage_node(self):
        hashed = self.hashed()
        self.join("a", image="y")
        portal = replace(hashed.source, iqn="iqn.2003-01.org.example:storage")
        moved = replace(hashed, source=portal, layer=Layer("x", 1024, None))
        for other in (
            replace(moved, root_hash="ff" * 32),
            replace(moved, layer=Layer("x", 2048, None)),
            replace(moved, layer=Layer("x", 1024, "node2")),
        ):
            self.assertRaises(errors.ImageExists, self.images.create, other, NOW)
        before = self.placements.show("y", "a").generation
        found, is_new = self.images.create(moved, NOW)
        assert (found.source.iqn, found.layer.maker, is_new) == (portal.iqn, None, False)
        assert self.placements.show("y", "a").generation > before
        self.assertRaises(errors.NotMaker, self.images.withdraw, "y", maker=MAKER)
        elsewhere = replace(moved, source=hashed.source)
        self.assertRaises(errors.ImageExists, self.images.create, elsewhere, NOW)

    def test_a_host_that_made_a_layer_serves_it_as_a_storage_node_from_then_on(self):
        own = replace(self.hashed(), layer=Layer("x", 1024, None))
        assert self.images.create(own, NOW)[0].layer.maker is None

    def test_the_source_of_a_parent_goes_only_by_force(self):
        self.add("y")
        refused = self.assertRaises(errors.ImageLastCopy, self.images.withdraw, "x")
        assert "layer y" in str(refused)
        assert self.images.withdraw("x", forced=True).name == "x"
        self.images.delete("y")
        assert self.images.withdraw("x") is None
        self.assertRaises(errors.ImageUnknown, self.images.show, "x")
