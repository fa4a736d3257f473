"""From which phase of a move to which one it goes, whoever wants what, and when."""

import threading
from concurrent.futures import ThreadPoolExecutor

import testtools

from virtman.migration.phases import Course, Phase


class CourseTest(testtools.TestCase):
    def course(self, *phases):
        course = Course(Phase.SENDING)
        for phase in phases:
            course.enter(phase)
        return course

    def handing(self):
        return self.course(Phase.HANDING)

    def test_a_move_by_itself(self):
        course, written = self.handing(), []
        self.assertTrue(course.hand(lambda: written.append(course.phase)))
        self.assertEqual([Phase.HANDING], written)
        self.assertEqual(Phase.HANDED, course.phase)
        self.assertFalse(course.has_ended)
        course.enter(Phase.DONE)
        self.assertTrue(course.has_ended)

    def test_one_that_fails_at_any_time_before_is_undone(self):
        for phases in ((), (Phase.READY,), (Phase.HANDING,), (Phase.HANDING, Phase.SENDING)):
            course = self.course(*phases, Phase.UNDOING, Phase.FAILED)
            self.assertTrue(course.has_ended)

    def test_nothing_leads_back_from_the_other_host_nor_to_it_past_the_record(self):
        handed = self.handing()
        handed.hand(lambda: None)
        for phase in Phase:
            if phase is not Phase.DONE:
                self.assertRaises(AssertionError, handed.enter, phase)
        for phases in ((), (Phase.READY,), (Phase.HANDING, Phase.UNDOING)):
            self.assertRaises(AssertionError, self.course(*phases).hand, lambda: None)

    def test_what_cannot_be_written_is_not_handed(self):
        def full():
            raise OSError("no space")

        course = self.handing()
        self.assertRaises(OSError, course.hand, full)
        self.assertEqual(Phase.HANDING, course.phase)
        self.assertTrue(course.cancel(lambda: None))

    def test_who_cancels_in_time_has_the_vm(self):
        course, written = self.handing(), []
        self.assertTrue(course.cancel(lambda: None))
        self.assertFalse(course.is_wanted)
        self.assertFalse(course.hand(lambda: written.append("handed")))
        self.assertEqual(([], Phase.HANDING), (written, course.phase))

    def test_who_cancels_too_late_is_told(self):
        course = self.handing()
        course.hand(lambda: None)
        self.assertFalse(course.cancel(lambda: self.fail("it was written")))

    def test_who_cancels_in_that_moment_waits_for_what_becomes_of_it(self):
        course = self.handing()
        with ThreadPoolExecutor(1) as pool:
            asked = []

            def write():
                asked.append(pool.submit(course.cancel, lambda: None))
                self.assertRaises(TimeoutError, asked[0].result, 0.05)

            self.assertTrue(course.hand(write))
            self.assertFalse(asked[0].result(10))

    def test_a_stopped_one_hands_nothing_over(self):
        course = self.handing()
        course.stop()
        self.assertFalse(course.hand(lambda: None))
        self.assertTrue(course.is_stopped)

    def test_it_is_ready_only_before_the_word(self):
        course = self.course(Phase.READY)
        course.tell()
        self.assertEqual(Phase.SENDING, course.phase)
        course.enter(Phase.READY)
        self.assertEqual(Phase.SENDING, course.phase)

    def test_users_see_less(self):
        shown = {phase.shown for phase in Phase}
        self.assertEqual({"sending", "ready", "handed", "done", "failed"}, shown)


class PauseTest(testtools.TestCase):
    """Nobody waits for longer than somebody wants."""

    LONG, SHORT = 30.0, 0.01

    def ended(self, course, wait, wish):
        """Tell whether a wait ends when something is wished for."""
        done = threading.Event()
        thread = threading.Thread(target=lambda: (wait(self.LONG), done.set()), daemon=True)
        thread.start()
        wish()
        found = done.wait(0.2)
        course.stop()
        thread.join()
        return found

    def test_a_pause_ends_with_the_wish_for_the_move(self):
        course = Course(Phase.SENDING)
        self.assertTrue(self.ended(course, course.pause, lambda: course.cancel(lambda: None)))

    def test_what_is_undone_or_handed_is_tried_no_sooner_for_that(self):
        undoing = Course(Phase.UNDOING)
        self.assertFalse(self.ended(undoing, undoing.pause, lambda: undoing.cancel(lambda: None)))
        handed = Course(Phase.HANDED)
        self.assertFalse(self.ended(handed, handed.pause, lambda: handed.cancel(lambda: None)))
        self.assertTrue(self.ended(handed, handed.pause, handed.stop))

    def test_the_word_is_heard_at_once(self):
        course = Course(Phase.READY)
        self.assertTrue(self.ended(course, course.await_word, course.tell))

    def test_a_pause_has_an_end(self):
        Course(Phase.SENDING).pause(self.SHORT)
        Course(Phase.READY).await_word(self.SHORT)
