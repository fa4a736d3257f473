"""VMs that move live: rounds until the word comes, a device before the data, one owner."""

import contextlib
import threading
from dataclasses import replace

import fixtures

from tests.functional.virtman.doubles.process import Killed
from tests.functional.virtman.migration import test_moves
from virtman.errors import InvalidRequest, MoveUnknown, VirtmanError
from virtman.migration import sender

DEVICE = "virtman_debian_vm_vm1"


class LiveTest(test_moves.MoveCase):
    def begin(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a", c3="b")
        self.a.migrate("vm1", "b", live=True)
        self.await_ready()

    def await_ready(self):
        self.await_(
            lambda: self.status(self.a, "vm1").state == "ready",
            lambda: self.status(self.a, "vm1"),
        )

    def table(self, node):
        (row,) = node.kernel.mappings[DEVICE].table
        return row[1], row[2]

    def assert_stays(self, code):
        ended = self.ended()
        self.assertEqual(("failed", code), (ended.state, ended.code))
        self.write(self.a, "vm1", c1="z")
        self.assertEqual("az.b....", self.read(self.a, "vm1"))

    def test_it_has_a_device_before_it_has_data_and_goes_by_the_word(self):
        self.begin()
        before = self.table(self.a)
        self.assertEqual((before[0], "error"), self.table(self.b))
        with self.b.process.here():
            self.assertEqual("arriving", self.b.agent.show("vm1").state)
        self.write(self.a, "vm1", c1="c")
        # as the hypervisor there has it open
        self.b.kernel.held.add(f"/dev/mapper/{DEVICE}")
        self.a.finish("vm1")
        self.a.finish("vm1")
        ended = self.ended()
        self.assertEqual("done", ended.state, ended)
        self.assertGreater(ended.pause, 0)
        self.assertEqual(before, self.table(self.b))
        self.assertEqual("ac.b....", self.read(self.b, "vm1"))
        self.assertNotIn(DEVICE, self.a.kernel.mappings)
        self.b.kernel.held.clear()
        self.assert_tidy(self.a, self.b)

    def test_without_the_word_it_stays(self):
        self.begin()
        with self.a.process.here():
            self.a.moves.cancel("vm1")
        self.assert_stays("virtman.move.cancelled")
        self.assertNotIn(DEVICE, self.b.kernel.mappings)
        self.assert_tidy(self.a, self.b)

    def test_one_that_the_other_host_does_not_take_any_more_stays(self):
        self.begin()
        with self.b.process.here():
            self.b.arrivals.give_up("vm1")
        self.assert_stays(MoveUnknown.code)
        self.assertEqual([], self.names(self.b))
        self.assert_tidy(self.a, self.b)

    def test_it_stays_ready_while_what_it_wrote_meanwhile_is_sent(self):
        self.begin()
        stores, seen = self.a.agent.stores, []
        freeze = stores.snapshot

        def snapshot(*words):
            seen.append(self.status(self.a, "vm1").state)
            return freeze(*words)

        self.useFixture(fixtures.MockPatchObject(stores, "snapshot", snapshot))
        with fixtures.MockPatchObject(sender, "PAUSE", -1):  # always worth a round
            self.await_(lambda: len(seen) > 2, lambda: self.status(self.a, "vm1"))
        self.assertEqual({"ready"}, set(seen))
        self.write(self.a, "vm1", c1="c")
        self.a.finish("vm1")
        self.assertEqual("done", self.ended().state)
        self.assertEqual("ac.b....", self.read(self.b, "vm1"))

    def test_it_is_ready_only_while_the_other_host_answers(self):
        self.begin()
        self.b.die()
        self.await_(
            lambda: self.status(self.a, "vm1").state == "sending",
            lambda: self.status(self.a, "vm1"),
        )
        self.assertIn("host b does not answer", self.status(self.a, "vm1").note)
        self.b.reboot()
        self.b.recover()
        self.assertEqual("error", self.table(self.b)[1])
        self.b.serve()
        self.await_ready()
        self.a.finish("vm1")
        self.assertEqual("done", self.ended().state)
        self.assertEqual("a..b....", self.read(self.b, "vm1"))

    def test_it_is_not_ready_while_the_other_host_hangs(self):
        self.useFixture(fixtures.MockPatchObject(sender, "SILENCE", 0.2))
        self.begin()
        goes_on = threading.Event()
        self.addCleanup(goes_on.set)
        offer = self.b.arrivals.offer
        self.b.arrivals.offer = lambda *words: goes_on.wait() and offer(*words)
        self.await_(
            lambda: self.status(self.a, "vm1").state == "sending",
            lambda: self.status(self.a, "vm1"),
        )
        self.assertIn("host b does not answer", self.status(self.a, "vm1").note)
        goes_on.set()
        self.await_ready()
        self.a.finish("vm1")
        self.assertEqual("done", self.ended().state)
        self.assertEqual("a..b....", self.read(self.b, "vm1"))

    def test_a_new_agent_waits_for_the_word_again(self):
        self.begin()
        self.restart(self.a)
        self.await_ready()
        self.write(self.a, "vm1", c7="c")
        self.a.finish("vm1")
        self.assertEqual("done", self.ended().state)
        self.assertEqual("a..b...c", self.read(self.b, "vm1"))

    def test_the_word_is_for_vms_that_move_live(self):
        self.a.create("vm1")
        self.assertRaises(MoveUnknown, self.a.finish, "vm1")
        self.a.records.put(test_moves.Move("vm1", "x" * 32, "b", "vm1", False))
        self.assertRaises(InvalidRequest, self.a.finish, "vm1")

    def test_a_device_without_data_is_never_held_for_space(self):
        self.begin()
        self.b.records.put(replace(self.b.records.get("vm1"), quota=1))
        self.b.supply.look()
        self.assertFalse(self.b.kernel.mappings[DEVICE].suspended)


class LiveKilledTest(test_moves.KilledTest):
    """An agent dies at each step of a live move; whoever gave the word gives it again."""

    def assert_no_data(self, device):
        self.assertTrue(device is None or device.table[0][2] == "error", device)

    def tell(self):
        with contextlib.suppress(Killed, VirtmanError):
            if self.status(self.a, "vm1").state == "ready":
                self.a.finish("vm1")

    def quiet(self):
        self.tell()
        return super().quiet()

    def finish(self, case):
        def ended():
            self.tell()
            return not self.a.records.moving()

        self.await_(ended, lambda: (case, self.a.moves.all()))
        super().finish(case)

    def test_the_source_dies(self):
        owners = self.assert_survives(self.a, lambda: self.a.migrate("vm1", "b", live=True))
        self.assertEqual({self.a, self.b}, owners)

    def test_the_destination_dies(self):
        owners = self.assert_survives(self.b, lambda: self.a.migrate("vm1", "b", live=True))
        self.assertEqual({self.a, self.b}, owners)
