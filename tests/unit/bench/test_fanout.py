"""What ``python -m bench fanout`` refuses before it starts nodes."""

import testtools
from click.testing import CliRunner

from bench.__main__ import main


class RefusedTest(testtools.TestCase):
    def test_a_parent_is_killed_only_while_all_read_in_order(self):
        for words in (("--workload", "replay"), ("--link-rate", "none")):
            done = CliRunner().invoke(main, ["fanout", "--kill", *words])
            self.assertEqual(2, done.exit_code)
            self.assertIn("is of what is read in order", done.output)
