"""Root disks of a compute node: made once, found ever after, gone with the server."""

import threading

import testtools

from tests.functional.virtman.openstack.doubles import FakeAgent, FakeCinderClient, FakeTime
from virtman.errors import (
    AgentUnreachable,
    DeviceBusy,
    ImageUnknown,
    InstanceExists,
    InstanceNotServed,
    MoveUnknown,
    PeerUnknown,
)
from virtman.openstack.cinder import Cinder, VolumeFailed
from virtman.openstack.disks import DiskLost, Disks
from virtman.openstack.golden import Goldens, holder_of

IMAGE = "snapshot-0c0ffee0-1111-2222-3333-444455556666"
MINE = holder_of("node1")
OTHER = holder_of("node2")
GIB = 1024**3


class DisksCase(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.client = FakeCinderClient()
        self.agent = FakeAgent()
        self.time = FakeTime()
        self.disks = self.restarted()

    def restarted(self):
        """Another nova-compute on the same node."""
        clock = (self.time.now, self.time.pause)
        goldens = Goldens(lambda: Cinder(self.client), "virtman", "node1", 60, *clock)
        return Disks(self.agent, goldens, 30, 30, *clock)

    def holders(self):
        return list(self.client.holders().values())


class DisksTest(DisksCase):
    def test_disk_of_a_server_is_over_its_snapshot(self):
        self.assertEqual("/dev/mapper/s1", self.disks.create("s1", IMAGE, 1))
        self.assertEqual(IMAGE, self.agent.vms["s1"]["image"])
        self.assertEqual("/dev/mapper/s1", self.disks.path("s1"))

    def test_only_the_first_server_and_the_last_ask_cinder(self):
        self.disks.create("s0", IMAGE, 1)
        asked = len(self.client.calls)
        for number in range(1, 20):
            self.disks.create(f"s{number}", IMAGE, 1)
        for number in range(19):
            self.disks.destroy(f"s{number}")
        self.assertEqual(asked, len(self.client.calls))
        self.assertEqual([[MINE]], self.holders())
        self.disks.destroy("s19")
        self.assertEqual([[]], self.holders())

    def test_servers_at_the_same_time_make_one_volume(self):
        ends = [
            threading.Thread(target=self.disks.create, args=(f"s{number}", IMAGE, 1))
            for number in range(16)
        ]
        for end in ends:
            end.start()
        for end in ends:
            end.join()
        self.assertEqual(16, len(self.agent.vms))
        self.assertEqual([[MINE]], self.holders())

    def test_it_waits_until_the_keeper_serves_the_image(self):
        self.agent.served = set()
        self.time.then = lambda: self.agent.served.add(IMAGE)
        self.disks.create("s1", IMAGE, 1)
        self.assertIn("s1", self.agent.vms)

    def test_image_that_nobody_serves_is_let_go(self):
        self.agent.served = set()
        self.assertRaises(ImageUnknown, self.disks.create, "s1", IMAGE, 1)
        self.assertGreater(self.time.now(), 29)
        self.assertEqual([[]], self.holders())

    def test_cinder_that_fails_leaves_nothing(self):
        self.client.becomes = "error"
        self.assertRaises(VolumeFailed, self.disks.create, "s1", IMAGE, 1)
        self.client.kept.clear()
        self.client.becomes = "available"
        self.disks.create("s1", IMAGE, 1)
        self.disks.destroy("s1")
        self.assertEqual([[]], self.holders())

    def test_who_waited_while_cinder_failed_fails_as_well(self):
        self.client.becomes, self.client.polls = "error", 3
        began = threading.Event()

        def now():
            seconds = self.time.now()
            if threading.current_thread() is other:
                began.set()
            return seconds

        def create_another():
            if not other.ident:
                other.start()
                began.wait(10)

        other = threading.Thread(
            target=self.assertRaises, args=(VolumeFailed, self.disks.create, "s2", IMAGE, 1)
        )
        self.disks.now, self.time.then = now, create_another
        self.assertRaises(VolumeFailed, self.disks.create, "s1", IMAGE, 1)
        other.join(10)
        self.assertEqual(1, self.client.calls.count("create"))
        self.client.becomes, self.client.polls = "available", 0
        self.time.seconds += 1
        self.disks.create("s3", IMAGE, 1)
        self.assertEqual(["s3"], list(self.agent.vms))

    def test_second_create_leaves_the_first_disk_alone(self):
        self.disks.create("s1", IMAGE, 1)
        disk = self.agent.vms["s1"]
        self.assertRaises(InstanceExists, self.disks.create, "s1", IMAGE, 1)
        self.assertIs(disk, self.agent.vms["s1"])
        self.assertEqual([[MINE]], self.holders())

    def test_lost_answer_leaves_no_disk(self):
        self.agent.loses_answers = True
        self.assertRaises(AgentUnreachable, self.disks.create, "s1", IMAGE, 1)
        self.assertEqual({}, self.agent.vms)
        self.assertEqual([[]], self.holders())

    def test_disk_that_is_not_there_is_never_made_anew(self):
        self.assertRaises(DiskLost, self.disks.path, "s1")
        self.disks.create("s1", IMAGE, 1)
        self.agent.vms["s1"]["state"] = "lost"
        self.assertRaises(DiskLost, self.disks.path, "s1")

    def test_disk_is_waited_for_while_the_node_comes_up(self):
        self.disks.create("s1", IMAGE, 1)
        self.agent.vms["s1"]["state"] = "absent"
        self.agent.reachable = False

        def come_up():
            self.agent.reachable = True
            if self.time.now() > 5:
                self.agent.vms["s1"]["state"] = "ready"

        self.time.then = come_up
        self.assertEqual("/dev/mapper/s1", self.disks.path("s1"))

    def test_disk_that_does_not_come_up_is_an_error_in_the_end(self):
        self.disks.create("s1", IMAGE, 1)
        self.agent.vms["s1"]["state"] = "absent"
        self.assertRaises(InstanceNotServed, self.disks.path, "s1")
        self.agent.reachable = False
        self.assertRaises(AgentUnreachable, self.disks.path, "s1")

    def test_destroy_of_what_is_not_there_is_fine(self):
        self.disks.destroy("s1")
        self.assertEqual([], self.client.calls)

    def test_disk_in_use_stays_and_so_does_the_hold(self):
        self.disks.create("s1", IMAGE, 1)
        self.agent.busy.add("s1")
        self.assertRaises(DeviceBusy, self.disks.destroy, "s1")
        self.assertEqual([[MINE]], self.holders())

    def test_restart_forgets_nothing(self):
        self.disks.create("s1", IMAGE, 1)
        self.disks.create("s2", IMAGE, 1)
        again = self.restarted()
        again.destroy("s1")
        self.assertEqual([[MINE]], self.holders())
        again.destroy("s2")
        self.assertEqual([[]], self.holders())

    def test_sweep_takes_what_deleted_servers_left(self):
        self.disks.create("s1", IMAGE, 1)
        self.disks.create("s2", IMAGE, 1)
        self.disks.create("s3", IMAGE, 1)
        self.agent.busy.add("s1")
        self.disks.sweep({"s1", "s2"}.__contains__)
        self.assertEqual({"s1", "s3"}, set(self.agent.vms))
        self.assertEqual([[MINE]], self.holders())

    def test_sweep_releases_what_a_crash_left_held(self):
        self.disks.images.hold(IMAGE, 1)
        self.restarted().sweep(lambda server: False)
        self.assertEqual([[]], self.holders())

    def test_sweeps_ask_cinder_only_if_something_may_be_held_in_vain(self):
        self.disks.create("s1", IMAGE, 1)
        self.disks.sweep(lambda server: False)
        asked = len(self.client.calls)
        self.disks.sweep(lambda server: False)
        self.assertEqual(asked, len(self.client.calls))

    def test_hold_that_another_node_took_in_vain_ends_within_the_hour(self):
        self.disks.sweep(lambda server: False)
        self.disks.images.hold(IMAGE, 1)
        self.time.seconds += 3599
        self.disks.sweep(lambda server: False)
        self.assertEqual([[MINE]], self.holders())
        self.time.seconds += 1
        self.disks.sweep(lambda server: False)
        self.assertEqual([[]], self.holders())

    def test_cinder_that_is_down_keeps_no_disk_from_going(self):
        self.disks.create("s1", IMAGE, 1)
        found, self.client.volumes.list = self.client.volumes.list, None
        self.disks.destroy("s1")
        self.assertEqual({}, self.agent.vms)
        self.assertEqual([[MINE]], self.holders())
        self.client.volumes.list = found
        self.disks.sweep(lambda server: False)
        self.assertEqual([[]], self.holders())


class MovesTest(DisksCase):
    def setUp(self):
        super().setUp()
        self.other = self.agent.peers["node2"] = FakeAgent()
        self.disks.create("s1", IMAGE, 1)

    def test_disk_and_hold_go_to_the_other_node(self):
        self.disks.move("s1", "node2")
        self.assertEqual({}, self.agent.vms)
        self.assertEqual({"s1"}, set(self.other.vms))
        self.assertEqual([[OTHER]], self.holders())
        self.assertRaises(DiskLost, self.disks.path, "s1")

    def test_others_of_the_image_keep_the_hold_of_this_node(self):
        self.disks.create("s2", IMAGE, 1)
        self.disks.move("s1", "node2")
        self.assertEqual([sorted([MINE, OTHER])], self.holders())
        self.disks.move("s2", "node2")
        self.assertEqual([[OTHER]], self.holders())

    def test_other_node_holds_before_its_disk_is_on_the_way(self):
        self.agent.migrate = lambda vm, host: self.assertEqual(
            [sorted([MINE, OTHER])], self.holders()
        )
        self.assertRaises(MoveUnknown, self.disks.move, "s1", "node2")

    def test_other_node_that_let_go_meanwhile_holds_in_the_end(self):
        def let_go(vm, show):
            Goldens(lambda: Cinder(self.client), "virtman", "node2", 60).release(IMAGE)
            await_move(vm, show)

        await_move, self.agent.await_move = self.agent.await_move, let_go
        self.disks.move("s1", "node2")
        self.assertEqual([[OTHER]], self.holders())

    def test_disk_that_cannot_go_stays(self):
        self.assertRaises(PeerUnknown, self.disks.move, "s1", "node3")
        self.other.vms["s1"] = {"vm": "s1"}
        self.assertRaises(InstanceExists, self.disks.move, "s1", "node2")
        self.assertEqual("/dev/mapper/s1", self.disks.path("s1"))
        self.assertIn(MINE, self.holders()[0])

    def test_agent_that_was_started_again_meanwhile_has_moved_it(self):
        def restart(vm, show):
            self.agent.await_move = await_move
            await_move(vm, show)
            raise AgentUnreachable("gone")

        await_move, self.agent.await_move = self.agent.await_move, restart
        self.disks.move("s1", "node2")
        self.assertEqual([[OTHER]], self.holders())

    def test_agent_that_stays_silent_is_an_error(self):
        def fall_silent(vm, show):
            if self.agent.reachable:
                self.time.seconds += 1000
                show({})
            self.agent.reachable = False
            raise AgentUnreachable("gone")

        self.agent.await_move = fall_silent
        self.assertRaises(AgentUnreachable, self.disks.move, "s1", "node2")
        self.assertGreater(self.time.now(), 1029)

    def test_cinder_that_fails_after_the_move_fails_it_no_more(self):
        def fail(vm, show):
            await_move(vm, show)
            self.client.volumes.list = None

        found = self.client.volumes.list
        await_move, self.agent.await_move = self.agent.await_move, fail
        self.disks.move("s1", "node2")
        self.client.volumes.list = found
        self.disks.sweep(lambda server: False)
        self.assertEqual([[OTHER]], self.holders())

    def test_disk_whose_sender_died_stays_where_it_is_wanted(self):
        self.agent.migrate("s1", "node2")
        self.assertEqual("/dev/mapper/s1", self.restarted().path("s1"))
        self.assertEqual({}, self.agent.moves)

    def test_disk_that_was_handed_over_is_not_here_any_more(self):
        self.agent.migrate("s1", "node2")
        self.agent.vms["s1"]["state"] = "handed"
        error = self.assertRaises(DiskLost, self.disks.path, "s1")
        self.assertIn("virtman migrate", str(error))

    def test_disk_that_is_on_its_way_here_is_waited_for(self):
        self.agent.vms["s1"]["state"] = "arriving"
        self.time.then = lambda: self.agent.vms["s1"].update(state="ready")
        self.assertEqual("/dev/mapper/s1", self.disks.path("s1"))


class SpaceTest(DisksCase):
    def test_disks_that_are_there_and_fit(self):
        self.disks.create("s1", IMAGE, 1)
        self.agent.vms["s1"]["size"] = 2 * GIB - 1
        self.agent.room = {"free": 20 * GIB, "promised": 2 * GIB}
        self.assertEqual(2 + 17, self.disks.space())

    def test_agent_that_is_started_anew_has_what_it_had(self):
        self.agent.reachable = False
        self.assertRaises(AgentUnreachable, self.disks.space)
        self.agent.reachable = True
        self.agent.room = {"free": 3 * GIB, "promised": 0}
        self.assertEqual(2, self.disks.space())
        self.agent.reachable = False
        self.time.seconds += 29
        self.assertEqual(2, self.disks.space())
        self.time.seconds += 2
        self.assertRaises(AgentUnreachable, self.disks.space)

    def test_node_that_promised_too_much_has_room_for_what_is_there(self):
        self.disks.create("s1", IMAGE, 1)
        self.agent.room = {"free": GIB, "promised": 2 * GIB}
        self.assertEqual(1, self.disks.space())
