"""How often a worker has the database look at its tables again."""

import testtools

from volt.db import analyze


class DueTest(testtools.TestCase):
    def looks(self, hosts, at_once):
        """Return how many hosts there were whenever the tables were looked at."""
        counts = range(0, hosts, at_once)
        return [one + at_once for one in counts if analyze.is_due(one, one + at_once)]

    def test_it_is_each_time_that_there_are_four_times_as_many(self):
        assert self.looks(10_000, 1) == [32, 128, 512, 2048, 8192]
        assert self.looks(10_000, 64) == [64, 128, 512, 2048, 8192]

    def test_few_hosts_need_none(self):
        assert self.looks(analyze.SMALLEST - 1, 1) == []
