"""Clusters of what runs read."""

import itertools

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.model.clusters import clusters

_runs = st.lists(
    st.dictionaries(st.integers(0, 30), st.integers(0, 40).map(float), max_size=20), max_size=5
)


def _found(runs, interval_s=2.0):
    return {frozenset(one.pieces) for one in clusters(runs, interval_s)}


def _as_in_the_paper(runs, interval_s):
    """vTube's words one by one: bursts of each run; two that overlap become three; split again."""
    groups = set()
    for run in runs:
        groups |= _bursts(set(run), run, interval_s)
    while True:
        overlapping = next(
            ((one, other) for one, other in itertools.combinations(groups, 2) if one & other), None
        )
        if overlapping is None:
            again = set()
            for group in groups:
                parts = {group}
                for run in runs:
                    parts = set().union(*(_bursts(part, run, interval_s) for part in parts))
                again |= parts
            if again == groups:
                return groups
            groups = again
            continue
        one, other = overlapping
        groups = groups - {one, other} | {one & other, one - other, other - one} - {frozenset()}


def _bursts(group, run, interval_s):
    """Return parts between pauses; what the run did not read is a part of its own."""
    found, last = [], None
    for piece in sorted((piece for piece in group if piece in run), key=run.__getitem__):
        if last is None or run[piece] - last > interval_s:
            found.append(set())
        found[-1].add(piece)
        last = run[piece]
    return {frozenset(one) for one in [*found, set(group) - set(run)] if one}


class ClustersTest(testtools.TestCase):
    def test_a_run_is_split_where_it_pauses(self):
        """As in vTube's Figure 4."""
        run = {1: 0.0, 2: 1.5, 3: 3.5, 4: 5.6, 5: 6.0, 6: 20.0}
        self.assertEqual({frozenset({1, 2, 3}), frozenset({4, 5}), frozenset({6})}, _found([run]))

    def test_what_overlaps_becomes_three(self):
        """As in vTube's Figure 5: the intersection, and what is only in one of the two."""
        one = {1: 0.0, 2: 0.5, 3: 1.0, 4: 1.5}
        other = {3: 30.0, 4: 30.5, 5: 31.0}
        self.assertEqual(
            {frozenset({1, 2}), frozenset({3, 4}), frozenset({5})}, _found([one, other])
        )

    def test_what_remains_is_split_again(self):
        """Without 2, which only one run read, 1 and 3 are too far apart there."""
        one = {1: 0.0, 2: 1.5, 3: 3.0}
        other = {1: 5.0, 3: 5.0}
        self.assertEqual({frozenset({1}), frozenset({2}), frozenset({3})}, _found([one, other]))

    def test_what_one_run_splits_others_look_at_again(self):
        """In the first run, 1 to 3 are one burst thanks to 2, which the second has elsewhere."""
        one = {1: 0.0, 2: 1.5, 3: 3.0}
        other = {1: 5.0, 3: 5.0, 2: 50.0}
        self.assertEqual({frozenset({1}), frozenset({2}), frozenset({3})}, _found([one, other]))

    def test_when_each_run_read_a_cluster(self):
        first, second = clusters([{7: 4.0, 9: 3.0, 1: 8.0}, {1: 2.0}])
        self.assertEqual(((9, 7), (3.0, None)), (first.pieces, first.begins))
        self.assertEqual(((1,), (8.0, 2.0)), (second.pieces, second.begins))

    def test_nothing_has_no_clusters(self):
        self.assertEqual((), clusters([]))
        self.assertEqual((), clusters([{}, {}]))

    @given(_runs, st.integers(0, 5).map(float))
    def test_each_piece_that_was_read_is_in_one_cluster(self, runs, interval_s):
        pieces = [piece for one in clusters(runs, interval_s) for piece in one.pieces]
        self.assertEqual(len(set(pieces)), len(pieces))
        self.assertEqual(set().union(*runs), set(pieces))

    @given(_runs, st.integers(0, 5).map(float))
    def test_runs_read_all_of_a_cluster_without_a_pause_or_nothing(self, runs, interval_s):
        for one in clusters(runs, interval_s):
            for run, begin in zip(runs, one.begins, strict=True):
                times = sorted(run[piece] for piece in one.pieces if piece in run)
                self.assertIn(len(times), (0, len(one.pieces)))
                self.assertEqual(min(times, default=None), begin)
                self.assertTrue(all(b - a <= interval_s for a, b in itertools.pairwise(times)))

    @given(_runs, st.integers(0, 5).map(float))
    def test_they_are_those_of_the_papers_steps(self, runs, interval_s):
        self.assertEqual(_as_in_the_paper(runs, interval_s), _found(runs, interval_s))

    @given(_runs, st.randoms())
    def test_the_order_of_runs_does_not_matter(self, runs, dice):
        shuffled = list(runs)
        dice.shuffle(shuffled)
        self.assertEqual(_found(runs), _found(shuffled))

    @given(_runs, st.integers(1, 3))
    def test_equal_runs_have_the_clusters_of_one(self, runs, count):
        for run in runs:
            self.assertEqual(_found([run]), _found([run] * count))
