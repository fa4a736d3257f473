"""Some things are done at once; what fails keeps the rest from being begun."""

import threading

import testtools

from virtman.cmd.at_once import at_once

THINGS = range(8)


class AtOnceTest(testtools.TestCase):
    def test_so_many_are_under_way_at_once_and_no_more(self):
        met, busy, most = threading.Barrier(4, timeout=30), [], []

        def work(thing):
            busy.append(thing)
            most.append(len(busy))
            met.wait()
            busy.remove(thing)
            return 2 * thing

        self.assertEqual([2 * one for one in THINGS], sorted(at_once(work, THINGS, 4)))
        self.assertEqual(4, max(most))

    def test_one_alone_is_done_where_it_was_asked_for(self):
        found = at_once(lambda _: threading.current_thread(), ["one"], 4)
        self.assertEqual([threading.current_thread()], list(found))

    def test_after_one_that_fails_no_other_is_begun_and_those_under_way_end(self):
        begun, go_on = [], threading.Event()

        def work(thing):
            begun.append(thing)
            if thing == 0:
                raise ValueError(thing)
            go_on.wait(30)
            return thing

        found, done = at_once(work, THINGS, 2), []
        threading.Timer(0.2, go_on.set).start()
        with testtools.ExpectedException(ValueError, "0"):
            done.extend(found)
        self.assertEqual(sorted(begun), [0, *sorted(done)])
        self.assertLess(len(begun), len(THINGS))

    def test_who_is_interrupted_begins_with_no_other(self):
        begun, next_began, go_on = [], threading.Event(), threading.Event()

        def work(thing):
            begun.append(thing)
            if thing > 0:
                next_began.set()
                go_on.wait(30)
            return thing

        found = at_once(work, THINGS, 1)
        self.assertEqual(0, next(found))
        self.assertTrue(next_began.wait(30))
        threading.Timer(0.2, go_on.set).start()
        found.close()
        self.assertEqual([0, 1], begun)
