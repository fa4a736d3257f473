"""How callers share a piece of work."""

import threading
import types
from concurrent.futures import ThreadPoolExecutor

import fixtures
import testtools

from volt.errors import DatabaseUnreachable
from volt.registry import batches as module
from volt.registry.batches import Batches

PATIENCE = 30  # seconds


class Work:
    """Answers items with their doubles once it may; remembers which came together."""

    def __init__(self):
        self.batches = []
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.error = ValueError("bad")

    def __call__(self, items):
        self.batches.append(list(items))
        self.begun.release()
        assert self.go.acquire(timeout=PATIENCE)
        if "bad" in items:
            raise self.error
        return [item * 2 for item in items]


class TestBatches(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.work = Work()
        self.pool = self.enterContext(ThreadPoolExecutor(16))

    def enterContext(self, manager):
        self.addCleanup(manager.__exit__, None, None, None)
        return manager.__enter__()

    def begin(self, batches, item):
        """Let a caller lead, and return once its work has begun."""
        first = self.pool.submit(batches.run, item)
        assert self.work.begun.acquire(timeout=PATIENCE)
        return first

    def queue(self, batches, items):
        """Let callers come one after another while others are worked on."""
        waiting = []
        for item in items:
            before = len(batches._waiting)
            waiting.append(self.pool.submit(batches.run, item))
            while len(batches._waiting) == before:
                threading.Event().wait(0)
        return waiting

    def test_those_who_come_meanwhile_go_together_in_their_order(self):
        batches = Batches(self.work, largest=10)
        first = self.begin(batches, 1)
        waiting = self.queue(batches, [2, 3, 4])
        self.work.go.release(2)
        assert [future.result(PATIENCE) for future in [first, *waiting]] == [2, 4, 6, 8]
        assert self.work.batches == [[1], [2, 3, 4]]

    def test_a_batch_has_a_largest_size(self):
        batches = Batches(self.work, largest=2)
        first = self.begin(batches, 1)
        waiting = self.queue(batches, [2, 3, 4])
        self.work.go.release(3)
        assert [future.result(PATIENCE) for future in [first, *waiting]] == [2, 4, 6, 8]
        assert self.work.batches == [[1], [2, 3], [4]]

    def test_who_leads_is_answered_with_its_own_batch_and_another_leads_the_next(self):
        batches = Batches(self.work, largest=2)
        first = self.begin(batches, 1)
        waiting = self.queue(batches, [2, 3, 4])
        for ended, expected in ([first], [2]), (waiting[:2], [4, 6]), (waiting[2:], [8]):
            self.work.go.release()
            assert [future.result(PATIENCE) for future in ended] == expected
        assert self.work.batches == [[1], [2, 3], [4]]

    def test_an_error_goes_to_those_alone_who_fail_by_themselves(self):
        batches = Batches(self.work, largest=3)
        first = self.begin(batches, 1)
        waiting = self.queue(batches, ["good", "bad", "fine", "late"])
        self.work.go.release(6)
        assert first.result(PATIENCE) == 2
        self.assertRaises(ValueError, waiting.pop(1).result, PATIENCE)
        told = [future.result(PATIENCE) for future in waiting]
        assert told == ["goodgood", "finefine", "latelate"]
        tried = self.work.batches
        assert tried == [[1], ["good", "bad", "fine"], ["good"], ["bad"], ["fine"], ["late"]]

    def test_while_the_database_is_away_nothing_is_tried_one_by_one(self):
        self.work.error = DatabaseUnreachable("the database does not answer")
        batches = Batches(self.work, largest=10)
        first = self.begin(batches, 1)
        waiting = self.queue(batches, ["good", "bad"])
        self.work.go.release(2)
        assert first.result(PATIENCE) == 2
        for future in waiting:
            self.assertRaises(DatabaseUnreachable, future.result, PATIENCE)
        assert self.work.batches == [[1], ["good", "bad"]]

    def test_nothing_is_kept_once_all_are_answered(self):
        batches = Batches(self.work, largest=2)
        self.work.go.release(1)
        assert batches.run(1) == 2
        assert not batches._waiting
        assert not batches._is_busy

    def test_a_batch_waits_for_those_who_were_answered(self):
        batches = Batches(self.work, largest=10, between=PATIENCE)
        first = self.begin(batches, 1)
        waiting = self.queue(batches, [2, 3])
        self.work.go.release(2)
        assert first.result(PATIENCE) == 2
        assert self.work.batches == [[1]]
        waiting.append(self.pool.submit(batches.run, 4))
        assert [future.result(PATIENCE) for future in waiting] == [4, 6, 8]
        assert self.work.batches == [[1], [2, 3, 4]]

    def test_who_comes_alone_waits_for_nobody(self):
        batches = Batches(self.work, largest=10, between=PATIENCE)
        self.work.go.release(3)
        waited = self.waited(batches)
        assert [batches.run(item) for item in (1, 2, 3)] == [2, 4, 6]
        assert waited == [True, True]

    def test_a_batch_waits_no_longer_than_it_may(self):
        # each batch looks at the clock before it begins, and when it ends
        clock = types.SimpleNamespace(monotonic=iter([7.0, 7.0, 7.25, 8.0]).__next__)
        self.useFixture(fixtures.MockPatchObject(module, "time", clock))
        batches = Batches(self.work, largest=10, between=1)
        waited = self.waited(batches)
        first = self.begin(batches, 1)
        waiting = self.queue(batches, [2, 3])
        self.work.go.release(2)
        assert [future.result(PATIENCE) for future in [first, *waiting]] == [2, 4, 6]
        assert waited == [0.75]

    def test_a_batch_that_is_full_waits_for_nobody(self):
        batches = Batches(self.work, largest=2, between=PATIENCE)
        first = self.begin(batches, 1)
        waiting = self.queue(batches, [2, 3])
        self.work.go.release(2)
        assert [future.result(PATIENCE) for future in [first, *waiting]] == [2, 4, 6]
        assert self.work.batches == [[1], [2, 3]]

    def waited(self, batches):
        """Return how long is waited for others, without waiting; True if they are there."""
        waited = []
        there = batches._all

        def wait(seconds):
            waited.append(there.is_set() or seconds)

        batches._all = types.SimpleNamespace(set=there.set, clear=there.clear, wait=wait)
        return waited
