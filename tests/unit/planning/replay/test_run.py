"""What a VM waits for, by policy."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from planning.replay import policy
from planning.replay.run import average, replay
from planning.replay.traces import Trace
from virtman.model.buffering import Connection

PIECE = 4096
LINE = Connection(rate=4096, round_trip_s=1.0)  # a piece takes a second, and one more
MENU = {1: 0.0, 2: 0.0}
ONE = MENU | {number: 60.0 for number in range(10, 20)}
OTHER = MENU | {number: 60.0 for number in range(20, 30)}

_runs = st.lists(
    st.dictionaries(st.integers(0, 20), st.integers(0, 200).map(float), min_size=1, max_size=15),
    min_size=2,
    max_size=4,
)


def _replay(run, name, known):
    return replay(run, policy.make(name, known, PIECE, LINE), PIECE, LINE)


class ReplayTest(testtools.TestCase):
    def test_with_nothing_ahead_each_piece_is_waited_for(self):
        found = _replay(MENU | {3: 10.0}, "demand", [ONE])
        self.assertEqual((1.0, 1.0, 6.0), (found.miss_rate, found.fetch_ratio, found.waited_s))
        self.assertEqual((16.0, 6 / 16), (found.seconds, found.buffering_ratio))
        # both pieces of the menu are one stop, as the VM did nothing in between
        self.assertEqual((60 * 2 / 16, 4.0), (found.stops, found.longest_s))

    def test_in_order_pieces_come_while_the_vm_does_something_else(self):
        found = _replay(ONE, "profile", [ONE, ONE])
        # only the first is a miss: it was not on its way yet
        self.assertEqual((1 / 12, 1.0, 3.0), (found.miss_rate, found.fetch_ratio, found.waited_s))

    def test_the_union_brings_what_a_run_does_not_need(self):
        found = _replay(ONE, "union", [ONE, OTHER, OTHER])
        self.assertEqual((1 / 12, 22 / 12), (found.miss_rate, found.fetch_ratio))
        found = _replay(ONE, "profile", [ONE, OTHER, OTHER])
        self.assertEqual((11 / 12, 22 / 12), (found.miss_rate, found.fetch_ratio))

    def test_a_miss_brings_its_cluster_and_nothing_that_is_unlikely(self):
        many = MENU | {number: 60.0 for number in range(30, 50)}
        found = _replay(many, "clusters", [many, ONE, ONE, ONE])
        # 12 of 32 pieces are in smaller clusters than the twenty, which one of four runs read; ten
        # pieces that three of four read came for nothing
        self.assertEqual((2 / 22, 32 / 22), (found.miss_rate, found.fetch_ratio))
        self.assertEqual(3.0 + 21.0, found.waited_s)
        self.assertEqual(21.0, found.longest_s)

    def test_what_always_follows_streams_meanwhile(self):
        found = _replay(ONE, "clusters", [ONE, ONE])
        self.assertEqual((1 / 12, 1.0, 3.0), (found.miss_rate, found.fetch_ratio, found.waited_s))

    def test_what_is_likely_at_the_start_streams_before_anything_is_missed(self):
        late = {number: second + 30.0 for number, second in ONE.items()}
        found = _replay(late, "stream", [late, late])
        self.assertEqual((0.0, 1.0, 0.0), (found.miss_rate, found.fetch_ratio, found.waited_s))
        found = _replay(late, "clusters", [late, late])
        self.assertEqual(1 / 12, found.miss_rate)

    def test_the_vm_waits_once_if_the_line_is_too_slow(self):
        run = MENU | {number: 5.0 for number in range(10, 20)}
        found = _replay(run, "clusters", [run, run])
        # 12 pieces, of which the line brings five within five seconds
        self.assertEqual((1 / 12, 8.0), (found.miss_rate, found.waited_s))
        self.assertEqual(8.0, found.longest_s)

    def test_a_hint_brings_what_follows_without_a_pause(self):
        level = MENU | {10: 130.0} | {number: 200.0 for number in range(20, 40)}
        known = [level, MENU, MENU, MENU]
        # the level is too unlikely after the menu, but follows piece 10, which came with the menu
        found = _replay(level, "clusters", known)
        self.assertEqual((1 / 23, 1.0, 3.0), (found.miss_rate, found.fetch_ratio, found.waited_s))

    def test_runs_that_are_left_out_are_not_known(self):
        trace = Trace("menu", PIECE, (MENU, {7: 0.0}))
        found = average(trace, "clusters", LINE)
        self.assertEqual(1.0, found.miss_rate)
        self.assertEqual(1.5 * PIECE, found.accessed)
        self.assertEqual(1.0, found.fetch_ratio)

    @given(_runs, st.sampled_from(policy.NAMES))
    def test_whatever_is_known_a_run_ends(self, runs, name):
        found = _replay(runs[0], name, runs[1:])
        self.assertTrue(0 <= found.miss_rate <= 1)
        self.assertTrue(found.fetched >= found.accessed or found.waited_s == 0)
        self.assertTrue(found.seconds >= max(runs[0].values()))
        self.assertTrue(0 <= found.longest_s <= found.waited_s <= found.seconds)

    @given(_runs)
    def test_what_is_the_same_each_time_is_fetched_once_and_missed_once(self, runs):
        found = _replay(runs[0], "clusters", runs[:1] * 3)
        self.assertEqual(1 / len(runs[0]), found.miss_rate)
        self.assertEqual(1.0, found.fetch_ratio)
