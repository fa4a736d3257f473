"""Policies of prefetch on the runs that come with VirtMan: what contributor/simulation.rst says."""

import testtools

from planning.replay import traces
from planning.replay.run import average
from virtman.model.buffering import Connection

SLOW = Connection(rate=7.2e6 / 8, round_trip_s=0.12)
FAST = Connection(rate=25e6 / 8, round_trip_s=0.001)


class PrefetchTest(testtools.TestCase):
    def test_clusters_miss_little_and_fetch_little_for_nothing(self):
        for trace in traces.recorded():
            for line in (SLOW, FAST):
                found = average(trace, "clusters", line)
                self.assertLess(found.miss_rate, 0.022, trace.workload)
                self.assertLess(found.fetch_ratio, 1.7, trace.workload)

    def test_without_a_pause_vms_wait_less_than_with_a_profile(self):
        for trace in traces.recorded():
            for line in (SLOW, FAST):
                found = {
                    name: average(trace, name, line) for name in ("demand", "profile", "stream")
                }
                self.assertLess(found["stream"].waited_s, found["profile"].waited_s)
                self.assertLess(found["profile"].waited_s, found["demand"].waited_s)
