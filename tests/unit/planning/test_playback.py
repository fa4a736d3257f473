"""Curves of what is read by when."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from planning import playback
from planning.errors import Invalid
from planning.playback import Playback
from virtman.model.profile import Group, Profile


class PlaybackTest(testtools.TestCase):
    def test_what_is_read_by_when_and_when_what_is_read(self):
        curve = Playback((0.0, 2.0, 2.0, 4.0), (0.0, 10.0, 30.0, 30.0))
        self.assertEqual((30.0, 4.0), (curve.total, curve.end))
        self.assertEqual([0.0, 5.0, 30.0, 30.0], [curve.read(t) for t in (-1, 1, 2, 9)])
        self.assertEqual([0.0, 1.0, 2.0, 2.0], [curve.when(b) for b in (0, 5, 10, 30)])
        self.assertEqual((3.0, 5.0, 5.0, 7.0), curve.later(3.0).seconds)
        self.assertEqual((0.0, 5.0, 5.0, 10.0), curve.stretched(10.0).seconds)

    def test_what_cannot_be_is_refused(self):
        for seconds, amounts in (
            ((), ()),
            ((0.0,), (0.0, 1.0)),
            ((0.0, 1.0, 0.5), (0.0, 1.0, 2.0)),
            ((0.0, 1.0), (0.0, -1.0)),
            ((0.0, float("nan")), (0.0, 1.0)),
            ((-1.0, 1.0), (0.0, 1.0)),
            ((0.0, 1.0), (1.0, 2.0)),
        ):
            self.assertRaises(Invalid, Playback, seconds, amounts)
        self.assertRaises(Invalid, playback.regular, 0, 20, 4096)
        self.assertRaises(Invalid, playback.regular, 1, -1, 4096)
        self.assertRaises(Invalid, playback.regular, 1, 1, 0)
        self.assertRaises(Invalid, playback.regular(1, 0, 1).stretched, 2)

    @given(st.integers(1, 100_000), st.floats(0, 100), st.integers(1, 5_000))
    def test_a_regular_boot_reads_all_in_its_time(self, amount, seconds, piece):
        curve = playback.regular(amount, seconds, piece)
        self.assertAlmostEqual(amount, curve.total, delta=1e-6 * amount)
        self.assertAlmostEqual(seconds, curve.end, delta=1e-6)

    def test_a_profile_is_read_band_by_band_as_often_as_boots_did(self):
        groups = (Group(0, 4, (1, 2)), Group(0, 2, (9,)), Group(3, 1, (4, 5)))
        curve = playback.recorded(Profile("ab" * 32, 65536, 4, 500, groups))
        self.assertAlmostEqual(2.5 * 65536, curve.read(0.5))
        self.assertAlmostEqual(2.5 * 65536, curve.read(1.6))
        self.assertAlmostEqual(3 * 65536, curve.total)
        self.assertAlmostEqual(2.0, curve.end)

    def test_a_profile_without_pieces_is_refused(self):
        self.assertRaises(Invalid, playback.recorded, Profile("ab" * 32, 65536, 1, 500, ()))
