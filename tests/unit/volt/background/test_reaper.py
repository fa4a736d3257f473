"""Which hosts are expired, and when."""

import testtools

from volt import metrics
from volt.background.brake import FEW, HOLD, MANY
from volt.background.reaper import BATCH, EVENTS, Reaper


class Hosts:
    """Hosts and when they were last seen, in memory."""

    def __init__(self, **seen):
        self.seen = seen
        self.events = 0
        self.late = {}
        self.noted = []

    def silence(self, before):
        return len(self.seen), sum(seen < before for seen in self.seen.values())

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
        alive = {f"a{number}": 16 for number in range(BATCH + 5)}
        hosts = Hosts(**alive, **{f"h{number}": 0 for number in range(BATCH + 5)})
        reaper = Reaper(hosts, expiry=15)
        reaper.reap(16)
        assert len(hosts.seen) == len(alive) + 5
        reaper.reap(17)
        assert hosts.seen == alive

    def test_old_events_are_forgotten_now_and_then(self):
        hosts = Hosts()
        reaper = Reaper(hosts, expiry=15)
        reaper.reap(10)
        assert hosts.events == 0
        reaper.reap(70)
        assert hosts.events == EVENTS


class DeafCase(testtools.TestCase):
    """Hosts report every five ticks."""

    count = MANY + 2

    def setUp(self):
        super().setUp()
        self.hosts = Hosts(**{f"h{number:02}": 0 for number in range(self.count)})
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


class TestDeafness(DeafCase):
    """Volt hears none of its hosts for a while."""

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


class TestMostSilent(DeafCase):
    """Volt hears a few of its hosts, such as the one on its own machine."""

    count = 30

    def setUp(self):
        super().setUp()
        self.everybody = list(self.hosts.seen)
        self.near = self.everybody[:3]
        self.go(20, *self.everybody)

    def held(self):
        return metrics.HELD.collect()[0].samples[0].value

    def test_none_is_expired_while_most_are_silent(self):
        self.go(1000, *self.near)
        assert list(self.hosts.seen) == self.everybody
        [(kind, detail)] = self.hosts.noted
        assert (kind, detail.split(" hosts")[0]) == ("deaf", "27 of 30")
        assert self.held() == 27

    def test_all_keep_their_places_when_they_are_back(self):
        self.go(1000, *self.near)
        self.go(100, *self.everybody)
        assert list(self.hosts.seen) == self.everybody
        assert self.held() == 0

    def test_those_that_do_not_come_back_with_the_others_have_their_time_again(self):
        self.go(1000, *self.near)
        back = self.everybody[:20]
        self.go(15, *back)
        assert list(self.hosts.seen) == self.everybody
        self.go(10, *back)
        assert list(self.hosts.seen) == back

    def test_each_time_is_told_however_soon_all_are_back(self):
        for _ in range(2):
            self.go(50, *self.near)
            self.hosts.seen = dict.fromkeys(self.everybody, self.tick)
            self.go(50, *self.everybody)
        assert [kind for kind, _ in self.hosts.noted] == ["deaf", "deaf"]

    def test_half_of_them_die_as_a_rack_does(self):
        living = self.everybody[15:]
        self.go(17, *living)
        assert list(self.hosts.seen) == living
        assert self.hosts.noted == []

    def test_hosts_that_die_one_after_the_other_are_expired_each_in_its_time(self):
        living = list(self.everybody)
        while len(living) > 2:
            living.pop()
            self.go(2, *living)
            assert all(self.tick - seen <= 15 for seen in self.hosts.seen.values())
        assert self.hosts.noted == []

    def test_after_a_day_they_are_dead_after_all(self):
        self.go(HOLD + 10, *self.near)
        assert list(self.hosts.seen) == self.everybody
        self.go(10, *self.near)
        assert list(self.hosts.seen) == self.near
        self.go(20)  # of these not one is heard again
        assert list(self.hosts.seen) == self.near
        assert [kind for kind, _ in self.hosts.noted] == ["deaf", "deaf"]

    def test_a_day_in_which_none_was_heard_does_not_count(self):
        self.go(HOLD + 100)
        self.go(100, *self.near)
        assert list(self.hosts.seen) == self.everybody

    def test_when_an_operator_expired_the_dead_all_is_as_ever(self):
        self.go(100, *self.near)
        self.hosts.expire(self.everybody[3:], self.tick)
        self.go(20, *self.near)
        assert self.held() == 0
        self.go(20, *self.near[1:])
        assert list(self.hosts.seen) == self.near[1:]

    def test_a_worker_that_lost_the_clock_holds_nobody(self):
        self.go(100, *self.near)
        self.reaper.rest()
        assert self.held() == 0


class TestFew(DeafCase):
    count = FEW + 1

    def test_a_small_site_of_which_most_died_expires_them_in_the_usual_time(self):
        alive, *others = self.hosts.seen
        self.go(20, alive, *others)
        self.go(20, alive)
        assert list(self.hosts.seen) == [alive]
        assert self.hosts.noted == []
