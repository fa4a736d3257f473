"""Which hosts are expired, and when."""

import testtools

from volt.reaper import BATCH, EVENTS, Reaper


class Hosts:
    """Hosts and when they were last seen, in memory."""

    def __init__(self, **seen):
        self.seen = seen
        self.events = 0
        self.late = {}

    def silent(self, before, limit):
        found = [name for name, seen in self.seen.items() if seen < before][:limit]
        self.seen |= self.late  # who reports just now
        return found

    def expire(self, names, before):
        gone = [name for name in names if self.seen[name] < before]
        for name in gone:
            del self.seen[name]
        return len(gone)

    def prune_events(self, keep):
        self.events = keep


class TestReaper(testtools.TestCase):
    def test_who_was_seen_within_the_expiry_stays(self):
        hosts = Hosts(early=4, last=5, present=20)
        Reaper(hosts, expiry=15).reap(20)
        assert hosts.seen == {"last": 5, "present": 20}

    def test_who_reports_at_the_last_moment_stays(self):
        hosts = Hosts(a=1, b=1)
        hosts.late = {"a": 20}
        Reaper(hosts, expiry=15).reap(20)
        assert hosts.seen == {"a": 20}

    def test_a_crowd_goes_batch_by_batch(self):
        hosts = Hosts(**{f"h{number}": 0 for number in range(BATCH + 5)})
        reaper = Reaper(hosts, expiry=15)
        reaper.reap(16)
        assert len(hosts.seen) == 5
        reaper.reap(17)
        assert not hosts.seen

    def test_old_events_are_forgotten_now_and_then(self):
        hosts = Hosts()
        reaper = Reaper(hosts, expiry=15)
        reaper.reap(10)
        assert hosts.events == 0
        reaper.reap(70)
        assert hosts.events == EVENTS
