"""Time-outs of the simulation are those of the agents."""

import testtools

from planning.simulation import run, scenario
from virtman.background import liveness
from virtman.image import prefetch


class TimeoutTest(testtools.TestCase):
    def test_a_dead_parent_is_given_up_as_agents_do(self):
        # silent for so long, and then seen at the next look
        self.assertEqual(liveness._SILENCE + liveness._INTERVAL, scenario.NOTICE_S)

    def test_windows_follow_vms_as_often_as_in_agents(self):
        self.assertEqual(prefetch.LOOK, run._LOOK)
