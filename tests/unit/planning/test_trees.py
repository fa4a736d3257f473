"""VirtMan's trees as the model sees them, against those that Volt makes."""

from dataclasses import replace

import testtools
from hypothesis import given, settings
from hypothesis import strategies as st

from planning import trees
from planning.distribution import EMULAB
from planning.errors import Invalid
from planning.trees import Trees
from volt.placement import shapes
from volt.placement.links import Newcomer
from volt.placement.rules import Rules, Shape

MEASURES = st.tuples(st.integers(1, 3), st.integers(0, 2)).map(
    lambda two: Trees(two[0], two[0] + two[1])
)


class TreesTest(testtools.TestCase):
    @given(MEASURES, st.integers(1, 70))
    @settings(max_examples=60)
    def test_they_are_as_deep_as_volt_makes_them(self, measures, hosts):
        places = shapes.empty(Rules(Shape.FOREST, stripes=measures.stripes, fanout=measures.fanout))
        for number in range(hosts):
            places.join(Newcomer(f"host{number:03}"))
        deepest = max(
            depth for stripe in range(measures.stripes) for _, depth in places.breadth_first(stripe)
        )
        self.assertEqual(deepest, trees.depth(measures, hosts))

    def test_one_stripe_of_two_children_halves_what_a_host_gets(self):
        self.assertEqual(EMULAB.link, trees.capacity(Trees(2, 2), EMULAB))
        self.assertEqual(EMULAB.link / 2, trees.capacity(Trees(1, 2), EMULAB))
        self.assertEqual(EMULAB.link, trees.capacity(Trees(1, 1), EMULAB))

    def test_what_is_fetched_ahead_hides_waits(self):
        slow = replace(EMULAB, round_trip=0.1)
        self.assertEqual(EMULAB.link, trees.ahead(Trees(window=2), EMULAB))
        self.assertEqual(
            4 * trees.on_demand(Trees(window=2), slow), trees.ahead(Trees(window=2), slow)
        )

    def test_far_hosts_are_some_pieces_behind(self):
        self.assertEqual(0.0, trees.lag(Trees(), EMULAB, 1))
        hop = 1e-3 + EMULAB.piece / EMULAB.link
        self.assertAlmostEqual(6 * hop, trees.lag(Trees(), EMULAB, 100))

    def test_what_cannot_be_is_refused(self):
        for measures in ((0, 2), (3, 2), (1, 0), (2, 2, 0)):
            self.assertRaises(Invalid, Trees, *measures)
        self.assertRaises(Invalid, trees.depth, Trees(), 0)
