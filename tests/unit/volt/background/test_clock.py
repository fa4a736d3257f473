"""Who counts Volt's time."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from volt.background.clock import PATIENCE, Clock
from volt.db.clock import Reading


class Row:
    """The row of the clock, in memory."""

    def __init__(self):
        self.reading = Reading("", 0)
        self.away = False

    def read(self):
        if self.away:
            raise OSError("the database is away")
        return self.reading

    def move(self, seen, to):
        if self.read() != seen:
            return False
        self.reading = to
        return True


class Time:
    """Seconds of one machine; they go on when the test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class ClockCase(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.row, self.time = Row(), Time()
        self.a, self.b, self.c = (Clock(self.row, name, self.time) for name in "abc")

    def go(self, seconds, *clocks):
        """Let seconds pass in which these workers run."""
        for _ in range(seconds):
            self.time.now += 1
            for clock in clocks:
                clock.beat()


class TestClock(ClockCase):
    def test_the_first_counts_at_once_and_alone(self):
        self.go(10, self.a, self.b, self.c)
        assert self.row.reading == Reading("a", 10)
        assert (self.a.tick, self.b.tick, self.c.tick) == (10, None, None)

    def test_the_tick_is_known_while_the_next_is_counted(self):
        self.go(3, self.a)
        known = []
        move = self.row.move
        self.row.move = lambda seen, to: known.append(self.a.tick) or move(seen, to)
        self.go(2, self.a)
        assert known == [3, 4]

    def test_one_of_the_others_takes_over_from_a_dead_one(self):
        self.go(10, self.a, self.b, self.c)
        self.go(int(PATIENCE) + 1, self.b, self.c)
        assert self.row.reading.holder == "b"
        self.go(5, self.b, self.c)
        assert (self.b.tick, self.c.tick) == (self.row.reading.tick, None)

    def test_one_that_stops_in_good_order_is_followed_at_once(self):
        self.go(10, self.a, self.b)
        self.a.release()
        self.go(1, self.b)
        assert self.row.reading == Reading("b", 11)

    def test_a_suspended_holder_does_not_jump(self):
        self.go(10, self.a)
        self.time.now += 3600
        self.a.beat()
        assert self.row.reading == Reading("a", 11)

    def test_a_holder_that_was_suspended_for_long_finds_that_it_lost(self):
        self.go(10, self.a, self.b)
        self.go(20, self.b)
        before = self.row.reading
        self.a.beat()
        assert self.a.tick is None
        assert self.row.reading == before

    def test_a_suspended_watcher_takes_nothing_from_a_holder_that_counts(self):
        self.go(10, self.a, self.b)
        self.go(20, self.a)
        self.b.beat()
        assert self.row.reading == Reading("a", 30)

    def test_who_cannot_reach_the_database_does_not_hold_the_clock(self):
        self.go(10, self.a)
        self.row.away = True
        self.assertRaises(OSError, self.a.beat)
        assert self.a.tick is None
        self.row.away = False
        self.go(int(PATIENCE) + 1, self.a)
        assert self.a.tick == 11

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 10)), max_size=80))
    def test_in_any_order_of_events_it_goes_on_by_single_ticks(self, events):
        row, time = Row(), Time()
        clocks = {name: Clock(row, name, time) for name in "abc"}
        for name, pause in events:
            before = row.reading
            time.now += pause
            clocks[name].beat()
            assert row.reading.tick - before.tick in (0, 1)
            assert row.reading == before or row.reading.holder == name
            held = clocks[name].tick
            assert held is None or row.reading == Reading(name, held)
