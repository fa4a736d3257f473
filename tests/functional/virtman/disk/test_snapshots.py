"""Snapshots of running VMs: bytes of a moment, whatever is written, merged or dies later."""

import contextlib
import errno
import itertools
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import fixtures

from tests.functional.virtman.base import ENOUGH, FOREVER, SIZE, TestCase
from tests.functional.virtman.doubles.model import Logical
from tests.functional.virtman.doubles.process import Killed
from virtman.disk.merger import Merger
from virtman.disk.records import Records
from virtman.errors import (
    DeviceBusy,
    DevicePending,
    InstanceNotServed,
    NoSpace,
    SnapshotExists,
    SnapshotMismatch,
    SnapshotUnknown,
    StoreUnusable,
    VirtmanError,
)


class SnapshotCase(TestCase):
    lvm = False

    def setUp(self):
        super().setUp()
        self.bed.lvm = self.lvm
        self.node = self.bed.node(keep=FOREVER)

    def write(self, vm, **chunks):
        for chunk, text in chunks.items():
            self.node.kernel.write(f"virtman_debian_vm_{vm}", int(chunk[1:]), text)

    def read(self, vm, chunks=4):
        name = f"virtman_debian_vm_{vm}"
        return "".join(self.node.kernel.read(name, chunk) or "." for chunk in range(chunks))

    def stores(self):
        """Names of the stores that have a volume."""
        volumes = [path.rsplit("_", 1)[1] for path in self.node.kernel.volumes]
        return sorted([*volumes, *(file.stem for file in self.node.records.stores.glob("*.cow"))])

    def restart(self, reboot=False):
        self.node.stop()
        self.node.reboot() if reboot else self.node.start()
        self.assertEqual([], self.node.recover())


class SwapTest(SnapshotCase):
    """What is held back stays so until all that must be done meanwhile is done."""

    DEVICE = "virtman_debian_vm_vm1"

    def setUp(self):
        super().setUp()
        self.node.create("vm1")
        self.write("vm1", c0="a")
        self.device = self.node.kernel.mappings[self.DEVICE]
        self.lower = f"/dev/mapper/virtman_debian_store_{self.node.chain('vm1')[-1]}"
        self.pool = ThreadPoolExecutor(1)
        self.addCleanup(self.pool.shutdown)

    def test_a_look_at_the_stores_lets_no_vm_go_on_before_its_snapshot_is_on_the_disk(self):
        held = self.hook(
            self.node.kernel.chunks, "flush", lambda device: device == self.lower, self.node.look
        )
        self.node.snapshot("vm1", "before")
        self.assertEqual([True], held)
        self.write("vm1", c0="b")

    def test_nor_while_a_store_that_it_lies_on_is_led_to_another_one(self):
        self.node.snapshot("vm1", "before")
        self.node.delete_snapshot("before")
        begin = self.hook(
            self.node.kernel.dm, "reload", lambda name, *_: self.device.suspended, self.node.look
        )
        self.node.merge("vm1")
        self.assertEqual([True], begin)
        self.write("vm1", c0="b")

    def test_most_is_flushed_while_the_vm_and_all_others_go_on(self):
        def goes_on():
            self.write("vm1", c1="b")
            self.node.create("vm2")

        before = self.node.chain("vm1")
        path = self.node.records.inventory().stores[before[-1]].path
        held = self.hook(self.node.kernel.chunks, "flush", lambda device: device == path, goes_on)
        self.node.snapshot("vm1", "before")
        self.assertEqual([False], held)
        self.assertEqual([path, self.lower], self.node.kernel.flushed)

    def test_what_a_dead_agent_took_a_snapshot_of_is_flushed_by_the_next(self):
        def die():
            self.node.process.dead = True
            raise Killed("_up")

        self.hook(self.node.kernel.dm, "reload", lambda name, *_: name == self.DEVICE, die)
        self.assertRaises(Killed, self.node.snapshot, "vm1", "before")
        del self.node.kernel.dm.reload
        self.node.kernel.flushed.clear()
        self.restart()
        self.assertEqual(2, len(self.node.chain("vm1")))
        self.assertEqual([self.lower], self.node.kernel.flushed)

    def test_who_stops_the_agent_waits_for_vms_to_go_on(self):
        stopping = []

        def stop():
            stopping.append(self.pool.submit(self.node.agent.stores.suspension.stop))
            self.assertRaises(TimeoutError, stopping[0].result, 0.2)

        self.hook(
            self.node.kernel.chunks, "flush", lambda device: device == self.lower, stop, here=True
        )
        self.node.snapshot("vm1", "before")
        stopping[0].result(10)
        self.write("vm1", c0="b")

    def test_a_disk_that_hangs_keeps_the_vm_from_its_snapshot_not_from_going_on(self):
        def reload(name, table, read_only, flush, freeze, settle=""):
            if hangs and settle:
                raise OSError(errno.ETIMEDOUT, "it does not get to the disk")
            swap(name, table, read_only, flush, freeze, settle)

        dm, hangs = self.node.kernel.dm, [True]
        swap, dm.reload = dm.reload, reload
        before = self.node.chain("vm1"), self.stores()
        error = self.assertRaises(DevicePending, self.node.snapshot, "vm1", "mine")
        self.assertIn(f"from {self.lower} to the disk", str(error))
        self.assertEqual(before, (self.node.chain("vm1"), self.stores()))
        self.write("vm1", c1="b")
        hangs.clear()
        self.node.snapshot("vm1", "mine")
        self.assertEqual("ab..", self.read("vm1"))

    def hook(self, double, verb, when, work, *, here=False):
        """Do something once in the middle of a verb; return whether the VM was held after that."""
        real, held = getattr(double, verb), []

        def call(*arguments):
            if not held and when(*arguments):
                held.append(False)
                self.node.kernel.lock.release()
                try:
                    work() if here else self.pool.submit(work).result(10)
                finally:
                    self.node.kernel.lock.acquire()
                held[0] = self.device.suspended
            return real(*arguments)

        setattr(double, verb, call)
        return held


class SnapshotTest(SnapshotCase):
    def test_a_snapshot_has_the_bytes_of_its_moment(self):
        self.node.create("vm1")
        self.write("vm1", c0="a", c1="a")
        self.node.snapshot("vm1", "before")
        self.write("vm1", c1="b", c2="b")
        self.assertEqual("abb.", self.read("vm1"))
        self.node.create("vm2", snapshot="before")
        self.assertEqual("aa..", self.read("vm2"))
        self.write("vm2", c3="c")
        self.assertEqual(("abb.", "aa.c"), (self.read("vm1"), self.read("vm2")))
        self.assertEqual(["s1"], self.node.chain("vm1")[:1])
        self.assertEqual(["s1"], self.node.chain("vm2")[:1])

    def test_a_vms_device_keeps_its_number(self):
        self.node.create("vm1")
        number = self.node.kernel.mappings["virtman_debian_vm_vm1"].number
        self.node.snapshot("vm1", "before")
        self.node.delete_snapshot("before")
        self.node.merge("vm1")
        device = self.node.kernel.mappings["virtman_debian_vm_vm1"]
        self.assertEqual((number, 2), (device.number, device.reloads))

    def test_rollback_is_for_a_device_that_nobody_has_open(self):
        self.node.create("vm1")
        self.write("vm1", c0="a")
        self.node.snapshot("vm1", "before")
        self.write("vm1", c0="b")
        before = self.node.everywhere()
        self.node.kernel.held.add("/dev/mapper/virtman_debian_vm_vm1")
        self.assertRaises(DeviceBusy, self.node.rollback, "vm1", "before")
        self.assertEqual(before[0], self.node.kernel.state())
        self.assertEqual(before[1], self.node.records.all())
        self.assertEqual("b...", self.read("vm1"))
        self.node.kernel.held.clear()
        self.node.rollback("vm1", "before")
        self.assertEqual("a...", self.read("vm1"))
        self.assertEqual(2, len(self.stores()))
        self.node.rollback("vm1", "before")
        self.assertEqual("a...", self.read("vm1"))

    def test_stores_go_with_the_last_who_needs_them(self):
        self.node.create("vm1")
        self.write("vm1", c0="a")
        self.node.snapshot("vm1", "before")
        self.node.create("vm2", snapshot="before")
        self.node.destroy("vm1")
        self.assertEqual("a...", self.read("vm2"))
        self.node.delete_snapshot("before")
        self.assertEqual("a...", self.read("vm2"))
        self.assertEqual(2, len(self.stores()))
        self.node.destroy("vm2")
        self.assertEqual([], self.stores())
        self.node.drop()
        self.assert_nothing_is_left(self.node)

    def test_a_snapshot_outlives_its_vm_and_a_reboot(self):
        self.node.create("vm1")
        self.write("vm1", c0="a")
        self.node.snapshot("vm1", "before")
        self.node.destroy("vm1")
        self.assertNotIn("virtman_debian_store_s1", self.node.kernel.mappings)
        self.restart(reboot=True)
        self.node.create("vm2", snapshot="before")
        self.assertEqual("a...", self.read("vm2"))

    def test_what_is_not_there_or_does_not_fit_changes_nothing(self):
        self.bed.register("other")
        self.node.create("vm1")
        self.node.create("vm2")
        self.node.create("vm3", "other")
        self.node.snapshot("vm1", "before")
        before = self.node.everywhere()
        for error, call, *arguments in (
            (SnapshotExists, self.node.snapshot, "vm2", "before"),
            (SnapshotUnknown, self.node.rollback, "vm1", "nope"),
            (SnapshotUnknown, self.node.delete_snapshot, "nope"),
            (SnapshotMismatch, self.node.rollback, "vm2", "before"),
        ):
            self.assertRaises(error, call, *arguments)
        self.assertRaises(SnapshotUnknown, self.node.create, "vm4", snapshot="nope")
        self.assertRaises(SnapshotMismatch, self.node.create, "vm4", "other", snapshot="before")
        self.assertEqual(before, self.node.everywhere())

    def test_a_vm_that_is_not_back_yet_has_no_snapshot_taken(self):
        self.node.create("vm1")
        self.node.stop()
        self.node.reboot()
        error = self.assertRaises(InstanceNotServed, self.node.snapshot, "vm1", "before")
        self.assertIn("VM vm1", str(error))

    def test_a_record_of_an_earlier_version_is_understood(self):
        store = self.node.folder / "stores" / "vm1.cow"
        store.write_bytes(bytes(1 << 24))
        (self.node.folder / "instances" / "vm1.json").write_text(
            f'{{"vm": "vm1", "image": "debian", "size": 8388608, "store": "{store}", '
            '"store_size": 8388608}'
        )
        self.restart(reboot=True)
        self.write("vm1", c0="a")
        self.node.snapshot("vm1", "before")
        self.assertEqual(["vm1", "s1"], self.node.chain("vm1"))


class MergeTest(SnapshotCase):
    def test_a_chain_becomes_one_store_once_its_snapshots_are_deleted(self):
        self.node.create("vm1")
        for number, name in enumerate(("one", "two", "three")):
            self.write("vm1", **{f"c{number}": str(number)})
            self.node.snapshot("vm1", name)
        self.write("vm1", c3="3", c0="x")
        for name in ("two", "one", "three"):
            self.node.delete_snapshot(name)
        self.node.merge("vm1")
        self.assertEqual("x123", self.read("vm1"))
        self.assertEqual(1, len(self.node.chain("vm1")))
        self.assertEqual(self.node.chain("vm1"), self.stores())
        self.write("vm1", c0="y")
        self.restart(reboot=True)
        self.assertEqual("y123", self.read("vm1"))

    def test_a_chain_has_three_stores_at_most_however_many_snapshots(self):
        self.node.create("vm1")
        for number in range(6):
            self.write("vm1", **{"c0": str(number), f"c{number}": str(number)})
            self.node.snapshot("vm1", f"at{number}")
            self.node.merge("vm1")
            self.assertLessEqual(len(self.node.chain("vm1")), 3)
        self.node.destroy("vm1")
        for number in range(6):
            self.node.create("vm2", snapshot=f"at{number}")
            expected = f"{number}12345"[: number + 1].ljust(6, ".")
            self.assertEqual(expected, self.read("vm2", 6))
            self.node.merge("vm2")
            self.assertEqual(expected, self.read("vm2", 6))
            self.node.destroy("vm2")
        for number in range(6):
            self.node.delete_snapshot(f"at{number}")
        self.assertEqual([], self.stores())

    def test_a_merge_does_not_touch_what_others_need(self):
        self.node.create("vm1")
        self.write("vm1", c0="a")
        self.node.snapshot("vm1", "one")
        self.write("vm1", c1="b")
        self.node.snapshot("vm1", "two")
        self.node.create("vm2", snapshot="one")
        self.write("vm2", c2="c")
        self.node.delete_snapshot("one")
        self.node.merge("vm1")
        self.node.merge("vm2")
        self.assertEqual(("ab..", "a.c."), (self.read("vm1"), self.read("vm2")))
        self.node.destroy("vm2")
        self.node.merge("vm1")
        self.node.create("vm3", snapshot="two")
        self.assertEqual(("ab..", "ab.."), (self.read("vm1"), self.read("vm3")))
        self.assertEqual(2, len(self.node.chain("vm1")))

    def test_nothing_is_merged_of_a_vm_that_is_handed_over(self):
        self.node.create("vm1")
        for name in ("a", "b", "c"):
            self.node.snapshot("vm1", name)
        suspension = self.node.agent.stores.suspension
        with self.node.process.here():
            suspension.suspend("vm1")
        before = self.stores()
        timer = threading.Timer(5, self.node.merger.stop)
        timer.start()
        self.node.merge("vm1")
        timer.cancel()
        self.assertFalse(self.node.merger.rounds.is_stopped)
        self.assertEqual(before, self.stores())
        with self.node.process.here():
            suspension.resume("vm1")
        self.node.merge("vm1")
        self.assertEqual(3, len(self.node.chain("vm1")))

    def test_a_merge_that_ends_late_touches_no_later_store(self):
        self.node.create("vm1")
        self.node.snapshot("vm1", "mine")
        self.node.delete_snapshot("mine")
        end = Merger._end

        def late(merger, store):
            self.node.destroy("vm1")
            self.node.create("vm2")
            self.node.create("vm3")
            return end(merger, store)

        self.useFixture(fixtures.MockPatchObject(Merger, "_end", late))
        self.node.merge("vm1")
        chains = [self.node.chain(vm) for vm in ("vm2", "vm3")]
        self.assertEqual([1, 1], list(map(len, chains)))
        self.assertNotEqual(*chains)

    def test_a_vm_whose_reads_have_no_end_is_not_held_for_a_snapshot(self):
        self.node.create("vm1")
        self.write("vm1", c0="a")
        before = self.node.chain("vm1"), self.stores()
        self.node.kernel.mappings["virtman_debian_vm_vm1"].hung = True
        error = self.assertRaises(DevicePending, self.node.snapshot, "vm1", "mine")
        self.assertEqual("virtman.device.pending", error.code)
        self.assertEqual(before, (self.node.chain("vm1"), self.stores()))
        self.write("vm1", c1="b")
        self.node.kernel.end_reads()
        self.node.snapshot("vm1", "mine")
        self.write("vm1", c1="c")
        self.node.create("vm2", snapshot="mine")
        self.assertEqual(("ac..", "ab.."), (self.read("vm1"), self.read("vm2")))

    def test_a_vm_whose_reads_have_no_end_is_merged_later(self):
        self.node.create("vm1")
        self.write("vm1", c0="a")
        self.node.snapshot("vm1", "mine")
        self.write("vm1", c1="b")
        self.node.delete_snapshot("mine")
        *_, upper = self.node.chain("vm1")
        self.node.kernel.mappings[f"virtman_debian_store_{upper}"].hung = True
        self.assertRaises(DevicePending, self.node.merge, "vm1")
        self.write("vm1", c2="c")
        self.assertEqual("abc.", self.read("vm1"))
        self.node.kernel.end_reads()
        self.node.merge("vm1")
        self.assertEqual(("abc.", 1), (self.read("vm1"), len(self.node.chain("vm1"))))

    def share(self):
        """Make two VMs over a store that is to be merged; return the names of their own stores."""
        self.node.create("vm1")
        self.write("vm1", c0="a")
        self.node.snapshot("vm1", "first")
        self.write("vm1", c1="b")
        self.node.snapshot("vm1", "second")
        self.write("vm1", c2="c")
        self.node.create("vm2", snapshot="second")
        self.write("vm2", c3="d")
        self.node.delete_snapshot("first")
        return [self.node.chain(vm)[-1] for vm in ("vm1", "vm2")]

    def test_a_read_without_end_of_another_vm_of_the_store_keeps_a_merge_from_its_end(self):
        _, other = self.share()
        device = self.node.kernel.mappings[f"virtman_debian_store_{other}"]
        records = []

        def end(merger, store):
            device.hung = True
            records.append(self.node.records.all())
            return late(merger, store)

        late = Merger._end
        with fixtures.MockPatchObject(Merger, "_end", end):
            self.assertRaises(DevicePending, self.node.merge, "vm1")
        self.assertEqual(records[0], self.node.records.all())
        self.assertFalse(any(one.suspended for one in self.node.kernel.mappings.values()))
        self.write("vm1", c3="e")
        self.node.kernel.end_reads()
        self.node.merge("vm1")
        self.assertEqual(("abce", "ab.d"), (self.read("vm1"), self.read("vm2")))
        self.assertEqual([2, 2], [len(self.node.chain(vm)) for vm in ("vm1", "vm2")])

    def test_an_agent_that_died_at_a_merges_end_is_not_held_up_by_a_read_without_end(self):
        _, other = self.share()

        def end(merger, store):
            for changed in self.node.records.inventory().without(store):
                self.node.records.put(changed)
            raise Killed("_end")

        with fixtures.MockPatchObject(Merger, "_end", end):
            self.assertRaises(Killed, self.node.merge, "vm1")
        self.node.stop()
        self.node.kernel.mappings[f"virtman_debian_store_{other}"].hung = True
        self.node.start()
        self.assertEqual([], self.node.recover())
        self.node.create("vm3")  # has nothing to do with that
        self.write("vm1", c3="e")
        self.assertEqual(("abce", "ab.d"), (self.read("vm1"), self.read("vm2")))
        for verb in (self.node.merge, lambda vm: self.node.snapshot(vm, "third")):
            self.assertRaises(DevicePending, verb, "vm1")
        self.node.kernel.end_reads()
        self.node.merge("vm1")
        self.assertEqual(("abce", "ab.d"), (self.read("vm1"), self.read("vm2")))
        self.assertEqual([2, 2], [len(self.node.chain(vm)) for vm in ("vm1", "vm2")])

    def merge_in_part(self, written, error):
        """Merge vm1's stores, with only so many records of the end being written down."""
        count, put = itertools.count(), Records.put

        def putting(records, record):
            is_begun = any(one.merging for one in records.inventory().stores.values())
            if is_begun and next(count) == written:
                raise error
            put(records, record)

        with fixtures.MockPatchObject(Records, "put", putting):
            self.assertRaises(type(error), self.node.merge, "vm1")

    def test_a_merges_end_that_was_written_down_in_part_is_ended(self):
        for written in range(3):  # of the records of a snapshot and of two stores
            _, other = self.share()
            self.merge_in_part(written, OSError(errno.EIO, "injected"))
            self.node.stop()
            self.node.kernel.mappings[f"virtman_debian_store_{other}"].hung = True
            self.node.start()
            self.node.recover()
            self.write("vm1", c3="e")
            self.assertEqual(("abce", "ab.d"), (self.read("vm1"), self.read("vm2")), written)
            self.node.kernel.end_reads()
            for vm in ("vm2", "vm1"):
                self.node.merge(vm)
            self.assertEqual(("abce", "ab.d"), (self.read("vm1"), self.read("vm2")), written)
            self.assertEqual([2, 2], [len(self.node.chain(vm)) for vm in ("vm1", "vm2")], written)
            for vm in ("vm1", "vm2"):
                self.node.destroy(vm)
            self.node.delete_snapshot("second")
            self.assertEqual([], self.stores())

    def test_nor_is_one_kept_from_its_end_by_a_snapshot_that_needs_more(self):
        self.share()
        self.node.snapshot("vm2", "third")
        self.node.destroy("vm2")
        self.node.create("vm3")
        self.merge_in_part(2, NoSpace("injected"))
        self.node.merge("vm1")
        self.node.destroy("vm3")
        self.assertFalse([s for s in self.node.records.inventory().stores.values() if s.merging])
        self.node.create("vm2", snapshot="third")
        self.assertEqual(("abc.", "ab.d"), (self.read("vm1"), self.read("vm2")))

    def test_a_vm_whose_store_is_away_keeps_no_other_from_being_merged(self):
        self.node.create("vm1")
        self.node.snapshot("vm1", "first")
        self.write("vm1", c0="a")
        self.node.delete_snapshot("first")
        self.node.create("vm2")
        (away,) = self.node.records.inventory().chain(self.node.records.get("vm2").store)
        with fixtures.MockPatchObject(Merger, "_await", lambda *_: False):
            self.node.merge("vm1")
        self.node.stop()
        if self.lvm:
            del self.node.kernel.volumes[away.path]
        else:
            Path(away.path).unlink()
        self.node.reboot()
        self.assertEqual(["vm2"], list(self.node.recover()))
        self.node.merge("vm1")
        self.assertEqual(("a...", 1), (self.read("vm1"), len(self.node.chain("vm1"))))

    def test_nobody_is_held_for_a_merges_end_that_is_still_to_be_written_down(self):
        self.share()
        self.merge_in_part(1, OSError(errno.EIO, "injected"))
        suspend, held = self.node.kernel.dm.suspend, []
        self.node.kernel.dm.suspend = lambda name, *more: (held.append(name), suspend(name, *more))
        self.node.snapshot("vm2", "third")
        self.assertEqual([], held)

    def test_all_that_is_held_for_a_merge_has_ten_seconds_together(self):
        self.share()
        suspend, given = self.node.kernel.dm.suspend, []

        def suspending(name, flush, freeze, patience):
            given.append(patience)
            time.sleep(0.05)
            suspend(name, flush, freeze, patience)

        self.node.kernel.dm.suspend = suspending
        self.node.merge("vm1")
        self.assertEqual(2, len(given))
        self.assertLess(given[0], 10.001)
        self.assertLess(given[1], given[0] - 0.05)

    def test_a_device_that_was_left_in_the_middle_of_a_swap_goes_on(self):
        self.share()
        self.node.stop()
        before = self.node.kernel.state()
        for one in self.node.kernel.mappings.values():
            one.suspended = "_vm_" not in one.name
        self.node.start()
        self.assertEqual([], self.node.recover())
        self.assertEqual(before, self.node.kernel.state())

    def test_vms_whose_reads_have_no_end_are_not_held_again_and_again(self):
        self.bed.register("other")
        asked = []

        def merge(merger, vm):
            asked.append(vm)
            if vm != "vm3":
                raise DevicePending("does not end")
            merger.stores.changed.set()
            if asked.count(vm) == 3:
                merger.stop()

        for vm, image in (("vm1", "debian"), ("vm2", "debian"), ("vm3", "other")):
            self.node.create(vm, image)
        self.useFixture(fixtures.MockPatchObject(Merger, "merge", merge))
        with self.node.process.here():
            self.node.merger.stores.changed.set()
            self.node.merger.rounds.run()
        self.assertEqual(["vm1", "vm3", "vm3", "vm3"], asked)

    def test_a_vm_is_shown_while_its_stores_are_changed(self):
        def show():
            with self.node.process.here():
                return self.node.agent.show("vm1")

        self.node.create("vm1")
        suspension = self.node.agent.stores.suspension
        with ThreadPoolExecutor(1) as pool, suspension.locked_image("debian"):
            self.assertEqual("ready", pool.submit(show).result(10).state)


class CrowdTest(SnapshotCase):
    def test_all_at_once_each_vm_has_its_own_bytes(self):
        self.node.create("base")
        self.write("base", c0="0")
        self.node.snapshot("base", "begin")
        with self.node.process.here():
            self.node.merger.start()
        try:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(self.live, range(4)))
        finally:
            self.node.merger.stop()
            self.node.merger.rounds.join()
        self.node.delete_snapshot("begin")
        for vm in ("base", *(f"vm{number}" for number in range(4))):
            self.node.merge(vm)
        self.assertEqual("0...", self.read("base"))
        for number in range(4):
            self.assertEqual(f"0{number}55", self.read(f"vm{number}"))
        for vm in ("base", *(f"vm{number}" for number in range(4))):
            self.node.destroy(vm)
        self.assertEqual([], self.stores())

    def live(self, number):
        vm = f"vm{number}"
        self.node.create(vm, snapshot="begin")
        self.write(vm, c1=str(number))
        for turn in range(6):
            self.write(vm, c2=str(turn))
            self.node.snapshot(vm, f"{vm}-{turn}")
            self.write(vm, c3=str(turn))
            self.node.create(f"{vm}-copy", snapshot=f"{vm}-{turn}")
            shown = f"0{number}{turn}{turn - 1 if turn else '.'}"
            self.assertEqual(shown, self.read(f"{vm}-copy"))
            self.node.destroy(f"{vm}-copy")
            if turn > 2:
                self.node.delete_snapshot(f"{vm}-{turn - 2}")
        for turn in (0, 4, 5):
            self.node.delete_snapshot(f"{vm}-{turn}")


class KilledCase(SnapshotCase):
    """The agent dies at each root verb in turn; a new one makes everything right."""

    def setUp(self):
        super().setUp()
        self.node.create("vm1")
        self.write("vm1", c0="a")
        self.node.snapshot("vm1", "one")
        self.write("vm1", c1="b")
        self.node.settle()

    def killed(self, work, *, fail=False):
        """Run ``work`` with the process dying, or a verb failing, at each verb in turn."""
        for index in range(1, ENOUGH):
            self.node.process.fate(**{"fail_at" if fail else "kill_at": index})
            with contextlib.suppress(Killed, VirtmanError):
                work(index)
            fired = self.node.process.fired
            self.node.process.fate()
            if not fired:
                self.assertGreater(index, 2)
                return
            if not fail:
                self.node.process.dead = True
                self.restart(reboot=index % 2 == 1)
                self.node.settle()
            yield f"verb {index}, {fired}"
        self.fail("more verbs than expected")

    def assert_tidy(self, verb):
        """Nothing is there that nobody needs, and chains are short."""
        self.node.recover()
        for one in self.node.records.all():
            self.node.merge(one.vm)
        inventory = self.node.records.inventory()
        self.assertEqual([], inventory.garbage(), verb)
        self.assertEqual(sorted(inventory.stores), self.stores(), verb)
        devices = {
            name.rsplit("_", 1)[1] for name in self.node.kernel.mappings if "_store_" in name
        }
        self.assertEqual(inventory.served(), devices, verb)
        loops = {one.path for one in self.node.kernel.loops.values() if one.path.endswith(".cow")}
        files = {inventory.stores[name].path for name in devices} - self.node.kernel.volumes.keys()
        self.assertEqual(files, loops, verb)
        self.assertFalse([one for one in inventory.stores.values() if one.merging], verb)


class KilledTest(KilledCase):
    """While snapshots are made, used and given up."""

    def snapshots(self):
        return set(self.node.records.inventory().snapshots)

    def assert_snapshots_right(self, work_fails):
        for verb in self.killed(lambda index: self.node.snapshot("vm1", f"n{index}"),
                                fail=work_fails):  # fmt: skip
            self.assertEqual("ab..", self.read("vm1"), verb)
            self.assert_tidy(verb)
            for name in self.snapshots() - {"one"}:
                self.node.create("vm2", snapshot=name)
                self.assertEqual("ab..", self.read("vm2"), verb)
                self.node.destroy("vm2")
                self.node.delete_snapshot(name)

    def test_while_a_snapshot_is_taken(self):
        self.assert_snapshots_right(work_fails=False)

    def test_a_snapshot_that_fails_leaves_nothing(self):
        self.assert_snapshots_right(work_fails=True)

    def assert_rollbacks_right(self, work_fails):
        for verb in self.killed(lambda _: self.node.rollback("vm1", "one"), fail=work_fails):
            self.assertIn(self.read("vm1"), ("ab..", "a..."), verb)
            self.assert_tidy(verb)
            self.write("vm1", c1="b")

    def test_while_a_vm_is_rolled_back(self):
        self.assert_rollbacks_right(work_fails=False)

    def test_a_rollback_that_fails_leaves_all_as_it_was(self):
        self.assert_rollbacks_right(work_fails=True)

    def assert_merges_right(self, work_fails):
        """Two kinds in turn: into a store below, and into a copy of it."""

        def live(_):
            self.node.snapshot("vm1", "two")
            self.write("vm1", c2="c")
            self.node.snapshot("vm1", "three")
            self.node.merge("vm1")
            self.node.delete_snapshot("two")
            self.node.merge("vm1")

        for verb in self.killed(live, fail=work_fails):
            self.assertIn(self.read("vm1"), ("ab..", "abc."), verb)
            self.assert_tidy(verb)
            self.assertIn(self.read("vm1"), ("ab..", "abc."), verb)
            for name in self.snapshots():
                self.node.create("vm2", snapshot=name)
                expected = {"one": "a...", "two": "ab..", "three": "abc."}[name]
                self.assertEqual(expected, self.read("vm2"), (verb, name))
                self.node.destroy("vm2")
            self.node.rollback("vm1", "one")
            for name in self.snapshots() - {"one"}:
                self.node.delete_snapshot(name)
            self.write("vm1", c1="b")

    def test_while_stores_are_merged(self):
        self.assert_merges_right(work_fails=False)

    def test_a_merge_that_fails_is_repeated(self):
        self.assert_merges_right(work_fails=True)

    def test_while_a_vm_is_made_from_a_snapshot_and_destroyed(self):
        def live(_):
            self.node.create("vm2", snapshot="one")
            self.node.destroy("vm2")

        for verb in self.killed(live):
            self.assertEqual("ab..", self.read("vm1"), verb)
            self.assert_tidy(verb)
            if len(self.node.records.all()) > 1:
                self.assertEqual("a...", self.read("vm2"), verb)
                self.node.destroy("vm2")


class LogicalVolumeTest(SnapshotTest):
    """The same in logical volumes."""

    lvm = True

    def test_a_volume_has_its_space_from_the_start(self):
        self.node.create("vm1")
        with self.node.process.here():
            (shown,) = self.node.agent.list()
            self.assertEqual(math.inf, self.node.agent.stores.rooms.room(shown.chain).ahead)
        self.assertEqual(["/dev/vg0/virtman_s1"], [one.path for one in shown.chain])


class LogicalVolumeMergeTest(MergeTest):
    """Merged, too."""

    lvm = True


class GivenDeviceTest(SnapshotCase):
    """The first store of a VM is a device that somebody else made."""

    PATH = "/dev/disk/by-id/volume-1"

    def setUp(self):
        super().setUp()
        self.give(self.PATH, 2 * SIZE)

    def give(self, path, size):
        file = self.node.kernel.disk / path.rsplit("/", 1)[1]
        with open(file, "wb") as held:
            held.truncate(size)
        self.node.kernel.volumes[path] = Logical(f"65:{len(self.node.kernel.volumes)}", file)

    def test_it_takes_what_the_vm_writes_and_is_given_back_blank(self):
        self.node.create("vm1", store=self.PATH)
        self.write("vm1", c0="a")
        self.node.snapshot("vm1", "before")
        self.write("vm1", c1="b")
        self.node.delete_snapshot("before")
        self.node.merge("vm1")
        (store,) = self.node.records.inventory().chain(self.node.chain("vm1")[0])
        self.assertEqual(self.PATH, store.path)
        self.restart(reboot=True)
        self.assertEqual("ab..", self.read("vm1"))
        self.node.destroy("vm1")
        self.assertFalse(any(self.node.kernel.volumes[self.PATH].file.read_bytes()))

    def test_it_is_copied_where_snapshots_need_it(self):
        self.node.create("vm1", store=self.PATH)
        for number in range(4):
            self.write("vm1", **{f"c{number}": str(number)})
            self.node.snapshot("vm1", f"at{number}")
            self.node.merge("vm1")
        self.assertLessEqual(len(self.node.chain("vm1")), 3)
        self.assertEqual("0123", self.read("vm1"))
        self.node.rollback("vm1", "at0")
        self.assertEqual("0...", self.read("vm1"))

    def test_it_may_come_after_the_agent(self):
        self.node.create("vm1", store=self.PATH)
        self.write("vm1", c0="a")
        self.node.stop()
        self.node.reboot()
        away = self.node.kernel.volumes.pop(self.PATH)
        self.assertEqual(["vm1"], list(self.node.recover()))
        self.node.kernel.volumes[self.PATH] = away
        self.assertEqual([], self.node.recover())
        self.assertEqual("a...", self.read("vm1"))

    def exchange(self, identity, size, content=b""):
        """Have another device under the path after a reboot; return it and the one before."""
        before = self.node.kernel.volumes[self.PATH]
        self.give("/dev/other", size)
        other = self.node.kernel.volumes[self.PATH] = self.node.kernel.volumes.pop("/dev/other")
        other.identity = identity
        other.file.write_bytes(content.ljust(size, b"\0"))
        self.node.stop()
        self.node.reboot()
        return other, before

    def begun(self, identity="naa.1"):
        """Give a VM its device and let it write; return what the device holds."""
        volume = self.node.kernel.volumes[self.PATH]
        volume.identity = identity
        self.node.create("vm1", store=self.PATH)
        self.write("vm1", c0="a")
        return volume.file.read_bytes()

    def test_another_device_of_its_path_is_never_the_store(self):
        held = self.begun()
        for identity, size, content in (
            ("naa.2", 2 * SIZE, b""),
            ("naa.2", 2 * SIZE, b"LABELONE"),
            ("naa.2", 2 * SIZE, held),
            ("naa.1", 2 * SIZE - 4096, held[:-4096]),
            ("", 2 * SIZE, held),
            ("naa.1", 2 * SIZE, b""),
        ):
            other, right = self.exchange(identity, size, content)
            before = other.file.read_bytes()
            self.assertEqual(["vm1"], list(self.node.recover()), identity)
            self.assertEqual(before, other.file.read_bytes(), identity)
            self.assertIn(f"{self.PATH} ", self.log.output)
            self.node.kernel.volumes[self.PATH] = right
            self.assertEqual([], self.node.recover())
            self.assertEqual("a...", self.read("vm1"))

    def test_without_an_identity_the_size_tells_a_device_from_others(self):
        held = self.begun(identity="")
        _, right = self.exchange("", 3 * SIZE, held)
        self.assertEqual(["vm1"], list(self.node.recover()))
        self.node.kernel.volumes[self.PATH] = right
        self.assertEqual([], self.node.recover())

    def test_one_that_was_made_longer_is_the_same(self):
        held = self.begun()
        self.exchange("naa.1", 3 * SIZE, held)
        self.assertEqual([], self.node.recover())
        self.assertEqual("a...", self.read("vm1"))

    def test_another_device_is_left_alone_when_the_vm_is_given_up(self):
        held = self.begun()
        other, _ = self.exchange("naa.2", 2 * SIZE, held)
        self.assertEqual(["vm1"], list(self.node.recover()))
        self.node.destroy("vm1")
        self.assertEqual(held, other.file.read_bytes())
        self.assertEqual({}, self.node.records.inventory().stores)

    def test_a_store_of_an_earlier_version_must_hold_something(self):
        self.begun()
        (store,) = self.node.records.inventory().stores.values()
        self.node.records.put(replace(store, identity="", length=0))
        other, right = self.exchange("naa.2", 2 * SIZE)
        self.assertEqual(["vm1"], list(self.node.recover()))
        self.assertFalse(any(other.file.read_bytes()))
        self.node.kernel.volumes[self.PATH] = right
        self.assertEqual([], self.node.recover())
        self.assertEqual("a...", self.read("vm1"))

    def test_one_that_is_not_free_is_left_alone(self):
        self.give("/dev/short", SIZE)
        self.give("/dev/full", 2 * SIZE)
        full = self.node.kernel.volumes["/dev/full"].file
        full.write_bytes(b"something" + full.read_bytes()[9:])
        self.node.create("vm1", store=self.PATH)
        self.node.settle()
        before = self.node.everywhere()
        own = self.node.kernel.mappings["virtman_debian_vm_vm1"].number
        for path in (
            *(self.PATH, "/dev/short", "/dev/full", "/dev/none"),
            *("/etc/passwd", "/dev/../etc", "/dev/vg0/virtman_s1", "dev/x", "/dev/a b"),
            *("/dev/mapper/virtman_debian_origin", f"/dev/dm-{own.partition(':')[2]}"),
        ):
            error = self.assertRaises(StoreUnusable, self.node.create, "vm2", "debian", store=path)
            self.assertIn(path.strip("'"), str(error))
        self.assertEqual(before, self.node.everywhere())
        self.assertTrue(full.read_bytes().startswith(b"something"))

    def test_an_agent_that_dies_leaves_devices_of_others_alone(self):
        self.node.kernel.volumes[self.PATH].file.write_bytes(b"something" + bytes(2 * SIZE))
        for index in range(1, 12):
            self.node.process.fate(kill_at=index)
            with contextlib.suppress(Killed, VirtmanError):
                self.node.create("vm1", "debian", store=self.PATH)
            self.node.process.dead = True
            self.restart()
            held = self.node.kernel.volumes[self.PATH].file.read_bytes()
            self.assertTrue(held.startswith(b"something"), index)
