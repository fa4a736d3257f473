"""Parts of a ring: as large as weights say, changed no more than has to be, and near if asked."""

from collections import Counter

import testtools
from hypothesis import given
from hypothesis import strategies as st

from planning.ring import v_nodes

HOSTS = [f"h{number:02}" for number in range(64)]
WEIGHTS = st.dictionaries(
    st.sampled_from(HOSTS), st.floats(0.01, 100), min_size=1, max_size=len(HOSTS)
)


class RoomTest(testtools.TestCase):
    @given(WEIGHTS)
    def test_who_has_more_traffic_has_no_more_room(self, traffic):
        room = v_nodes.by_room(traffic, 100.0)
        for host, own in traffic.items():
            for other, more in traffic.items():
                self.assertTrue(own > more or room[host] >= room[other])

    @given(WEIGHTS, st.floats(0.01, 1000))
    def test_room_is_filled_to_one_level(self, traffic, asked):
        room = v_nodes.by_room(traffic, asked)
        self.assertAlmostEqual(asked, sum(room.values()), delta=asked * 1e-6)
        levels = [traffic[host] + more for host, more in room.items() if more]
        self.assertLess(max(levels) - min(levels), 1e-6 * max(levels))
        for host, more in room.items():
            self.assertTrue(more or traffic[host] >= max(levels) * (1 - 1e-9))

    def test_equal_parts(self):
        counts = Counter(v_nodes.even(HOSTS[:7]))
        self.assertLessEqual(max(counts.values()) - min(counts.values()), 1)


class OwnerTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.owners = v_nodes.even(HOSTS)

    def asked(self, threshold, reader=0):
        """Return whom a reader asks for each region; hosts of one rack have the same last digit."""

        def distance(host):
            if host == HOSTS[reader]:
                return 0
            return 1 if int(host[1:]) % 10 == reader % 10 else 3

        return [
            v_nodes.owner(self.owners, region, distance, threshold)
            for region in range(2 * v_nodes.V_NODES)
        ]

    def test_it_is_the_owner_if_all_are_near_enough(self):
        self.assertEqual([*self.owners] * 2, self.asked(v_nodes.ANYWHERE))

    def test_who_is_too_far_away_is_not_asked(self):
        found = self.asked(v_nodes.OWN_RACK)
        near = set(HOSTS[0::10])
        self.assertEqual(near, set(found))
        self.assertTrue(
            all(
                one == owner
                for one, owner in zip(found, self.owners, strict=False)
                if owner in near
            )
        )
        counts = Counter(found)
        self.assertLess(max(counts.values()), 2 * len(found) / len(near))

    def test_a_host_asks_itself_at_least(self):
        self.assertEqual({HOSTS[0]}, set(self.asked(1)))
        owners = v_nodes.even(HOSTS[1:])
        self.assertEqual(owners[5], v_nodes.owner(owners, 5, lambda host: 3, 1))
