"""I/O that is on its way and does not end keeps nobody else from being held, or from going on."""

import errno
import queue
import threading
from unittest import mock

import fixtures
import testtools

from virtman.privileged import deadline, dm

# as the privileged part calls
VERBS = (dm.create, dm.hold, dm.holding, dm.suspend, dm.reload)
CREATE, HOLD, HOLDING, SUSPEND, RELOAD = (verb.args[0] for verb in VERBS)


class HoldTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.ended = threading.Event()
        self.addCleanup(self.end)
        self.begun = []
        self.useFixture(fixtures.MockPatchObject(dm, "_suspend", self.suspend))

    def suspend(self, name, flush, freeze, patience):
        self.begun.append(name)
        self.ended.wait()
        if name == "gone":
            raise OSError(errno.ENXIO, "device mapper, gone: No such device or address")

    def end(self):
        """Let all I/O end."""
        self.ended.set()
        for one in threading.enumerate():
            if one.name.startswith("hold "):
                one.join()

    def test_each_begins_once_whatever_becomes_of_the_others(self):
        names = [f"vm{number}" for number in range(40)]
        self.assertEqual({True}, {HOLD(name) for name in names})
        self.assertEqual({False}, {HOLD(name) for name in names})
        self.end()
        self.assertEqual(sorted(names), sorted(self.begun))

    def test_those_that_are_not_held_yet_can_be_told(self):
        self.assertEqual([], HOLDING())
        for name in ("vm2", "vm1"):
            HOLD(name)
        self.assertEqual(["vm1", "vm2"], HOLDING())
        self.end()
        self.assertEqual([], HOLDING())

    def test_one_that_went_on_can_be_held_again(self):
        self.assertTrue(HOLD("vm1"))
        self.end()
        self.assertTrue(HOLD("vm1"))

    def test_what_cannot_be_held_is_told_and_tried_again(self):
        self.assertTrue(HOLD("gone"))
        self.end()
        self.assertIn("gone: No such device", self.log.output)
        self.assertTrue(HOLD("gone"))

    def test_who_swaps_a_table_meanwhile_gives_up_in_time(self):
        self.assertTrue(HOLD("vm1"))
        error = self.assertRaises(OSError, SUSPEND, "vm1", True, False, 0.05)
        self.assertEqual(errno.EINTR, error.errno)
        self.end()
        SUSPEND("vm1", True, False)


STEPS = {
    0: "create",
    1: "load",
    2: "remove",
    4: "suspend",
    5: "resume",
    14: "clear",
    "flush": "flush",
}


class StepsCase(testtools.TestCase):
    """Which ioctls a verb makes of a device, in which order."""

    def setUp(self):
        super().setUp()
        self.log, self.failing = [], ""
        self.useFixture(fixtures.MockPatchObject(dm, "Task", self.task))
        self.useFixture(
            fixtures.MockPatchObject(deadline.chunks, "flush", lambda _: self.run_("flush"))
        )

    def task(self, verb, name, *, read_only=False):
        task = mock.MagicMock()
        task.__enter__.return_value = task
        task.run = task.run_with_nodes = task.run_without_nodes = lambda: self.run_(verb)
        return task

    def run_(self, verb):
        self.log.append(STEPS[verb])
        if self.failing == self.log[-1]:
            self.failing = ""
            raise OSError(errno.ENOMEM, "injected")


class CreateTest(StepsCase):
    def test_a_device_gets_its_table_and_begins(self):
        CREATE("vm1", [], False)
        self.assertEqual(["create", "load", "resume"], self.log)

    def test_what_could_not_be_made_leaves_nothing_and_its_reason_is_told(self):
        for failing in ("load", "resume"):
            self.log, self.failing = [], failing
            error = self.assertRaises(OSError, CREATE, "vm1", [], False)
            self.assertEqual(errno.ENOMEM, error.errno)
            self.assertEqual([failing, "remove"], self.log[-2:])

    def test_a_device_that_was_there_before_stays(self):
        self.failing = "create"
        self.assertRaises(OSError, CREATE, "vm1", [], False)
        self.assertEqual(["create"], self.log)


class ReloadCase(StepsCase):
    def steps(self, *, flush, settle="", failing=""):
        self.log, self.failing = [], failing
        if failing:
            self.assertRaises(OSError, RELOAD, "vm1", [], False, flush, False, settle)
        else:
            RELOAD("vm1", [], False, flush, False, settle)
        return " ".join(self.log)


class ReloadTest(ReloadCase):
    def test_what_is_flushed_waits_until_it_is_on_the_disk_and_before_the_table_is_read(self):
        self.assertEqual("suspend flush load resume", self.steps(flush=True, settle="/dev/below"))
        self.assertEqual("suspend load resume", self.steps(flush=True))
        self.assertEqual("load resume", self.steps(flush=False))

    def test_what_failed_goes_on_with_the_table_that_it_had(self):
        for failing in ("suspend", "flush", "load"):
            steps = self.steps(flush=True, settle="/dev/below", failing=failing)
            self.assertTrue(steps.endswith(f"{failing} clear resume"), steps)

    def test_what_somebody_held_back_stays_so_if_its_new_table_cannot_be_loaded(self):
        self.assertEqual("load clear", self.steps(flush=False, failing="load"))

    def test_what_was_held_back_for_a_table_that_cannot_be_used_goes_on(self):
        for flush in (True, False):
            steps = self.steps(flush=flush, failing="resume")
            self.assertTrue(steps.endswith("resume clear resume"), steps)


class FlushTest(ReloadCase):
    """A disk that hangs holds nobody for longer than reads that have no end do."""

    def setUp(self):
        super().setUp()
        self.hangs, self.begun, self.answers = True, threading.Event(), threading.Event()
        self.useFixture(fixtures.MockPatchObject(deadline.chunks, "flush", self.flush))
        self.addCleanup(self.answer)

    def flush(self, path):
        self.run_("flush")
        self.begun.set()
        if self.hangs:
            self.answers.wait()

    def answer(self):
        """Let the disk answer, and all flushes end."""
        self.hangs = False
        self.answers.set()
        for one in threading.enumerate():
            if one.name.startswith("flush "):
                one.join()

    def swap(self):
        """Fail to swap a table, once its flush has begun and time is up; return the steps."""

        def wait(timeout):
            self.assertTrue(0 < timeout < dm.PATIENCE)
            self.begun.wait()
            raise queue.Empty

        self.log = []
        with mock.patch.object(queue, "SimpleQueue", return_value=mock.Mock(get=wait)):
            error = self.assertRaises(OSError, RELOAD, "vm1", [], False, True, False, "/dev/below")
        self.assertEqual(errno.ETIMEDOUT, error.errno)
        self.assertIn("/dev/below", str(error))
        return " ".join(self.log)

    def test_what_is_held_goes_on_with_its_table_if_the_disk_hangs(self):
        self.assertEqual("suspend flush clear resume", self.swap())

    def test_suspending_and_flushing_have_the_ten_seconds_together(self):
        given = []
        with (
            mock.patch.object(dm, "PATIENCE", 0.1),
            mock.patch.object(dm, "_suspend_in_time", lambda *_: threading.Event().wait(0.06)),
            mock.patch.object(dm, "flush_in_time", lambda _, patience: given.append(patience)),
        ):
            RELOAD("vm1", [], False, True, False, "/dev/below")
        self.assertLess(given[0], 0.041)

    def test_nobody_is_held_again_before_the_flush_that_was_given_up_has_ended(self):
        self.swap()
        self.assertEqual("", self.swap())
        self.answer()
        self.assertEqual("suspend flush load resume", self.steps(flush=True, settle="/dev/below"))

    def test_other_disks_are_flushed_meanwhile(self):
        self.swap()
        self.hangs = False
        self.assertEqual("suspend flush load resume", self.steps(flush=True, settle="/dev/other"))
