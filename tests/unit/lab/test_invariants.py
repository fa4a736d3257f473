"""Which broken trees the checker of the chaos tests and the bench finds."""

import testtools

from lab import invariants

# Two stripes, fan-out 2; a, c are inner in the first tree, b, d in the second.
FIRST = {"a": None, "b": "a", "c": "a", "d": "c"}
SECOND = {"b": None, "a": "b", "d": "b", "c": "d"}


def node(host, parents, inner):
    depth, above = 1, parents[host]
    while above is not None and depth <= len(parents):
        depth, above = depth + 1, parents.get(above)
    return {"host": host, "parent": parents[host], "depth": depth, "inner": host in inner}


def trees(*stripes, shape="forest", fanout=2, inner=("ac", "bd")):
    return {
        "image": "x",
        "shape": shape,
        "stripes": len(stripes),
        "fanout": fanout,
        "generation": 9,
        "trees": [
            {"stripe": number, "nodes": [node(host, parents, inner[number]) for host in parents]}
            for number, parents in enumerate(stripes)
        ],
    }


def portal(host):
    return {"ip": "192.0.2.1", "port": 3260, "iqn": f"iqn.2026-11.org.virtman:{host}", "lun": 0}


def peer(host):
    return {"host": host, "portal": portal(host)}


class TestTrees(testtools.TestCase):
    def faults(self, first, hosts="abcd", closed="", **more):
        return list(invariants.faults(trees(first, SECOND, **more), hosts, closed))

    def test_sound_trees_have_no_fault(self):
        assert self.faults(FIRST) == []

    def test_a_host_that_is_missing_is_found(self):
        assert self.faults({"a": None, "b": "a", "c": "a"}) == ["image x, stripe 0: d is missing"]

    def test_a_host_without_a_place_is_found(self):
        assert "image x, stripe 0: d is there without a place" in self.faults(FIRST, "abc")

    def test_a_cycle_is_found(self):
        found = self.faults({"a": None, "b": "a", "c": "d", "d": "c"}, inner=("acd", "b"))
        assert "image x, stripe 0: c does not reach the source" in found

    def test_a_parent_that_is_not_there_is_found(self):
        found = self.faults({"a": None, "b": "a", "c": "a", "d": "gone"})
        assert "image x, stripe 0: d does not reach the source" in found

    def test_too_many_children_are_found(self):
        found = self.faults({"a": None, "b": "a", "c": "a", "d": "a"})
        assert found == ["image x, stripe 0: a feeds 3"]

    def test_a_leaf_that_feeds_is_found(self):
        found = self.faults({"a": None, "b": "a", "c": "a", "d": "b"})
        assert "image x, stripe 0: b feeds others, but is a leaf" in found
        assert "image x: b is inner in more than one tree" in found

    def test_a_draining_host_that_feeds_is_found(self):
        assert self.faults(FIRST, closed="c") == ["image x, stripe 0: c feeds others, but must not"]

    def test_a_source_that_feeds_though_there_is_room_is_found(self):
        found = self.faults({"a": None, "b": "a", "c": "a", "d": None})
        assert found == ["image x, stripe 0: the source feeds 2, though c has room"]
        assert self.faults({"a": None, "b": "a", "c": "a", "d": None}, closed="c") == []

    def test_a_tree_that_is_too_deep_is_found(self):
        line = {f"h{number}": f"h{number - 1}" if number else None for number in range(9)}
        deep = trees(line, shape="tree", inner=(line,))
        assert list(invariants.faults(deep, line)) == ["image x, stripe 0: depth 9 with 9 hosts"]
        chain = trees(line, shape="chain", fanout=1, inner=(line,))
        assert list(invariants.faults(chain, line)) == []

    def test_a_tree_of_racks_may_be_deeper(self):
        line = {f"h{number}": f"h{number - 1}" if number else None for number in range(9)}
        deep = trees(line, shape="tree", inner=(line,))
        for number, each in enumerate(deep["trees"][0]["nodes"]):
            each["rack"] = f"r{number % 4}"
        assert list(invariants.faults(deep, line)) == []

    def test_in_a_ring_all_may_feed_all_but_only_owners_do(self):
        ring = trees({"a": None, "b": "a", "c": "a"}, {"b": None, "a": "b", "c": "b"},
                     shape="ring", fanout=2, inner=("a", "b"))  # fmt: skip
        assert list(invariants.faults(ring, "abc")) == []
        both = trees({"a": None, "b": "a", "c": "b"}, {"a": None, "b": "a", "c": "a"},
                     shape="ring", inner=("a", "a"))  # fmt: skip
        found = list(invariants.faults(both, "abc"))
        assert found == ["image x, stripe 0: b feeds others, but is a leaf"]
        line = {f"h{number}": f"h{number - 1}" if number else None for number in range(9)}
        deep = trees(line, shape="ring", inner=(line,))
        assert list(invariants.faults(deep, line)) == ["image x, stripe 0: depth 9 with 9 hosts"]

    def test_in_a_star_the_source_feeds_all(self):
        star = trees({"a": None, "b": None, "c": None}, shape="star", fanout=0, inner=("",))
        assert list(invariants.faults(star, "abc")) == []
        bent = trees({"a": None, "b": "a"}, shape="star", fanout=0, inner=("",))
        assert "image x, stripe 0: b is not fed by the source" in invariants.faults(bent, "ab")


class TestPlacements(testtools.TestCase):
    def setUp(self):
        super().setUp()
        parents = {"a": None, "b": "a", "c": "b"}
        self.trees = trees(parents, shape="tree", inner=("abc",))
        self.places = {
            "a": self.place("a", peer(None), None),
            "b": self.place("b", peer("a"), peer(None)),
            "c": self.place("c", peer("b"), peer("a")),
        }

    def place(self, host, parent, standby, generation=9):
        stripe = {"stripe": 0, "parent": parent, "standby": standby}
        return {"host": host, "generation": generation, "stripes": [stripe]}

    def faults(self):
        portals = {host: portal(host) for host in "abc"}
        found = invariants.placement_faults(self.trees, self.places.values(), portals)
        return [fault.partition(": ")[2] for fault in found]

    def test_hosts_that_are_told_what_the_trees_say_have_no_fault(self):
        assert self.faults() == []

    def test_another_parent_than_in_the_tree_is_found(self):
        self.places["c"] = self.place("c", peer("a"), peer(None))
        assert self.faults() == ["c is told a, but hangs under b"]

    def test_a_standby_that_is_below_is_found(self):
        self.places["b"] = self.place("b", peer("a"), peer("c"))
        assert self.faults() == ["b has standby c, which is no ancestor of a"]

    def test_a_standby_of_the_source_is_found(self):
        self.places["a"] = self.place("a", peer(None), peer(None))
        assert [fault.partition(" standby")[0] for fault in self.faults()] == ["a has"]

    def test_an_old_portal_is_found(self):
        self.places["c"] = self.place("c", peer("b") | {"portal": portal("old")}, peer("a"))
        assert self.faults() == [f"c is told {portal('old')} of b"]

    def test_a_generation_beyond_the_images_is_found(self):
        self.places["b"] = self.place("b", peer("a"), peer(None), generation=10)
        assert self.faults() == ["b has generation 10"]

    def test_a_host_in_the_trees_without_a_placement_is_found(self):
        del self.places["c"]
        assert self.faults() == ["c is in the trees, but has no placement"]
