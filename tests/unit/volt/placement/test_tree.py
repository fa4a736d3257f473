"""Who takes whose place in one stripe, on trees that are drawn by hand."""

import testtools

from tests.unit.volt.placement.test_forest import hosts_of, part_of
from volt.placement import shapes
from volt.placement.links import Newcomer, Node, Totals
from volt.placement.part import (
    ENTRIES,
    ENTRIES_OF_RACK,
    LEAVES,
    LEAVES_OF_RACK,
    LOWEST,
    LOWEST_OF_RACK,
    MIXED_OF_RACK,
    OPEN,
    OPEN_OF_RACK,
    ROOTS,
    ROOTS_OF_RACK,
    STRAYS_OF_RACK,
    Change,
    Pick,
)
from volt.placement.rules import Rules, Shape
from volt.placement.shapes import Measures
from volt.placement.slots import Limits
from volt.placement.tree import Tree


def drawn(fanout, *links, foreign_children=None):
    """Return a tree of ``(host, parent, inner, rack)``, in the order in which they hang."""
    tree = Tree(Limits(1, fanout, 1, foreign_children), Totals())
    for host, parent, inner, rack in links:
        tree.set_inner(node := Node(host, rack, None, 1, inner=False), inner)
        tree.hang(node, parent)
    tree.changed.clear()
    tree.moved.clear()
    return tree


def parents_of(tree):
    return {host: node.parent for host, node in tree.nodes.items()}


class TestRoots(testtools.TestCase):
    """A host that has all of the image is the better parent, but racks count more."""

    def tree(self):
        links = [("top", None, True, "r0"), ("a", "top", True, "r1"), ("b", "top", True, "r1")]
        tree = drawn(3, *links, ("low", "b", True, "r1"))
        tree.nodes["low"].whole = True
        return tree

    def test_a_leaf_hangs_below_it_however_low_it_is(self):
        tree = self.tree()
        tree.add_leaf(Node("leaf", "r1", None, 1, inner=False))
        assert tree.nodes["leaf"].parent == "low"
        tree.add_leaf(Node("other", "r0", None, 1, inner=False))
        assert tree.nodes["other"].parent == "top"

    def test_an_inner_host_goes_where_a_slot_is_nearest_all_the_same(self):
        tree = self.tree()
        newcomer = Node("next", "r1", None, 1, inner=False)
        tree.add_inner(newcomer, tree.inner_slot(newcomer))
        assert tree.nodes["next"].parent == "top"


class TestHeirs(testtools.TestCase):
    """Who takes the place of an inner host that goes."""

    def tree(self, *more, racks=()):
        racks = dict(racks)
        links = [
            ("top", None, True),
            ("goes", "top", True),
            ("left", "top", True),
            ("x", "goes", True),
            ("y", "left", True),
            *more,
        ]
        return drawn(2, *((*link, racks.get(link[0])) for link in links))

    def test_a_child_of_it_is_preferred_for_it_moves_fewest(self):
        tree = self.tree()
        tree.remove("goes")
        assert parents_of(tree) == {"top": None, "left": "top", "x": "top", "y": "left"}
        assert tree.moved == {"x"}

    def test_one_whose_own_children_all_have_room_with_it_is_preferred(self):
        tree = self.tree(("z", "goes", False), ("a", "x", False), ("b", "x", False))
        tree.remove("goes")
        # x would inherit z and keep one of a and b; y inherits x and z, and loses nobody
        assert parents_of(tree)["x"] == "top"
        assert parents_of(tree)["z"] == "x"

    def test_one_of_the_same_rack_is_preferred_among_equals(self):
        for rack, heir in (("r1", "x"), ("r2", "y")):
            tree = drawn(
                2,
                ("top", None, True, None),
                ("goes", "top", True, rack),
                ("left", "top", True, None),
                ("x", "left", True, "r1"),
                ("y", "left", True, "r2"),
            )
            tree.remove("goes")
            assert parents_of(tree)[heir] == "top"

    def test_one_that_may_feed_is_preferred_to_one_of_the_same_rack(self):
        tree = self.tree(racks={"goes": "r1", "x": "r1", "left": "r2", "y": "r2"})
        tree.accept(tree.nodes["x"], False)
        tree.remove("goes")
        assert parents_of(tree)["y"] == "top"

    def test_one_of_the_lowest_level_has_none(self):
        tree = self.tree(("a", "x", False), ("b", "y", False))
        tree.remove("x")
        assert parents_of(tree) == {
            "top": None,
            "goes": "top",
            "left": "top",
            "y": "left",
            "b": "y",
            "a": "goes",
        }
        assert tree.moved == {"a"}

    def test_one_that_hangs_above_it_is_none(self):
        tree = drawn(
            2,
            ("entry", None, True, "r1"),
            ("root", "entry", True, "r1"),
            ("lowest", "root", True, "r1"),
            ("guest", "lowest", True, "r2"),
            ("goes", "guest", True, "r1"),
            ("leaf", "goes", False, "r1"),
        )
        tree.remove("goes")
        assert parents_of(tree) == {
            "entry": None,
            "root": "entry",
            "lowest": "root",
            "guest": "lowest",
            "leaf": "entry",
        }


class TestStrays(testtools.TestCase):
    """A host's slots are for its own rack first."""

    def test_a_stray_of_who_is_moved_too_comes_home(self):
        tree = drawn(
            3,
            ("entry", None, True, "r0"),
            ("goes", "entry", True, "r0"),
            ("a", "goes", True, "r1"),
            ("b", "goes", True, "r2"),
            ("stray", "b", False, "r1"),
        )
        tree.remove("goes")
        assert parents_of(tree) == {"entry": None, "a": "entry", "b": "entry", "stray": "a"}

    def strays(self):
        return drawn(
            2,
            ("entry", None, True, "r0"),
            ("a", "entry", True, "r1"),
            ("b", "entry", True, "r2"),
            ("stray", "b", False, "r1"),
            ("other", "b", False, "r2"),
            ("own", "a", False, "r1"),
        )

    def test_a_free_slot_is_for_a_stray_of_its_rack(self):
        tree = self.strays()
        tree.add_leaf(Node("leaf", "r3", None, 1, inner=False))
        assert (tree.nodes["stray"].parent, tree.nodes["leaf"].parent) == ("a", "b")

    def test_a_host_that_takes_no_more_gets_nobody_for_a_stray(self):
        tree = self.strays()
        tree.accept(tree.nodes["b"], False)
        tree.add_leaf(Node("leaf", "r3", None, 1, inner=False))
        assert (tree.nodes["stray"].parent, tree.nodes["leaf"].parent) == ("b", "a")


class TestAccept(testtools.TestCase):
    def test_what_changes_nothing_is_no_change(self):
        tree = drawn(2, ("a", None, True, None))
        tree.accept(tree.nodes["a"], True)
        assert not tree.changed
        tree.accept(tree.nodes["a"], False)
        assert tree.changed == {"a"}
        assert not tree.open()
        tree.changed.clear()
        tree.accept(tree.nodes["a"], True)
        assert tree.changed == {"a"}
        assert [node.host for node in tree.open()] == ["a"]


class TestForest(testtools.TestCase):
    def grown(self, rules, racks):
        forest = shapes.empty(rules)
        for number, rack in enumerate(racks):
            forest.join(Newcomer(f"h{number}", rack))
        return forest

    def test_a_stripe_that_lost_its_inner_hosts_gets_as_many_as_the_other(self):
        forest = self.grown(Rules(Shape.FOREST, 2, 2), [None] * 24)
        fed_by = [host for host in map("h{}".format, range(24)) if forest.inner_in(host) == (1,)]
        for host in fed_by:
            forest.leave(host)
        inner = [totals.inner for totals in forest.totals]
        assert [totals.at_source for totals in forest.totals] == [1, 1]
        assert sum(inner) == 24 - len(fed_by)
        assert min(inner) * 2 + 1 >= 24 - len(fed_by)

    def test_a_host_is_no_parent_of_its_own(self):
        forest = self.grown(Rules(Shape.FOREST, 2, 3), [None] * 9)
        for stripe in (0, 1):
            rooms = {one.host for one in forest.nodes(stripe) if one.has_room(3)}
            for host in map("h{}".format, range(9)):
                found = [parent.host for parent in forest.parents_for(host, None, stripe)]
                assert len(found) == len(set(found))
                assert set(found) == rooms - {host}

    def test_parents_of_the_hosts_own_rack_come_first(self):
        forest = self.grown(Rules(Shape.FOREST, 1, 8), ["r1", "r2"] * 6)
        racks = [parent.rack for parent in forest.parents_for("new", "r2", 0)]
        assert racks == sorted(racks, reverse=True)
        assert set(racks) == {"r1", "r2"}

    def test_how_many_hosts_are_picked(self):
        forest = self.grown(Rules(Shape.FOREST, 2, 3), [None] * 9)
        picks = forest.picks(Change(racks={"r1": 1}, joins=3, others=2))
        moves = 2 * (3 + 2)
        assert picks == [
            Pick(LEAVES, 3 + moves + 2),
            Pick(OPEN, 3 + 2 * moves + 2),
            Pick(LOWEST, 2 * 2 + 2),
            Pick(ENTRIES, 1),
            Pick(ROOTS, 1 + 2),
            Pick(OPEN_OF_RACK, 1 + moves + 2, "r1"),
            Pick(LEAVES_OF_RACK, 1 + moves + 2, "r1"),
            Pick(ENTRIES_OF_RACK, 1, "r1"),
            Pick(MIXED_OF_RACK, 1 + moves + 2, "r1"),
            Pick(STRAYS_OF_RACK, 3 + moves + 2, "r1"),
            Pick(ROOTS_OF_RACK, 3, "r1"),
            Pick(LOWEST_OF_RACK, 2 + 1, "r1"),
        ]

    def test_spares_that_could_move_are_picked_too(self):
        forest = shapes.empty(Rules(Shape.FOREST, 2, 2))
        for number in range(9):
            forest.join(Newcomer(f"h{number}", feeds=False))
        assert [totals.at_source for totals in forest.totals] == [9, 9]
        assert forest.picks(Change(joins=1))[0] == Pick(LEAVES, 1 + 1 * 2 + 2)
        assert forest.picks(Change(joins=40))[0] == Pick(LEAVES, 40 + 8 + 2)

    def test_a_part_is_enough_for_every_host_that_leaves(self):
        rules = Rules(Shape.FOREST, 2, 2)
        forest = self.grown(rules, [None] * 60)
        for host in hosts_of(forest):
            part_of(rules, forest, Change([host], others=1)).leave(host)  # no PartTooSmall


class TestShapes(testtools.TestCase):
    def test_what_holds_where_nobody_says_otherwise(self):
        assert {shape: shapes.usual(shape) for shape in Shape} == {
            Shape.FOREST: Measures(2, 2),
            Shape.TREE: Measures(1, 2),
            Shape.STAR: Measures(1, 0),
            Shape.CHAIN: Measures(1, 1),
            Shape.RING: Measures(16, 64),
        }

    def test_a_tree_may_have_a_fanout_of_one(self):
        shapes.check(Rules(Shape.TREE, 1, 1))

    def test_the_source_of_a_forest_of_one_stripe_feeds_as_many_as_a_host(self):
        forest = shapes.empty(Rules(Shape.FOREST, 1, 3))
        for number in range(9):
            forest.join(Newcomer(f"h{number}"))
        assert len(forest.children(None, 0)) == 3
