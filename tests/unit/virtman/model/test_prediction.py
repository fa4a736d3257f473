"""What is predicted from which clusters runs read after which."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.model.clusters import Cluster, clusters
from virtman.model.prediction import Prediction, following

_runs = st.lists(
    st.dictionaries(st.integers(0, 30), st.integers(0, 90).map(float), max_size=20),
    min_size=1,
    max_size=5,
)

MENU = Cluster((1, 2), (0.0, 0.0, 0.0, 0.0))
LEVEL = Cluster(tuple(range(100, 160)), (10.0, 20.0, 15.0, None))  # 60 pieces, in 3 of 4
SCENE = Cluster(tuple(range(200, 230)), (30.0, None, None, None))  # 30 pieces, in 1 of 4
SOUND = Cluster((300,), (None, 40.0, None, None))  # one piece, in 1 of 4


class PredictionTest(testtools.TestCase):
    def predicted(self, piece, **given):
        found = Prediction((MENU, LEVEL, SCENE, SOUND), **given).after(piece)
        return [(one.cluster, one.after_s) for one in found]

    def test_what_is_likely_enough_for_its_size_is_fetched(self):
        self.assertEqual(
            [(MENU, 0.0), (LEVEL, 10.0), (SCENE, 30.0), (SOUND, 40.0)], self.predicted(1)
        )

    def test_what_is_large_has_to_be_likely(self):
        large = Cluster(tuple(range(400, 900)), (50.0, 50.0, 50.0, 50.0))
        rare = Cluster(tuple(range(900, 960)), (60.0, None, None, None))
        scene = Cluster(tuple(range(1000, 1050)), (70.0, 70.0, 70.0, None))
        prediction = Prediction((MENU, large, rare, scene))
        # 52 of 612 pieces are in clusters smaller than the rare one, and 112 smaller than the large
        self.assertEqual([MENU, large, rare, scene], [one.cluster for one in prediction.after(2)])
        rows = Cluster(tuple(range(1100, 1159)), (80.0,) * 4)
        prediction = Prediction((MENU, rare, scene, rows))
        # a quarter of the runs read the rare one; 111 of 171 pieces are in smaller ones
        self.assertEqual([MENU, scene, rows], [one.cluster for one in prediction.after(2)])

    def test_the_share_of_pieces_in_smaller_clusters(self):
        prediction = Prediction((MENU, LEVEL, SCENE, SOUND))
        self.assertEqual(
            [0, 1 / 186, 2 / 93, 18 / 93, 63 / 93, 1],
            [prediction.percentile(size) for size in (0, 1, 2, 30, 60, 61)],
        )

    def test_what_hardly_any_run_read_is_left_out_though_it_is_small(self):
        rows = tuple(
            Cluster((500 + number,), tuple(40.0 if run == number else None for run in range(4)))
            for number in range(4)
        )
        menu = Cluster((1,), (0.0,) * 4)
        # each is in one of four runs; half of the five pieces are in clusters as small, or in none
        self.assertEqual([menu], [one.cluster for one in Prediction((menu, *rows)).after(1)])

    def test_of_several_pieces_the_soonest_counts(self):
        found = Prediction((MENU, LEVEL, SCENE, SOUND)).after(1, 100, 2)
        self.assertEqual(
            [(MENU, 0.0), (LEVEL, 0.0), (SCENE, 20.0), (SOUND, 20.0)],
            [(one.cluster, one.after_s) for one in found],
        )

    def test_at_the_start_what_is_likely_then_is_fetched(self):
        found = Prediction((MENU, LEVEL, SCENE, SOUND), window_s=30.0).begin()
        self.assertEqual(
            [(MENU, 0.0), (LEVEL, 10.0), (SCENE, 30.0)],
            [(one.cluster, one.after_s) for one in found],
        )
        self.assertEqual((), Prediction(()).begin())

    def test_what_was_read_before_does_not_follow(self):
        self.assertEqual([(SCENE, 0.0)], self.predicted(200))

    def test_what_comes_after_the_window_is_left_out(self):
        self.assertEqual([(MENU, 0.0), (LEVEL, 10.0)], self.predicted(1, window_s=10.0))

    def test_what_no_run_read_predicts_nothing(self):
        self.assertEqual([], self.predicted(5000))

    def test_the_soonest_of_all_runs_counts(self):
        self.assertEqual([10.0, 20.0, 15.0], following(MENU, LEVEL))
        self.assertEqual([], following(SCENE, SOUND))

    @given(_runs)
    def test_probabilities_are_shares(self, runs):
        found = clusters(runs)
        prediction = Prediction(found)
        for one in found:
            read = sum(begin is not None for begin in one.begins)
            self.assertTrue(0 <= prediction.percentile(len(one.pieces)) < 1)
            self.assertEqual(read, len(following(one, one)))
            self.assertTrue(all(0 <= len(following(one, other)) <= read for other in found))

    @given(_runs)
    def test_what_always_follows_is_fetched_and_in_order(self, runs):
        found = clusters(runs)
        prediction = Prediction(found)
        for one in found:
            coming = prediction.after(one.pieces[0])
            self.assertEqual(one, coming[0].cluster)
            self.assertEqual(sorted(each.after_s for each in coming), [c.after_s for c in coming])
            those = [each.cluster for each in coming]
            self.assertEqual(len(set(those)), len(those))
            for other in found:
                if len(following(one, other)) == len(following(one, one)):
                    self.assertIn(other, those)

    @given(_runs.map(lambda runs: runs[:1]), st.integers(2, 4))
    def test_equal_runs_predict_all_that_follows(self, runs, count):
        found = clusters(runs * count)
        prediction = Prediction(found)
        for place, one in enumerate(found):
            those = {each.cluster for each in prediction.after(one.pieces[0])}
            self.assertTrue(those >= set(found[place:]))
