"""A profile becomes dashes: one a piece, as long as its band."""

import testtools

from virtman.cmd.plot import Dash, dashes
from virtman.model.profile import Group, Profile


class DashesTest(testtools.TestCase):
    def test_each_piece_is_a_dash_and_what_more_runs_read_lies_on_top(self):
        groups = (Group(0, 4, (0, 32)), Group(3, 1, (8,)))
        self.assertEqual(
            [Dash(1.5, 2.0, 0.5, 0.25), Dash(0.0, 0.5, 0.0, 1.0), Dash(0.0, 0.5, 2.0, 1.0)],
            dashes(Profile("0f" * 32, 65536, 4, 500, groups)),
        )

    def test_where_nothing_was_read_there_is_none(self):
        self.assertEqual([], dashes(Profile("0f" * 32, 65536, 0, 500, ())))
