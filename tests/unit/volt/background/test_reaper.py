"""Which hosts are expired, and when."""

import testtools

from volt.background.reaper import BATCH, EVENTS, MANY, Reaper


class Hosts:
    """Hosts and when they were last seen, in memory."""

    def __init__(self, **seen):
        self.seen = seen
        self.events = 0
        self.late = {}
        self.noted = []

    def heard(self):
        return len(self.seen), max(self.seen.values())

    def note(self, kind, image, host, detail):
        self.noted.append((kind, detail))

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
        hosts = Hosts(alive=16, **{f"h{number}": 0 for number in range(BATCH + 5)})
        reaper = Reaper(hosts, expiry=15)
        reaper.reap(16)
        assert len(hosts.seen) == 6
        reaper.reap(17)
        assert hosts.seen == {"alive": 16}

    def test_old_events_are_forgotten_now_and_then(self):
        hosts = Hosts()
        reaper = Reaper(hosts, expiry=15)
        reaper.reap(10)
        assert hosts.events == 0
        reaper.reap(70)
        assert hosts.events == EVENTS


class TestDeafness(testtools.TestCase):
    """Many hosts report every five ticks, and Volt hears none of them for a while."""

    def setUp(self):
        super().setUp()
        self.hosts = Hosts(**{f"h{number}": 0 for number in range(MANY + 2)})
        self.reaper = Reaper(self.hosts, expiry=15)
        self.tick = 0

    def go(self, ticks, *speaking):
        """Let time pass in which these hosts report."""
        for _ in range(ticks):
            self.tick += 1
            for number, host in enumerate(speaking):
                if (self.tick + number) % 5 == 0:
                    self.hosts.seen[host] = self.tick
            self.reaper.reap(self.tick)

    def test_nobody_is_expired_while_nobody_is_heard(self):
        everybody = list(self.hosts.seen)
        self.go(20, *everybody)
        self.go(1000)
        assert list(self.hosts.seen) == everybody
        assert [kind for kind, _ in self.hosts.noted] == ["deaf"]
        self.go(100, *everybody)
        assert list(self.hosts.seen) == everybody
        assert len(self.hosts.noted) == 1

    def test_who_does_not_come_back_has_its_time_again(self):
        alive, *others = self.hosts.seen
        self.go(20, alive, *others)
        self.go(100)
        self.go(15, alive)
        assert set(others) < self.hosts.seen.keys()
        self.go(10, alive)
        assert list(self.hosts.seen) == [alive]

    def test_each_time_is_told(self):
        everybody = list(self.hosts.seen)
        for _ in range(2):
            self.go(50, *everybody)
            self.go(50)
        assert len(self.hosts.noted) == 2

    def test_one_that_is_heard_is_enough(self):
        alive, *_ = self.hosts.seen
        self.go(20, alive)
        assert list(self.hosts.seen) == [alive]

    def test_few_may_all_have_died(self):
        for _ in range(len(self.hosts.seen) - MANY + 1):
            self.hosts.seen.popitem()
        self.go(20)
        assert not self.hosts.seen
