"""Max-min fairness: what each flow gets of the links that it passes."""

import math

import numpy as np
import testtools
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.simulation.shares import max_min


def shares(capacity, flows, most=1e9):
    """Return rates; flows are tuples of links, of which 0 has no limit."""
    width = max(map(len, flows))
    rows = [[*flow, *[0] * (width - len(flow))] for flow in flows]
    return max_min(
        np.array([math.inf, *capacity]), np.array(rows, dtype=np.intp), np.full(len(flows), most)
    )


@st.composite
def networks(draw):
    capacity = draw(st.lists(st.floats(1, 1000), min_size=1, max_size=8))
    link = st.integers(1, len(capacity))
    flow = st.lists(link, min_size=1, max_size=4, unique=True).map(tuple)
    flows = draw(st.lists(flow, min_size=1, max_size=15))
    return capacity, flows, draw(st.floats(1, 500))


class SharesTest(testtools.TestCase):
    def assert_rates(self, expected, found):
        np.testing.assert_allclose(found, expected)

    def test_flows_share_a_link_alike(self):
        self.assert_rates([5, 5], shares([10], [(1,), (1,)]))

    def test_what_one_cannot_use_is_the_others(self):
        # the second flow gets 1 of its other link; the first takes the rest
        self.assert_rates([9, 1], shares([10, 1], [(1,), (1, 2)]))
        self.assert_rates([2, 2, 6], shares([4, 10], [(1, 2), (1, 2), (2,)]))

    def test_no_flow_gets_more_than_it_takes(self):
        self.assert_rates([3, 3], shares([10], [(1,), (1,)], most=3))
        self.assert_rates([3], shares([], [(0,)], most=3))

    @given(networks())
    @settings(max_examples=200)
    def test_each_flow_is_stopped_where_nobody_has_more(self, network):
        capacity, flows, most = network
        rates = shares(capacity, flows, most)
        used = [
            sum(rate for rate, flow in zip(rates, flows, strict=True) if link + 1 in flow)
            for link in range(len(capacity))
        ]
        for amount, limit in zip(used, capacity, strict=True):
            self.assertLessEqual(amount, limit * (1 + 1e-6))
        for rate, flow in zip(rates, flows, strict=True):
            stops = rate >= most * (1 - 1e-6) or any(
                used[link - 1] >= capacity[link - 1] * (1 - 1e-6)
                and rate >= max(r for r, f in zip(rates, flows, strict=True) if link in f) - 1e-6
                for link in flow
            )
            self.assertTrue(stops, (rate, flow))
