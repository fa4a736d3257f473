"""A VM waits before its store is lost or it takes more than its share, and then goes on."""

import fixtures

from tests.functional.virtman.base import AHEAD, MIB, RESERVE, TestCase
from tests.functional.virtman.doubles.model import CHUNK
from virtman.disk.capacity import Space
from virtman.disk.volumes.file import StoreFile
from virtman.errors import NoSpace

EMPTY = 2 * CHUNK
"""Bytes that a store takes before anything is written."""


class SupplyTest(TestCase):
    def setUp(self):
        super().setUp()
        self.node = self.bed.node()
        self.free = 1 << 40
        self.useFixture(fixtures.MockPatchObject(Space, "left", lambda _: self.free))

    def write(self, vm, count, text="x"):
        for chunk in range(count):
            self.node.kernel.write(f"virtman_debian_vm_{vm}", chunk, text)

    def state(self, vm):
        return self.shown(vm).state

    def shown(self, vm):
        with self.node.process.here():
            return self.node.agent.show(vm)

    def ahead(self, store):
        return StoreFile(self.node.records.inventory().stores[store].path).allocated()

    def test_while_there_is_plenty_nothing_is_reserved_or_held(self):
        self.node.create("vm1")
        before = len(self.node.kernel.log)
        self.node.look()
        self.assertEqual(before, len(self.node.kernel.log))
        self.assertEqual(("ready", 0), (self.state("vm1"), self.ahead("s1")))

    def test_a_vm_at_its_quota_waits_until_it_gets_more(self):
        self.node.create("vm1", quota=EMPTY + 2 * CHUNK)
        self.node.create("vm2")
        self.write("vm1", 1)
        self.node.look()
        self.assertEqual("ready", self.state("vm1"))
        self.write("vm1", 2)
        self.node.look()
        self.assertEqual(["waits", "ready"], [self.state("vm1"), self.state("vm2")])
        self.assertRaises(BlockingIOError, self.write, "vm1", 1, "y")
        taken = EMPTY + 2 * CHUNK
        self.assertIn(f"VM vm1 waits: its stores take {taken} bytes of its quota", self.log.output)
        with self.node.process.here():
            self.node.agent.limit("vm1", MIB)
        self.node.look()
        self.assertEqual("ready", self.state("vm1"))
        self.write("vm1", 3)

    def test_a_list_of_many_vms_asks_the_kernel_for_their_stores_once(self):
        self.node.create("vm1", quota=EMPTY + 2 * CHUNK)
        for number in range(2, 6):
            self.node.create(f"vm{number}")
        self.write("vm1", 2)
        self.node.look()
        self.node.kernel.mappings["virtman_debian_store_s2"].table[0] = (0, 1, "error", "")
        before = len(self.node.kernel.log)
        with self.node.process.here():
            listed = self.node.agent.list()
        self.assertEqual(before + 1, len(self.node.kernel.log))
        self.assertEqual(
            ["waits", "lost", "ready", "ready", "ready"], [one.state for one in listed]
        )
        self.assertEqual([self.shown(one.instance.vm) for one in listed], listed)

    def test_a_vm_can_be_shown_while_its_store_still_has_no_table(self):
        self.node.create("vm1")
        self.node.kernel.mappings["virtman_debian_store_s1"].table.clear()
        self.assertEqual(("ready", 0), (self.state("vm1"), self.shown("vm1").taken))

    def test_snapshots_count_against_the_quota(self):
        self.node.create("vm1", quota=EMPTY + 3 * CHUNK)
        self.write("vm1", 2)
        self.node.snapshot("vm1", "before")
        self.node.look()
        self.assertEqual("waits", self.state("vm1"))

    def test_a_vm_near_its_quota_is_warned_of_once(self):
        self.node.create("vm1", quota=EMPTY + 10 * CHUNK)
        self.write("vm1", 9)
        for _ in range(3):
            self.node.look()
        self.assertEqual(1, self.log.output.count("VM vm1 has taken"))
        self.assertEqual("low", self.state("vm1"))

    def test_a_vm_waits_when_the_disk_is_full_and_what_it_had_ahead_is_used(self):
        self.node.create("vm1")
        self.node.create("vm2")
        self.free = 2 * RESERVE - 1
        self.node.look()
        for store in ("s1", "s2"):
            self.assertGreaterEqual(self.ahead(store), AHEAD)
        self.free = RESERVE - 1
        self.node.look()
        self.assertEqual(["ready", "ready"], [self.state("vm1"), self.state("vm2")])
        self.write("vm1", AHEAD // 2 // CHUNK + 1)
        self.node.look()
        self.assertEqual(["waits", "ready"], [self.state("vm1"), self.state("vm2")])
        self.assertIn("[store] reserve", self.log.output)
        self.free = 2 * RESERVE
        self.node.look()
        self.assertEqual("ready", self.state("vm1"))

    def test_a_disk_that_gets_short_is_warned_of_once_each_time(self):
        self.node.create("vm1")
        self.node.look()
        self.assertNotIn("bytes left", self.log.output)
        said = "WARNING:virtman.disk.space_guard:the file system of the stores has only "
        for _ in range(2):
            self.free = 2 * RESERVE - 1
            with self.assertLogs("virtman", "WARNING") as logged:
                for _ in range(3):
                    self.node.look()
            self.assertEqual([f"{said}{2 * RESERVE - 1} bytes left"], logged.output)
            self.free = 2 * RESERVE
            self.node.look()

    def test_a_new_agent_lets_a_vm_wait_on(self):
        self.node.create("vm1", quota=EMPTY + CHUNK)
        self.write("vm1", 1)
        self.node.look()
        self.node.stop()
        self.node.start()
        self.assertEqual([], self.node.recover())
        self.assertEqual("waits", self.state("vm1"))
        self.node.look()
        self.assertEqual("waits", self.state("vm1"))

    def test_vms_whose_reads_have_no_end_keep_no_other_from_waiting(self):
        hung = [f"vm{number}" for number in range(1, 21)]
        for vm in (*hung, "warm"):
            self.node.create(vm, quota=EMPTY + CHUNK)
            self.write(vm, 1)
        for vm in hung:
            self.node.kernel.mappings[f"virtman_debian_vm_{vm}"].hung = True
        for _ in range(2):
            with self.node.process.here():
                self.node.supply.look()
        self.assertEqual("waits", self.state("warm"))
        for vm in (*hung, "warm"):
            self.assertRaises(BlockingIOError, self.write, vm, 1, "y")
            self.assertEqual(1, self.log.output.count(f"VM {vm} waits"))
        self.assertEqual({"waits"}, {self.state(vm) for vm in hung})
        self.node.kernel.end_reads()
        self.assertEqual({"waits"}, {self.state(vm) for vm in hung})
        for vm in (*hung, "warm"):
            with self.node.process.here():
                self.node.agent.limit(vm, MIB)
        self.node.look()
        self.assertEqual({"ready"}, {self.state(vm) for vm in (*hung, "warm")})

    def test_a_vm_that_is_not_held_after_all_does_not_wait_and_the_kernel_is_asked_once(self):
        self.node.create("vm1", quota=EMPTY + CHUNK)
        self.write("vm1", 1)
        device = self.node.kernel.mappings["virtman_debian_vm_vm1"]
        device.hung = True
        self.node.look()
        self.assertEqual("waits", self.state("vm1"))
        device.hung = device.holding = False  # as a swap of tables has it go on
        before = len(self.node.kernel.log)
        self.assertEqual(["low", "low"], [self.state("vm1") for _ in range(2)])
        self.assertEqual(before + 3, len(self.node.kernel.log))

    def test_a_vm_that_is_handed_over_is_not_let_go_on_for_space(self):
        self.node.create("vm1")
        suspension = self.node.agent.stores.suspension
        with self.node.process.here():
            suspension.suspend("vm1")
        self.node.look()
        self.assertRaises(BlockingIOError, self.write, "vm1", 1)
        with self.node.process.here():
            suspension.resume("vm1")
        self.write("vm1", 1)

    def test_nor_is_one_handed_over_that_waits_for_space(self):
        self.node.create("vm1", quota=CHUNK)
        self.node.look()
        with self.node.process.here():
            self.assertRaises(NoSpace, self.node.agent.stores.suspension.suspend, "vm1")
            self.node.agent.limit("vm1", MIB)
        self.node.look()
        self.write("vm1", 1)

    def test_a_vm_that_waits_can_be_given_up(self):
        self.node.create("vm1", quota=CHUNK)
        self.node.look()
        self.node.destroy("vm1")
        self.node.look()
        self.node.drop()
        self.assert_nothing_is_left(self.node)

    def test_a_vm_whose_device_is_not_back_yet_is_left_alone(self):
        self.node.create("vm1", quota=CHUNK)
        self.node.stop()
        self.node.reboot()
        self.node.look()
        self.assertEqual("absent", self.state("vm1"))
