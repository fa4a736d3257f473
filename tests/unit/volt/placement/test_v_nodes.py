"""Parts of a ring: as large as weights say, and changed no more than has to be."""

from collections import Counter

import testtools
from hypothesis import given
from hypothesis import strategies as st

from volt.placement import v_nodes

TOTAL = 60
HOSTS = [f"h{number:02}" for number in range(64)]
WEIGHTS = st.dictionaries(
    st.sampled_from(HOSTS), st.floats(0.01, 100), min_size=1, max_size=len(HOSTS)
)
OWNERS = st.lists(st.sampled_from([*HOSTS[:12], None]), min_size=1, max_size=TOTAL)


class ThresholdTest(testtools.TestCase):
    def test_it_is_beyond_all_hosts_while_no_level_is_busy(self):
        self.assertEqual(7, v_nodes.threshold([[0.8, 0.5], [0.9, 0.1], [0.8]]))
        self.assertEqual(7, v_nodes.threshold([[], [], []]))

    def test_the_lowest_level_decides_of_which_most_switches_are_busy(self):
        self.assertEqual(5, v_nodes.threshold([[0.1], [0.9, 0.9, 0.1, 0.1], [0.81]]))
        self.assertEqual(3, v_nodes.threshold([[], [0.9, 0.9, 0.1], [0.9]]))
        self.assertEqual(1, v_nodes.threshold([[0.9], [0.9], [0.9]]))


class DealTest(testtools.TestCase):
    @given(WEIGHTS)
    def test_all_are_dealt_in_proportion(self, weights):
        counts = v_nodes.deal(weights, TOTAL)
        self.assertEqual(TOTAL, sum(counts.values()))
        for host, count in counts.items():
            exact = weights[host] / sum(weights.values()) * TOTAL
            self.assertLess(abs(count - exact), 1 + 1e-6)

    @given(WEIGHTS)
    def test_who_has_more_traffic_gets_no_more(self, traffic):
        weights = v_nodes.by_traffic(traffic)
        for host, own in traffic.items():
            for other, more in traffic.items():
                self.assertTrue(own > more or weights[host] >= weights[other])

    def test_without_traffic_all_are_alike(self):
        self.assertEqual({"a": 1.0, "b": 1.0}, v_nodes.by_traffic({"a": 0.0, "b": 0.0}))

    def test_a_host_without_traffic_does_not_get_all(self):
        weights = v_nodes.by_traffic({"a": 0.0, "b": 10.0, "c": 10.0})
        self.assertEqual(30.0, weights["a"] / weights["b"])


class RemapTest(testtools.TestCase):
    @given(OWNERS.map(lambda owners: [owner or "h00" for owner in owners]), WEIGHTS)
    def test_the_fewest_change_hands(self, owners, weights):
        wanted = v_nodes.deal(weights, len(owners))
        found = v_nodes.remap(owners, wanted)
        counts = {host: count for host, count in wanted.items() if count}
        self.assertEqual(counts, dict(Counter(found)))
        had = Counter(owners)
        fewest = sum(max(0, count - had[host]) for host, count in counts.items())
        changed = sum(one != other for one, other in zip(owners, found, strict=True))
        self.assertEqual(fewest, changed)

    def test_who_leaves_gives_all(self):
        found = v_nodes.remap(["a", "b", "c"] * 4, v_nodes.deal({"a": 1, "b": 1}, 12))
        self.assertEqual({"a": 6, "b": 6}, dict(Counter(found)))


class GiveWayTest(testtools.TestCase):
    @given(OWNERS.map(lambda owners: [owner or "h00" for owner in owners]), WEIGHTS)
    def test_only_the_giver_gives_and_nobody_gets_too_many(self, owners, weights):
        counts = v_nodes.deal(weights, len(owners))
        giver = owners[0]
        found = v_nodes.give_way(owners, giver, counts)
        pairs = list(zip(owners, found, strict=True))
        given = [new for old, new in pairs if old != new]
        self.assertTrue(all(old in (new, giver) for old, new in pairs))
        self.assertGreaterEqual(found.count(giver), 1)
        for taker in set(given):
            self.assertLessEqual(found.count(taker), counts[taker])
        lacking = any(found.count(host) < count for host, count in counts.items())
        self.assertTrue(not lacking or found.count(giver) <= max(1, counts.get(giver, 0)))

    def test_it_ends(self):
        self.assertEqual(("a", "b"), v_nodes.give_way(["a", "b"], "a", {"b": 2}))


class HandOutTest(testtools.TestCase):
    @given(OWNERS, st.sets(st.sampled_from(HOSTS[:12]), min_size=1))
    def test_all_have_owners_then_and_no_other_changes_hands(self, owners, takers):
        found = v_nodes.hand_out(owners, takers)
        given_out = [new for old, new in zip(owners, found, strict=True) if old is None]
        self.assertLessEqual(set(given_out), takers)
        self.assertTrue(all(old in (None, new) for old, new in zip(owners, found, strict=True)))
        for taker in set(given_out):
            others = [found.count(one) for one in takers]
            self.assertLessEqual(found.count(taker), min(others) + 1)

    def test_without_takers_they_stay_without_owners(self):
        self.assertEqual(("a", None), v_nodes.hand_out(["a", None], []))

    def test_what_one_had_goes_to_different_hosts(self):
        found = v_nodes.hand_out([None] * TOTAL, HOSTS[:6])
        self.assertEqual(dict.fromkeys(HOSTS[:6], 10), dict(Counter(found)))


class HandOverTest(testtools.TestCase):
    @given(OWNERS, st.integers(1, 20))
    def test_only_the_newcomer_gets_any_and_no_more_than_its_share(self, owners, hosts):
        found = v_nodes.hand_over(owners, "new", hosts)
        taken = [old for old, new in zip(owners, found, strict=True) if old != new]
        self.assertEqual(len(taken), found.count("new"))
        self.assertLessEqual(len(taken), -(-len(owners) // hosts))
        self.assertNotIn(None, taken)
        for giver in set(taken):
            self.assertGreaterEqual(found.count(giver), found.count("new"))
