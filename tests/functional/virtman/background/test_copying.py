"""All of an image is brought here, checked and then read from here, whatever fails on the way."""

import threading
import time
from dataclasses import replace

import fixtures

from tests.functional.virtman.base import DEADLINE, ENOUGH, MIB, SIZE, TestCase
from tests.functional.virtman.doubles.process import Killed, current
from virtman.background import copying
from virtman.background.copying import Copying
from virtman.background.scrub import Scrubbing
from virtman.background.waiting import Waiting
from virtman.errors import (
    CopyUnknown,
    DeviceBusy,
    InvalidRequest,
    NoSpace,
    ParentUnreachable,
    VirtmanError,
)
from virtman.image import copies, demand, whole
from virtman.image.attachment import look
from virtman.image.comparison import Comparison
from virtman.image.copies import Copies
from virtman.image.whole import State
from virtman.model import copying as model
from virtman.model.copying import PIECE
from virtman.privileged import iscsi
from virtman.stack.transport import transport
from virtman.stack.transport.iscsi import path, sessions
from volt.model.images import CopyPolicy

IMAGE = "filled"
BLOCK = 4096


def content():
    """An image in which every block differs; half of it, and a block in between, are zeros."""
    data = bytearray(b"".join(number.to_bytes(8, "big") * 512 for number in range(1, 2049)))
    data[4 * MIB :] = bytes(4 * MIB)
    data[BLOCK : 2 * BLOCK] = bytes(BLOCK)
    data[-BLOCK:] = b"x" * BLOCK
    return bytes(data)


class CopyingCase(TestCase):
    def setUp(self):
        super().setUp()
        for module, name, value in (
            (whole, "LOOK", 0.01),
            (whole, "_UNSETTLED_S", 0.0),
            (whole, "_PATIENCE", 0.02),
            (copying, "_AGAIN", 0.0),
        ):
            self.useFixture(fixtures.MockPatchObject(module, name, value))
        self.useFixture(fixtures.MockPatchObject(threading, "excepthook", self.died))
        self.bed.fill(IMAGE, content())
        self.node = self.bed.node()

    def died(self, what):
        if what.exc_type is not Killed:
            threading.__excepthook__(what)

    def hydrate(self, rate=0):
        with self.node.process.here():
            self.node.copying.hydrate(IMAGE, rate)
        self.wait()

    def go_on(self):
        """Have done what is on record."""
        self.look()
        self.wait()

    def look(self):
        with self.node.process.here():
            self.node.copying.look()

    def wait(self):
        for thread in list(self.node.copying._threads.values()):
            thread.join()

    def release(self):
        with self.node.process.here():
            self.node.copying.release(IMAGE)

    def scrub(self):
        with self.node.process.here():
            return self.node.copying.scrub(IMAGE)

    def restart(self, boot=False):
        self.node.stop()
        self.node.reboot() if boot else self.node.start()
        self.assertEqual([], self.node.recover())
        self.go_on()

    def progress(self):
        return self.node.copying.progress(IMAGE)

    def file(self):
        return self.node.folder / "whole" / f"{IMAGE}.copy"

    def rot(self, at):
        with open(self.file(), "r+b") as file:
            file.seek(at)
            file.write(b"rot")

    def fetched(self):
        """Pieces of the image that were fetched."""
        return [
            number
            for name, offset, length in self.node.kernel.ahead
            if name.startswith(f"virtman_{IMAGE}_export") and offset < MIB + SIZE
            for number in range((offset - MIB) // PIECE, (offset - MIB + length - 1) // PIECE + 1)
        ]

    def table(self, role):
        return self.node.kernel.state()["dm"].get(f"virtman_{IMAGE}_{role}")

    def assert_whole(self, context=None):
        self.assertEqual(State.WHOLE, self.progress().state, context)
        self.assertTrue(self.node.agent.images.attached(IMAGE).is_local, context)
        self.assertEqual([], self.node.kernel.sessions, context)
        self.assertEqual(content(), self.file().read_bytes()[:SIZE], context)
        self.assertIn(f"virtman_{IMAGE}_whole", str(self.table("image")), context)
        self.assertIn(f"virtman_{IMAGE}_leafwhole", str(self.table("leaves")), context)

    def assert_fed(self):
        self.assertFalse(self.node.agent.images.attached(IMAGE).is_local)
        self.assertIn(f"virtman_{IMAGE}_stripe", str(self.table("image")))
        self.assertTrue(self.node.kernel.sessions)

    def assert_all_is_given_back(self):
        self.release()
        self.assert_all_was_given_back()

    def assert_all_was_given_back(self):
        for one in self.node.records.all():
            self.node.destroy(one.vm)
        self.node.drop(IMAGE)
        self.go_on()
        self.assert_nothing_is_left(self.node)


class WholeTest(CopyingCase):
    def test_all_comes_and_parents_and_cache_are_let_go_of(self):
        self.node.create("vm1", IMAGE)
        before = self.table("vm_vm1"), self.table("base")
        self.hydrate()
        self.assert_whole()
        self.assertEqual(before, (self.table("vm_vm1"), self.table("base")))
        self.assertEqual(
            ([], 0), (self.node.kernel.state()["caches"], len(self.node.records.moving()))
        )
        for role in ("cache", "stripe", "s0", "s1", "backing", "shim"):
            self.assertIsNone(self.table(role), role)
        self.assert_all_is_given_back()

    def test_it_is_told_of_once_no_session_is_left(self):
        told, logout = [], iscsi.logout

        def logged_out(*words):
            told.append(self.node.agent.images.attached(IMAGE).is_local)
            logout(*words)

        with fixtures.MockPatchObject(iscsi, "logout", logged_out):
            self.hydrate()
        self.assert_whole()
        self.assertEqual({False}, set(told))

    def test_zeros_are_neither_fetched_nor_stored(self):
        self.hydrate()
        self.assertEqual({*range(4 * MIB // PIECE), SIZE // PIECE - 1}, set(self.fetched()))
        self.assertEqual(len(self.fetched()), len(set(self.fetched())) + 1)  # a gap in the first
        stored = 4 * MIB + SIZE // 128
        self.assertEqual(stored, self.node.agent.images.copies.get(IMAGE).needs)
        self.assertLess(self.file().stat().st_blocks * 512, stored + PIECE)

    def test_what_is_stored_is_summed_over_parts_of_the_leaves(self):
        read, lengths = Comparison.read, []

        def counted(comparison, start, length):
            lengths.append(length)
            return read(comparison, start, length)

        together = fixtures.MockPatchObject(model, "_TOGETHER", BLOCK)
        with together, fixtures.MockPatchObject(Comparison, "read", counted):
            self.hydrate()
        self.assertEqual(4 * MIB + SIZE // 128, self.node.agent.images.copies.get(IMAGE).needs)
        self.assertLess(max(lengths[: SIZE // 128 // BLOCK]), SIZE // 128)

    def test_pieces_come_in_order_in_each_stripe(self):
        self.hydrate()
        for stripe in (0, 1):
            mine = [one for one in self.fetched() if one * PIECE // MIB % 2 == stripe]
            self.assertEqual(sorted(mine), mine)

    def test_what_came_for_the_copy_alone_leaves_memory(self):
        self.node.create("vm1", IMAGE)
        self.node.kernel.vm_reads(IMAGE, 3 * PIECE, PIECE)
        self.hydrate()
        held = {
            (page * BLOCK - MIB) // PIECE
            for name, one in self.node.kernel.mappings.items()
            if name.startswith(f"virtman_{IMAGE}_export")
            for page in one.pages
            if page * BLOCK < MIB + SIZE
        }
        self.assertEqual({3}, held)

    def test_vms_go_first_but_do_not_stop_it_for_good(self):
        self.node.create("vm1", IMAGE)
        origin = self.node.kernel.mapping(f"virtman_{IMAGE}_origin")
        origin.hung = True  # reads are on their way all the time
        self.useFixture(fixtures.MockPatchObject(whole, "_PATIENCE", 0.001))
        with self.node.process.here():
            self.node.copying.hydrate(IMAGE)
        self.await_(lambda: self.progress().state is not State.COPYING, self.progress)
        self.assertTrue(all(length <= PIECE for _, _, length in self.node.kernel.ahead))
        origin.hung = False
        self.wait()
        self.assert_whole()

    def want(self):
        """Have VMs of some host wait; return what is told of that here."""
        share = self.node.agent.images.attached(IMAGE).share
        share.want(is_wanted=True)
        return share

    def rested(self, rate=0):
        """Copy while VMs wait; return the seconds for which stripes rested."""
        share, rested = self.want(), []
        wait = share.wait

        def waited(length, seconds, is_over):
            self.assertIs(not rate, self.progress().held_back)
            rested.append(seconds)
            return wait(length, 0, is_over)

        with fixtures.MockPatchObject(share, "wait", waited):
            self.hydrate(rate)
        self.assert_whole()
        return rested

    def test_vms_of_other_hosts_go_first_too(self):
        self.node.create("vm1", IMAGE)
        share = self.want()
        with self.node.process.here():
            self.node.copying.hydrate(IMAGE)
        self.await_(lambda: self.progress().held_back, self.progress)
        self.assertEqual(1, self.node.samples()["virtman_copy_held_back", IMAGE])
        time.sleep(0.2)
        self.assertEqual((0, []), (self.progress().fetched, self.fetched()))
        share.want(is_wanted=False)
        self.wait()
        self.assert_whole()
        self.assertEqual(0, self.node.samples()["virtman_copy_held_back", IMAGE])

    def test_but_they_do_not_stop_it_for_good(self):
        self.node.create("vm1", IMAGE)
        self.useFixture(fixtures.MockPatchObject(whole, "_PAUSE", 0.0))
        self.useFixture(fixtures.MockPatchObject(whole, "_PARTS", 10**9))
        rested = self.rested()
        self.assertEqual({0.0, whole._LONGEST_REST}, set(rested))
        self.assertEqual(3, rested.count(0.0))  # leaves, and the first piece of each stripe
        self.assertTrue(all(length <= PIECE for _, _, length in self.node.kernel.ahead))

    def test_nor_do_they_hold_up_one_that_was_given_a_rate(self):
        self.node.create("vm1", IMAGE)
        self.assertLess(max(self.rested(rate=1 << 40)), 1)

    def test_volt_says_whether_vms_wait(self):
        self.node.create("vm1", IMAGE)
        other = self.bed.node("b")
        other.create("vm2", IMAGE)
        share = self.node.agent.images.attached(IMAGE).share
        origin = other.kernel.mapping(f"virtman_{IMAGE}_origin")
        waiting = Waiting(other.agent.images, other.beat)
        self.useFixture(fixtures.MockPatchObject(demand, "_HOLD", 0.1))
        with share.taken(capped=False):
            for reads in (0, 10):
                origin.read_times = (reads, reads * 10.0)
                with other.process.here():
                    waiting.look()
                self.node.beat()
                self.assertEqual(reads > 0, share.is_wanted)
            time.sleep(0.1)
            with other.process.here():
                waiting.look()
            other.beat()
            self.node.beat()
            self.assertFalse(share.is_wanted)

    def test_a_warm_image_is_read_from_its_copy_too(self):
        self.node = self.bed.node("b", warm=1e-9)
        self.node.create("vm1", IMAGE)
        (member,) = self.node.kernel.members.values()
        attachment = self.node.agent.images.attached(IMAGE)
        for _ in range(2):
            member.reads = (99, 0, 0)
            with self.node.process.here():
                attachment.mend(look([attachment]), transport.cut_off())
            self.node.settle()
        self.assertTrue(attachment.is_warm)
        self.hydrate()
        self.assert_whole()
        self.assertFalse(attachment.is_warm)
        self.assertNotIn("bcache", str(self.table("origin")))
        self.assert_all_is_given_back()

    def test_children_stay_and_are_served(self):
        child = self.bed.node("b")
        self.node.create("vm1", IMAGE)
        child.create("vm2", IMAGE)
        self.node.beat()
        sessions = [one.key for one in child.kernel.sessions]
        self.hydrate()
        self.assert_whole()
        child.beat()
        self.assertEqual(sessions, [one.key for one in child.kernel.sessions])
        failed = child.agent.images.attached(IMAGE).failed_paths(dict())
        self.assertEqual(0, failed)

    def test_a_placement_changes_nothing_but_what_children_prove(self):
        self.hydrate()
        before = self.node.kernel.state()["dm"]
        secret = self.bed.volt.renew_secret(IMAGE)
        self.node.beat()
        self.assertEqual(before, self.node.kernel.state()["dm"])
        self.assertEqual({secret}, {one.chap for one in self.node.kernel.targets()})
        self.assert_whole()

    def test_volt_hears_of_it_and_a_new_host_needs_no_source(self):
        self.hydrate()
        self.node.beat()
        image = self.bed.volt.ground.images.show(IMAGE)
        self.assertEqual((1, (1, 1), None), (image.copies, image.complete, image.home))
        self.bed.volt.ground.images.rehome(IMAGE, "a")
        self.node.beat()
        self.assert_whole()
        other = self.bed.node("b")
        other.create("vm2", IMAGE)
        other.settle()
        self.assertEqual({"a"}, set(other.agent.images.attached(IMAGE).parents))
        self.release()
        self.node.beat()
        image = self.bed.volt.ground.images.show(IMAGE)
        self.assertEqual((0, (0, 0)), (image.copies, image.complete))

    def test_a_host_with_a_copy_stands_by_for_a_source_that_dies(self):
        other = self.bed.node("b")
        other.create("vm2", IMAGE)
        self.hydrate()
        for node in (self.node, other):
            node.beat()
            node.settle()
        self.bed.network.targets = {
            key: one for key, one in self.bed.network.targets.items() if one.kernel is not None
        }
        third = self.bed.node("c")
        third.create("vm3", IMAGE)
        third.settle()
        self.assertTrue(third.agent.images.attached(IMAGE).parents)

    def test_what_volt_wants_is_copied_some_time_after_it_came(self):
        self.node.create("vm1", IMAGE)
        images = self.bed.volt.ground.images
        images.hydrate(IMAGE, CopyPolicy(3600, MIB))
        self.node.beat()
        self.go_on()
        self.assertIsNone(self.progress())
        images.hydrate(IMAGE, CopyPolicy(0, 1 << 30))
        self.node.beat()
        self.go_on()
        self.assert_whole()
        self.assertEqual(1 << 30, self.progress().rate)
        images.hydrate(IMAGE, None)
        self.node.beat()
        self.go_on()
        self.assert_whole()
        self.assert_all_is_given_back()

    def test_the_time_until_it_is_copied_counts_from_when_it_came_also_after_a_restart(self):
        now = 1e9

        def look():
            self.node.copying._clock = lambda: now
            self.go_on()

        self.node.create("vm1", IMAGE)
        self.node.settle()
        look()
        now += 300
        self.bed.volt.ground.images.hydrate(IMAGE, CopyPolicy(600, 0))
        self.node.beat()
        look()
        self.node.stop()
        self.node.reboot()
        now += 200
        look()  # it is on its way
        self.assertEqual([], self.node.recover())
        look()
        self.assertIsNone(self.progress())
        now += 100
        self.node.beat()
        look()
        self.assert_whole()

    def test_an_image_that_left_comes_anew(self):
        kept = self.node.copying.copies
        self.assertEqual({"a": 5.0, "b": 5.0}, kept.arrivals(["b", "a"], 5.0))
        self.assertEqual({"a": 5.0}, kept.arrivals(["a"], 6.0))
        self.assertEqual({"a": 4.0, "b": 4.0}, kept.arrivals(["a", "b"], 4.0))

    def test_it_is_given_back_though_parents_left_and_the_agent_was_not_told(self):
        self.leave(self.parents())
        self.release()
        self.assert_fed_by_the_source()

    def test_it_is_given_back_though_parents_leave_as_it_turns_to_them(self):
        others, stack = self.parents(), self.node.agent.stack
        up = stack.up

        def leaving(*given):
            stack.up = up
            built = up(*given)
            self.leave(others)
            return built

        stack.up = leaving
        self.release()
        self.assert_fed_by_the_source()

    def test_it_is_given_back_though_parents_leave_while_it_looks_at_their_disks(self):
        others, merge_nothing = self.parents(), path.block.merge_nothing

        def leaving(disk):
            merge_nothing(disk)
            parent = sessions.session_behind(disk)
            self.leave([one for one in others if parent and one.name == parent.host])

        with fixtures.MockPatchObject(path.block, "merge_nothing", leaving):
            self.release()
        self.assert_fed_by_the_source()

    def parents(self):
        """Have a whole copy, and others that would feed it, as far as this node knows."""
        others = [self.bed.node(name) for name in "bcd"]
        for node in (self.node, *others):
            node.create("vm1", IMAGE)
        self.node.beat()
        self.hydrate()
        self.node.beat()
        return others

    def leave(self, nodes):
        for node in nodes:
            node.stop()
            node.kernel.forget()
            self.bed.volt.forget(IMAGE, node.name)

    def assert_fed_by_the_source(self):
        self.assert_fed()
        fed_by = {one.key[2].split(":")[-2] for one in self.node.kernel.sessions}
        self.assertEqual({"storage"}, fed_by)
        self.assertNotIn(str(self.file()), str(self.node.kernel.state()))
        self.assertFalse(self.file().exists())
        self.assert_all_was_given_back()

    def test_another_host_copies_what_one_gives_back(self):
        with fixtures.MockPatchObject(copying, "_AGAIN", 60.0):
            other = self.bed.node("b")
            for node in (self.node, other):
                node.create("vm1", IMAGE)
                node.settle()
                node.beat()
            self.bed.volt.ground.images.hydrate(IMAGE, CopyPolicy(0, 0, 1))
            self.take_turns(self.node, other)
            self.assert_whole()
            self.assertIsNone(other.copying.progress(IMAGE))
            self.release()
            self.take_turns(self.node, other)
            self.assertIsNone(self.progress())
            self.assertEqual(State.WHOLE, other.copying.progress(IMAGE).state)

    def take_turns(self, *nodes):
        """Let Volt and each node hear of each other, and do what follows."""
        for node in (*nodes, *nodes):
            node.beat()
            with node.process.here():
                node.copying.look()
            for thread in list(node.copying._threads.values()):
                thread.join()
            node.beat()
            self.bed.volt.ground.copies.tend()

    def test_a_host_that_has_no_space_says_so(self):
        self.node.create("vm1", IMAGE)
        with fixtures.MockPatchObject(copies.Copies, "begin", lambda *_: self.refuse()):
            self.bed.volt.ground.images.hydrate(IMAGE, CopyPolicy(0, 0))
            with fixtures.MockPatchObject(copying, "_AGAIN", 60.0):
                self.node.beat()
                self.go_on()
        self.node.beat()
        report = self.bed.volt.ground.hosts.show("a").report
        self.assertTrue(report.images[IMAGE].declines)
        self.assertGreater(report.room, 0)

    def refuse(self):
        raise NoSpace("no space")

    def test_it_stays_attached_until_the_copy_is_given_back(self):
        self.hydrate()
        self.assertIn(
            "virtman image release", str(self.assertRaises(DeviceBusy, self.node.drop, IMAGE))
        )
        self.assertEqual(frozenset(), self.node.agent.images.attached(IMAGE).vms)
        self.assert_all_is_given_back()

    def test_what_is_about_to_begin_has_not_stopped(self):
        with fixtures.MockPatchObject(copying.Copying, "_spawn", lambda *_: None):
            self.hydrate()
            self.assertEqual((State.COPYING, ""), (self.progress().state, self.progress().verdict))
        with fixtures.MockPatchObject(whole.Copier, "_wrong", lambda copier: [7]):
            self.go_on()
        self.assertEqual(State.STOPPED, self.progress().state)
        with fixtures.MockPatchObject(copying.Copying, "_spawn", lambda *_: None):
            self.hydrate()
            self.assertEqual((State.COPYING, ""), (self.progress().state, self.progress().verdict))

    def test_a_rate_that_is_set_as_a_copy_becomes_whole_leaves_it_whole(self):
        self.hydrate()
        kept = self.node.agent.images.copies
        kept.change(replace(kept.get(IMAGE), whole=False), rate=MIB)
        self.assertEqual((True, MIB), (kept.get(IMAGE).whole, kept.get(IMAGE).rate))

    def test_who_looks_at_the_same_moment_begins_no_second_copier(self):
        look, both, began = Copying._is_done, threading.Barrier(2), []

        def together(of, copy):
            found = look(of, copy)
            both.wait(DEADLINE)
            return found

        def work(of, image):
            began.append(image)
            end.wait(DEADLINE)

        end = threading.Event()
        with self.node.process.here():
            self.node.copying._begin(IMAGE, 0)
        with (
            fixtures.MockPatchObject(Copying, "_is_done", together),
            fixtures.MockPatchObject(Copying, "_work", work),
        ):
            others = [threading.Thread(target=self.look) for _ in range(2)]
            for one in others:
                one.start()
            for one in others:
                one.join()
            end.set()
            self.wait()
        self.assertEqual([IMAGE], began)

    def test_what_cannot_be_copied_is_refused(self):
        self.bed.register("plain", hashed=False)
        with self.node.process.here():
            self.assertRaises(InvalidRequest, self.node.copying.hydrate, "plain")
        self.assertRaises(CopyUnknown, self.release)
        self.assert_nothing_is_left(self.node)


class EndedTest(CopyingCase):
    """What was copied outlives agents and nodes."""

    def test_a_new_agent_changes_nothing_and_logs_in_nowhere(self):
        self.node.create("vm1", IMAGE)
        self.hydrate()
        before, logins = self.node.kernel.state(), self.node.kernel.logins()
        self.restart()
        self.assertEqual(before, self.node.kernel.state())
        self.assertEqual(logins, self.node.kernel.logins())
        self.assert_whole()
        self.assert_all_is_given_back()

    def test_a_node_that_boots_needs_neither_source_nor_volt(self):
        self.node.create("vm1", IMAGE)
        self.hydrate()
        logins = self.node.kernel.logins()
        self.bed.network.targets = {
            key: one for key, one in self.bed.network.targets.items() if one.kernel is not None
        }
        self.bed.volt.silence()
        self.restart(boot=True)
        self.assert_whole()
        self.assertIsNotNone(self.table("vm_vm1"))
        self.assertEqual(logins, self.node.kernel.logins())

    def test_an_image_without_vms_comes_back_too_and_keeps_its_place(self):
        self.hydrate()
        self.node.stop()
        self.node.reboot()
        with self.node.process.here():
            self.node.watch.fetch(0)  # Volt's word comes before the image is there
        self.assertIn("a", self.bed.volt.hosts(IMAGE))
        self.assertEqual([], self.node.recover())
        self.go_on()
        self.assert_whole()

    def test_what_is_on_the_disk_does_not_come_again(self):
        read = self.node.kernel.doubles
        count = iter(range(1000))
        page_cache = next(one for one in read.values() if type(one).__name__ == "PageCache")
        begun = page_cache.read

        def dies(*arguments):
            if next(count) == 8:
                self.node.process.dead = True
                raise OSError("killed")
            return begun(*arguments)

        page_cache.read = dies
        self.hydrate()
        self.assertEqual(State.STOPPED, self.progress().state)
        self.assertIn("killed", self.progress().verdict)
        written = copies.held(self.node.agent.images.copies.get(IMAGE))
        there = [one for one in range(SIZE // PIECE) if one in written]
        self.assertTrue(there)
        page_cache.read = begun
        self.node.kernel.ahead.clear()
        self.restart(boot=True)
        self.assertEqual(set(), set(there) & set(self.fetched()))
        self.assert_whole()

    def test_a_look_changes_no_record_and_a_new_agent_mends_it(self):
        self.hydrate()
        kept, info = self.node.agent.images.copies, self.node.agent.images.info(IMAGE)
        self.assertEqual((str(self.file()), True), kept.of(info))
        other = replace(info, size=info.size + 512)
        self.assertEqual(("", False), kept.of(other))
        with open(self.file(), "r+b") as file:
            file.truncate(MIB)
        self.assertEqual((str(self.file()), False), kept.of(info))
        self.assertTrue(kept.get(IMAGE).whole)
        kept.prepare()
        self.assertFalse(kept.get(IMAGE).whole)
        self.assertEqual(0, copies.held(kept.get(IMAGE)).count())
        self.assertIsNone(kept.mended(other))
        self.assertFalse(self.file().exists())

    def test_a_copy_that_was_cut_is_made_anew(self):
        self.hydrate()
        self.node.stop()
        with open(self.file(), "r+b") as file:
            file.truncate(MIB)
        self.restart(boot=True)
        self.assert_whole()

    def test_a_copy_of_an_earlier_image_goes(self):
        self.hydrate()
        self.node.stop()
        self.bed.delete(IMAGE)
        self.bed.fill(IMAGE, content()[::-1])
        self.restart(boot=True)
        self.assertIsNone(self.progress())
        self.assertEqual([], list((self.node.folder / "whole").iterdir()))

    def test_an_image_that_is_made_anew_meanwhile_is_not_kept_by_its_copy(self):
        self.hydrate()
        self.bed.delete(IMAGE)
        self.bed.fill(IMAGE, content()[::-1])
        self.node.beat()  # Volt does not know this host's place any more
        self.go_on()
        self.assertIsNone(self.progress())
        self.node.settle()
        self.node.create("vm1", IMAGE)
        self.assert_fed()
        self.hydrate()
        self.assertEqual(content()[::-1], self.file().read_bytes()[:SIZE])

    def test_files_without_a_record_go(self):
        self.node.stop()
        file = self.node.folder / "whole" / "other.copy"
        file.touch()
        self.node.start()
        self.assertFalse(file.exists())


class WrongTest(CopyingCase):
    """A copy that is not right is not used, and what is wrong comes again."""

    def test_what_the_disk_does_not_give_back_is_fetched_again(self):
        check, rounds = whole.Copier._wrong, []

        def rotten(copier):
            if not rounds:
                self.rot(5 * PIECE + 8192)
            rounds.append(check(copier))
            return rounds[-1]

        self.useFixture(fixtures.MockPatchObject(whole.Copier, "_wrong", rotten))
        self.hydrate()
        self.assertEqual([[5], []], rounds)
        self.assertEqual(2, self.fetched().count(5))
        self.assert_whole()

    def test_leaves_are_checked_too(self):
        check, rounds = whole.Copier._wrong, []

        def rotten(copier):
            if not rounds:
                self.rot(SIZE + 100)
            rounds.append(check(copier))
            return rounds[-1]

        self.useFixture(fixtures.MockPatchObject(whole.Copier, "_wrong", rotten))
        self.hydrate()
        self.assertEqual([[SIZE // PIECE], []], rounds)
        self.assert_whole()

    def test_a_disk_that_is_always_wrong_ends_it(self):
        self.useFixture(fixtures.MockPatchObject(whole.Copier, "_wrong", lambda copier: [7]))
        self.hydrate()
        self.assertIn("wrong again and again", self.progress().verdict)
        self.assert_fed()
        self.assertFalse(self.node.agent.images.copies.get(IMAGE).whole)

    def test_a_scrub_finds_rot_and_has_it_mended(self):
        self.hydrate()
        self.assertEqual((SIZE, ()), (self.scrub().checked, self.scrub().dropped))
        self.rot(3 * MIB)
        self.assertEqual((3 * MIB,), self.scrub().dropped)
        self.assert_fed()
        self.node.kernel.ahead.clear()
        self.go_on()
        self.assertEqual([3 * MIB // PIECE], self.fetched())
        self.assert_whole()

    def test_the_scrub_that_comes_by_itself_reads_copies(self):
        self.node.create("vm1", IMAGE)
        self.hydrate()
        self.rot(MIB)
        with self.node.process.here():
            Scrubbing(self.node.agent.images, self.node.copying, 0, 1e6).round()
        self.go_on()
        self.assert_whole()

    def test_rot_stays_where_nobody_else_has_the_image(self):
        self.hydrate()
        before = self.node.kernel.state()
        self.rot(3 * MIB)
        self.node.settle()
        gone = {key: one for key, one in self.bed.network.targets.items() if one.kernel is None}
        for key in gone:
            del self.bed.network.targets[key]
        self.assertRaises(ParentUnreachable, self.scrub)
        self.assertEqual(before["dm"], self.node.kernel.state()["dm"])
        self.assertTrue(self.node.agent.images.copies.get(IMAGE).whole)
        self.bed.network.targets |= gone
        self.assertEqual((3 * MIB,), self.scrub().dropped)
        self.go_on()
        self.assert_whole()

    def test_a_read_that_meets_rot_is_answered_by_parents(self):
        self.node.create("vm1", IMAGE)
        self.hydrate()
        self.rot(3 * MIB)
        self.node.kernel.meet_wrong_bytes(f"virtman_{IMAGE}_whole")
        self.node.beat()
        self.assert_fed()
        self.go_on()
        self.assert_whole()
        self.assertEqual({}, {k: v for k, v in self.node.kernel.path_states(
            f"virtman_{IMAGE}_image").items() if v != "A"})  # fmt: skip


class SpaceTest(CopyingCase):
    def test_a_copy_that_does_not_fit_is_refused(self):
        self.useFixture(fixtures.MockPatchObject(type(self.node.agent.images.copies.space), "spare",
                                                 lambda self, folder: 1000))  # fmt: skip
        error = self.assertRaises(NoSpace, self.hydrate)
        self.assertIn("more than are free and promised to nobody", str(error))
        self.assertIsNone(self.progress())

    def test_one_whose_leaves_tell_that_it_does_not_fit_ends(self):
        self.useFixture(fixtures.MockPatchObject(type(self.node.agent.images.copies.space), "spare",
                                                 lambda self, folder: MIB))  # fmt: skip
        self.node.create("vm1", IMAGE)
        self.hydrate()
        self.assertIn("needs 4259840 bytes", self.progress().verdict)
        self.assertEqual([], self.fetched())
        self.assert_fed()

    def test_what_it_still_needs_is_promised(self):
        space = self.node.agent.stores.space
        before = space.room().promised
        with self.node.process.here():
            copy = self.node.agent.images.copies.begin(self.node.agent.images.info(IMAGE), 0)
        self.node.agent.images.copies.promise(copy, 3 * MIB)
        self.assertEqual(before + 3 * MIB, space.room().promised)

    def test_a_full_disk_stops_it_and_it_goes_on_later(self):
        self.node.create("vm1", IMAGE)
        with fixtures.MockPatchObject(copies, "_free", lambda folder: 1000):
            self.hydrate()
        self.assertEqual(State.STOPPED, self.progress().state)
        self.assertIn("free some space", self.progress().verdict)
        self.assert_fed()
        self.go_on()
        self.assert_whole()


def counted(function):
    """Return a function that counts as a step at which its process may die."""

    def step(*arguments, **words):
        with current().kernel.lock:
            current().passes(function.__name__)
        return function(*arguments, **words)

    return step


class KilledTest(CopyingCase):
    """An agent dies at each root verb and each change of a record in turn."""

    def setUp(self):
        super().setUp()
        for kind, name in ((Copies, "change"), (Copies, "forget"), (copies, "write_held")):
            step = counted(getattr(kind, name))
            self.useFixture(fixtures.MockPatchObject(kind, name, step))

    def killed(self, work):
        for index in range(1, ENOUGH):
            self.node.process.fate(kill_at=index)
            try:
                work()
                self.node.settle()
            except (Killed, VirtmanError):
                pass
            self.wait()
            fired = self.node.process.fired
            self.node.process.dead = bool(fired)
            self.node.stop()
            self.node.start()
            if not fired:
                self.assertGreater(index, 2)
                return
            self.assertEqual([], self.node.recover(), fired)
            yield f"step {index}, {fired}"
        self.fail("more steps than expected")

    def test_a_copy_that_was_cut_short_goes_on(self):
        self.node.create("vm1", IMAGE)
        self.node.settle()
        for step in self.killed(self.hydrate):
            self.go_on()
            if self.progress() is None:  # nothing was on record yet
                self.hydrate()
            self.assert_whole(step)
            self.assertIsNotNone(self.table("vm_vm1"), step)
            self.release()
            self.assert_fed()
        self.go_on()
        self.assert_all_is_given_back()

    def test_a_release_that_was_cut_short_is_made_or_not(self):
        self.node.create("vm1", IMAGE)
        self.hydrate()
        for step in self.killed(self.release):
            self.go_on()
            if self.progress() is not None:
                self.assert_whole(step)
            self.hydrate()
            self.assert_whole(step)
        self.node.recover()
        self.go_on()
        self.assert_fed()
        self.node.destroy("vm1")
        self.node.drop(IMAGE)
        self.go_on()
        self.assert_nothing_is_left(self.node)
