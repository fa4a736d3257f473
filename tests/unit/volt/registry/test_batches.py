"""How callers share a piece of work."""

import threading
from concurrent.futures import ThreadPoolExecutor

import testtools

from volt.errors import DatabaseUnreachable
from volt.registry.batches import Batches

PATIENCE = 30  # seconds


class Work:
    """Answers items with their doubles once it may; remembers which came together."""

    def __init__(self):
        self.batches = []
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.error = ValueError("bad")

    def __call__(self, key, items):
        self.batches.append((key, list(items)))
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

    def begin(self, batches, key, item):
        """Let a caller lead, and return once its work has begun."""
        first = self.pool.submit(batches.run, key, item)
        assert self.work.begun.acquire(timeout=PATIENCE)
        return first

    def queue(self, batches, key, items):
        """Let callers come one after another while others are worked on."""
        waiting = []
        for item in items:
            before = len(batches._waiting[key])
            waiting.append(self.pool.submit(batches.run, key, item))
            while len(batches._waiting[key]) == before:
                threading.Event().wait(0)
        return waiting

    def test_those_who_come_meanwhile_go_together_in_their_order(self):
        batches = Batches(self.work, largest=10)
        first = self.begin(batches, "x", 1)
        waiting = self.queue(batches, "x", [2, 3, 4])
        self.work.go.release(2)
        assert [future.result(PATIENCE) for future in [first, *waiting]] == [2, 4, 6, 8]
        assert self.work.batches == [("x", [1]), ("x", [2, 3, 4])]

    def test_a_batch_has_a_largest_size(self):
        batches = Batches(self.work, largest=2)
        first = self.begin(batches, "x", 1)
        waiting = self.queue(batches, "x", [2, 3, 4])
        self.work.go.release(3)
        assert [future.result(PATIENCE) for future in [first, *waiting]] == [2, 4, 6, 8]
        assert [items for _, items in self.work.batches] == [[1], [2, 3], [4]]

    def test_who_leads_is_answered_with_its_own_batch_and_another_leads_the_next(self):
        batches = Batches(self.work, largest=2)
        first = self.begin(batches, "x", 1)
        waiting = self.queue(batches, "x", [2, 3, 4])
        for ended, expected in ([first], [2]), (waiting[:2], [4, 6]), (waiting[2:], [8]):
            self.work.go.release()
            assert [future.result(PATIENCE) for future in ended] == expected
        assert [items for _, items in self.work.batches] == [[1], [2, 3], [4]]

    def test_other_keys_do_not_wait(self):
        batches = Batches(self.work, largest=10)
        first = self.begin(batches, "x", 1)
        second = self.begin(batches, "y", 2)
        self.work.go.release(2)
        assert (first.result(PATIENCE), second.result(PATIENCE)) == (2, 4)

    def test_an_error_goes_to_those_alone_who_fail_by_themselves(self):
        batches = Batches(self.work, largest=3)
        first = self.begin(batches, "x", 1)
        waiting = self.queue(batches, "x", ["good", "bad", "fine", "late"])
        self.work.go.release(6)
        assert first.result(PATIENCE) == 2
        self.assertRaises(ValueError, waiting.pop(1).result, PATIENCE)
        told = [future.result(PATIENCE) for future in waiting]
        assert told == ["goodgood", "finefine", "latelate"]
        tried = [items for _, items in self.work.batches]
        assert tried == [[1], ["good", "bad", "fine"], ["good"], ["bad"], ["fine"], ["late"]]

    def test_while_the_database_is_away_nothing_is_tried_one_by_one(self):
        self.work.error = DatabaseUnreachable("the database does not answer")
        batches = Batches(self.work, largest=10)
        first = self.begin(batches, "x", 1)
        waiting = self.queue(batches, "x", ["good", "bad"])
        self.work.go.release(2)
        assert first.result(PATIENCE) == 2
        for future in waiting:
            self.assertRaises(DatabaseUnreachable, future.result, PATIENCE)
        assert [items for _, items in self.work.batches] == [[1], ["good", "bad"]]

    def test_nothing_is_kept_once_all_are_answered(self):
        batches = Batches(self.work, largest=2)
        self.work.go.release(1)
        assert batches.run("x", 1) == 2
        assert not batches._waiting
        assert not batches._busy
