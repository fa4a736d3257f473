"""Root disks of servers that migrate live: ready or not, handed over or not, and never both."""

from tests.functional.virtman.openstack.doubles import FakeAgent
from tests.unit.virtman.openstack.test_disks import IMAGE, MINE, OTHER, DisksCase
from virtman.errors import (
    AgentUnreachable,
    InstanceExists,
    InstanceNotServed,
    InstanceUnknown,
    MoveUnknown,
    NoSpace,
    PeerUnknown,
)
from virtman.openstack.cinder import Cinder
from virtman.openstack.disks import Disks
from virtman.openstack.golden import Goldens
from virtman.openstack.live import LiveMigrations


def unanswered(*_, **__):
    raise TimeoutError("Cinder does not answer")


class LiveMigrationsTest(DisksCase):
    def setUp(self):
        super().setUp()
        self.other = self.agent.peers["node2"] = FakeAgent()
        self.disks.create("s1", IMAGE, 1)
        self.live = LiveMigrations(self.disks)
        clock = (self.time.now, self.time.pause)
        goldens = Goldens(lambda: Cinder(self.client), "virtman", "node2", 60, *clock)
        self.there = LiveMigrations(Disks(self.other, goldens, 30, 30, *clock))
        self.there.disks.sweep(lambda server: False)

    def begin(self):
        self.live.begin("s1", "node2")
        self.agent.waits["s1"] = "ready"

    def assert_stays(self):
        self.assertEqual("/dev/mapper/s1", self.disks.path("s1"))
        self.assertEqual({}, self.agent.moves)
        self.assertEqual({}, self.other.vms)

    def test_disk_goes_in_two_steps_and_has_a_device_in_between(self):
        self.begin()
        self.assertEqual([sorted([MINE, OTHER])], self.holders())
        self.assertEqual("/dev/mapper/s1", self.there.device("s1"))
        self.live.await_ready("s1", lambda: True)
        self.assertTrue(self.live.is_ready("s1"))
        self.live.hand_over("s1", "node2")
        self.assertEqual({}, self.agent.vms)
        self.assertTrue(self.there.await_disk("s1"))
        self.assertEqual([[OTHER]], self.holders())

    def test_one_that_cannot_go_stays(self):
        self.assertRaises(PeerUnknown, self.live.begin, "s1", "node3")
        self.assert_stays()
        self.assertRaises(InstanceUnknown, self.live.begin, "s2", "node2")

    def test_one_that_was_refused_leaves_no_hold_there(self):
        self.other.vms["s1"] = IMAGE
        self.assertRaises(InstanceExists, self.live.begin, "s1", "node2")
        self.assertEqual([[MINE]], self.holders())

    def test_one_whose_golden_volume_cannot_be_held_there_stays(self):
        self.client.volumes.list = unanswered
        self.assertRaises(TimeoutError, self.live.begin, "s1", "node2")
        self.assert_stays()

    def test_one_of_which_a_dead_sender_left_a_move_begins_anew(self):
        self.begin()
        self.begin()
        self.assertEqual({"s1": "node2"}, self.agent.moves)

    def test_it_waits_until_little_is_left(self):
        self.live.begin("s1", "node2")
        self.assertFalse(self.live.is_ready("s1"))
        self.time.then = lambda: self.agent.waits.update(s1="ready")
        self.live.await_ready("s1", lambda: True)
        self.assertTrue(self.live.is_ready("s1"))

    def test_it_waits_only_while_it_is_wanted(self):
        self.live.begin("s1", "node2")
        self.live.await_ready("s1", lambda: self.time.now() < 5)
        self.live.keep("s1")
        self.assert_stays()

    def test_move_that_fails_says_why(self):
        self.live.begin("s1", "node2")
        self.agent.failed = {"state": "failed", "code": NoSpace.code, "note": "node2 is full"}
        error = self.assertRaises(NoSpace, self.live.await_ready, "s1", lambda: True)
        self.assertIn("node2 is full", str(error))
        self.assertFalse(self.live.is_ready("s1"))

    def test_silent_agent_is_waited_for_but_is_no_yes(self):
        self.begin()
        self.agent.reachable = False
        self.assertFalse(self.live.is_ready("s1"))
        self.assertRaises(AgentUnreachable, self.live.await_ready, "s1", lambda: True)
        self.assertRaises(AgentUnreachable, self.live.keep, "s1")
        self.assertEqual({"s1": "node2"}, self.agent.moves)
        self.time.then = lambda: setattr(self.agent, "reachable", True)
        self.live.await_ready("s1", lambda: True)
        self.agent.reachable = False
        self.live.hand_over("s1", "node2")
        self.assertEqual({"s1"}, set(self.other.vms))

    def test_agent_that_is_started_anew_is_told_again(self):
        self.begin()
        told = []
        finish_move = self.agent.finish_move

        def forget(vm):
            told.append(vm)
            if len(told) > 2:
                finish_move(vm)
            elif len(told) > 1:
                raise AgentUnreachable("gone")

        self.agent.finish_move = forget
        self.live.hand_over("s1", "node2")
        self.assertEqual(3, len(told))
        self.assertEqual({"s1"}, set(self.other.vms))

    def test_move_that_ended_while_the_agent_was_down_has_ended(self):
        self.begin()
        self.agent.await_move("s1")
        self.live.hand_over("s1", "node2")
        self.assertEqual({"s1"}, set(self.other.vms))

    def test_move_that_is_not_there_any_more_leaves_the_disk(self):
        self.begin()
        self.agent.cancel_move("s1")
        self.assertRaises(MoveUnknown, self.live.hand_over, "s1", "node2")
        self.assert_stays()

    def test_what_a_dead_sender_left_stays_unless_the_guest_has_left(self):
        self.begin()
        self.assertFalse(self.live.take_up("s1", "node2", has_left=False))
        self.assert_stays()
        self.begin()
        self.assertTrue(self.live.take_up("s1", "node2", has_left=True))
        self.assertEqual({}, self.agent.vms)
        self.assertEqual([[OTHER]], self.holders())

    def test_what_a_dead_sender_handed_over_is_there_whoever_knows_of_the_guest(self):
        self.begin()
        self.live.hand_over("s1", "node2")
        self.assertTrue(self.live.take_up("s1", "node2", has_left=False))
        self.assertEqual({"s1"}, set(self.other.vms))
        self.assertFalse(self.live.keep("s1"))

    def test_what_cannot_be_handed_over_any_more_stays_though_the_guest_has_left(self):
        self.begin()
        self.agent.cancel_move("s1")
        self.assertFalse(self.live.take_up("s1", "node2", has_left=True))
        self.assert_stays()

    def test_what_a_silent_agent_has_stays(self):
        self.begin()
        self.agent.reachable = False
        self.assertFalse(self.live.take_up("s1", "node2", has_left=False))
        self.assertEqual({"s1": "node2"}, self.agent.moves)

    def test_disk_that_leaves_can_be_taken_away(self):
        self.begin()
        self.disks.destroy("s1")
        self.assertEqual(({}, {}), (self.agent.vms, self.other.vms))

    def test_only_what_is_on_its_way_has_a_device_ahead(self):
        self.assertRaises(InstanceNotServed, self.live.device, "s1")
        self.assertRaises(InstanceUnknown, self.there.device, "s1")

    def test_destination_learns_that_it_does_not_come(self):
        self.begin()
        self.time.then = lambda: self.agent.cancel_move("s1") if self.agent.moves else None
        self.assertFalse(self.there.await_disk("s1"))
        self.assertEqual([sorted([MINE, OTHER])], self.holders())
        self.there.disks.sweep(lambda server: False)
        self.assertEqual([[MINE]], self.holders())

    def test_destination_whose_agent_died_lets_go_once_it_is_back(self):
        self.begin()
        self.other.reachable = False
        self.assertRaises(AgentUnreachable, self.there.device, "s1")
        self.agent.cancel_move("s1")
        self.other.reachable = True
        self.assertEqual([sorted([MINE, OTHER])], self.holders())
        self.there.disks.sweep(lambda server: False)
        self.assertEqual([[MINE]], self.holders())

    def test_destination_lets_go_once_its_agent_has_dropped_what_does_not_come(self):
        self.begin()
        self.other.reachable = False
        self.assertRaises(AgentUnreachable, self.there.device, "s1")
        self.other.reachable = True
        self.there.disks.sweep(lambda server: False)
        self.assertEqual([sorted([MINE, OTHER])], self.holders())
        self.agent.cancel_move("s1")
        self.there.disks.sweep(lambda server: False)
        self.assertEqual([[MINE]], self.holders())

    def test_destination_waits_while_its_agent_is_started_anew_but_not_for_ever(self):
        self.begin()
        self.other.reachable = False
        self.assertFalse(self.there.await_disk("s1"))
        self.assertGreater(self.time.now(), 29)
