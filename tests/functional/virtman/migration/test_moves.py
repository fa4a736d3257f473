"""VMs that are copied and moved between nodes: right bytes, one owner, whoever dies and when."""

import contextlib
import errno
import hashlib
import math
import threading
import time
import tracemalloc

import fixtures
import zstandard

from tests.functional.virtman.base import ENOUGH, FOREVER, SIZE, TestCase
from tests.functional.virtman.doubles.model import CHUNK
from tests.functional.virtman.doubles.process import Killed, current
from virtman.disk.disks import Stores
from virtman.disk.merger import Merger
from virtman.disk.records import Records
from virtman.disk.suspension import Suspension
from virtman.errors import (
    ImageDiffers,
    InstanceExists,
    InstanceUnknown,
    InvalidName,
    InvalidRequest,
    MoveGarbled,
    MoveInProgress,
    MoveStale,
    MoveUnknown,
    NoSpace,
    PeerUnknown,
    PeerUnreachable,
    StoreInvalid,
    VersionDiffers,
    VirtmanError,
)
from virtman.migration import incoming, journey, outgoing, sender
from virtman.migration.peer_client import Peer
from virtman.migration.rounds import Rounds
from virtman.model import dirty
from virtman.model.handover import Move, Piece


class MoveCase(TestCase):
    lvm = False

    def setUp(self):
        super().setUp()
        self.bed.lvm = self.lvm
        # every piece is of two chunks, and counts at once
        self.useFixture(fixtures.MockPatchObject(dirty, "PORTION", 2 * CHUNK))
        self.useFixture(fixtures.MockPatchObject(incoming, "_KEEP", CHUNK))
        self.a, self.b = (self.bed.node(name, keep=FOREVER) for name in "ab")
        for node in (self.a, self.b):
            node.serve()

    def write(self, node, vm, **chunks):
        """Write as a VM does; one that is held for longer than a swap takes is not waited for."""
        for left in reversed(range(30)):
            try:
                with node.kernel.lock:  # stores may be merged meanwhile
                    for chunk, text in chunks.items():
                        node.kernel.write(f"virtman_debian_vm_{vm}", int(chunk[1:]), text)
                return
            except BlockingIOError:
                if not left or node.agent.stores.suspension.is_handing_over(vm):
                    raise
                time.sleep(0.01)

    def read(self, node, vm, chunks=8):
        name = f"virtman_debian_vm_{vm}"
        with node.kernel.lock:
            return "".join(node.kernel.read(name, chunk) or "." for chunk in range(chunks))

    def status(self, node, vm):
        with node.process.here():
            return node.moves.show(vm)

    def ended(self, vm="vm1", node=None):
        node = node or self.a
        self.await_(
            lambda: self.status(node, vm).state in ("done", "failed"),
            lambda: self.status(node, vm),
        )
        return self.status(node, vm)

    def restart(self, node, reboot=False):
        node.die()
        node.reboot() if reboot else node.start()
        node.recover()
        node.look()
        node.serve()

    def stores(self, node):
        return [*node.records.stores.glob("*.cow"), *node.kernel.volumes]

    def names(self, node):
        return [one.vm for one in node.records.all()]

    def assert_tidy(self, *nodes):
        for node in nodes:
            self.assertEqual(([], []), (node.records.moving(), node.records.arriving()))
            self.assertFalse(node.records.inventory().snapshots)
            self.await_(
                lambda node=node: (
                    not node.records.inventory().garbage()
                    and len(self.stores(node)) == len(node.records.inventory().stores)
                ),
                lambda node=node: (node.records.inventory().stores, self.stores(node)),
            )


class CloneTest(MoveCase):
    def test_a_copy_has_the_bytes_of_its_moment_and_the_vm_goes_on(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a", c1="b", c4="c", c5="d", c7="e")
        self.a.snapshot("vm1", "mine")
        self.write(self.a, "vm1", c1="x")
        self.a.clone("vm1", "b", "copy")
        self.write(self.a, "vm1", c2="y")
        ended = self.ended()
        self.assertEqual(("done", None), (ended.state, ended.pause), ended)
        self.assertIn(self.read(self.b, "copy"), ("ax..cd.e", "axy.cd.e"))
        self.assertEqual("axy.cd.e", self.read(self.a, "vm1"))
        self.assertIn(ended.sent, (5 * CHUNK, 6 * CHUNK))
        self.assertEqual(1, len(self.b.chain("copy")))
        self.a.delete_snapshot("mine")
        self.assert_tidy(self.a, self.b)
        self.write(self.b, "copy", c0="z")
        self.assertEqual("a", self.read(self.a, "vm1", 1))

    def test_a_disk_that_became_longer_is_copied_whole(self):
        last = 2 * SIZE // CHUNK - 1
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        self.a.snapshot("vm1", "mine")
        with self.a.process.here():
            self.a.agent.resize("vm1", 2 * SIZE)
        self.write(self.a, "vm1", c1="b", **{f"c{last}": "z"})
        self.a.clone("vm1", "b", "copy")
        self.assertEqual("done", self.ended().state)
        self.assertEqual("ab......", self.read(self.b, "copy"))
        self.assertEqual("z", self.b.kernel.read("virtman_debian_vm_copy", last))
        self.assertEqual(2 * SIZE, self.b.records.get("copy").size)
        self.a.rollback("vm1", "mine")
        self.a.clone("vm1", "b", "again")
        self.assertEqual("done", self.ended().state)
        self.assertEqual("a.......", self.read(self.b, "again"))

    def test_what_goes_over_the_wire_is_compressed(self):
        take, taken = incoming.Arrivals.take, []

        def taking(one, host, vm, piece, packed):
            taken.append(len(packed))
            take(one, host, vm, piece, packed)

        self.useFixture(fixtures.MockPatchObject(incoming.Arrivals, "take", taking))
        self.a.create("vm1")
        self.write(self.a, "vm1", **{f"c{number}": "again and " * 100 for number in range(8)})
        self.a.clone("vm1", "b", "copy")
        ended = self.ended()
        self.assertEqual(("done", 8 * CHUNK), (ended.state, ended.sent), ended)
        self.assertEqual(sum(taken), ended.wire)
        self.assertLess(ended.wire, ended.sent // 100)

    def test_a_vm_that_wrote_nothing_can_be_copied(self):
        self.a.create("vm1", quota=1 << 30)
        self.a.clone("vm1", "b", "vm1")
        self.assertEqual("done", self.ended().state)
        self.assertEqual("........", self.read(self.b, "vm1"))
        self.assertEqual(1 << 30, self.b.records.get("vm1").quota)

    def test_what_cannot_be_changes_nothing(self):
        self.a.create("vm1")
        self.a.create("vm2")
        self.b.create("vm2")
        self.bed.register("other")
        self.a.create("vm3", "other")
        self.a.snapshot("vm1", "mine")
        self.a.settle()
        self.b.settle()
        for node in (self.a, self.b):
            with node.process.here():
                node.credentials.client()
        before = self.a.everywhere(), self.b.everywhere()
        for error, verb, *arguments in (
            (InstanceUnknown, self.a.clone, "vm9", "b", "copy"),
            (PeerUnknown, self.a.clone, "vm1", "nope", "copy"),
            (InvalidRequest, self.a.clone, "vm1", "a", "copy"),
            (InvalidName, self.a.clone, "vm1", "b", "No"),
            (InvalidName, self.a.migrate, "vm1", "../b"),
            (InstanceExists, self.a.clone, "vm1", "b", "vm2"),
            (InstanceExists, self.a.migrate, "vm2", "b"),
        ):
            self.assertRaises(error, verb, *arguments)
            self.assertEqual(before, (self.a.everywhere(), self.b.everywhere()), error)
        self.useFixture(fixtures.MockPatchObject(self.b.backing, "free", lambda: 0))
        self.assertRaises(NoSpace, self.a.migrate, "vm1", "b")
        self.assertEqual(before, (self.a.everywhere(), self.b.everywhere()))

    def test_the_image_must_be_the_same_on_both_hosts(self):
        self.a.create("vm1")
        self.bed.remake("debian", "another")
        self.assertRaises(ImageDiffers, self.a.clone, "vm1", "b", "copy")
        self.assertEqual([], self.names(self.b))

    def test_agents_of_another_version_are_refused(self):
        self.a.create("vm1")
        self.useFixture(fixtures.MockPatchObject(sender, "VERSION", 7))
        self.assertRaises(VersionDiffers, self.a.clone, "vm1", "b", "copy")

    def test_a_full_destination_keeps_the_vm_where_it_is(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        self.b.agent.stores.space.afford = self.no_space
        self.a.migrate("vm1", "b")
        ended = self.ended()
        self.assertEqual(("failed", NoSpace.code), (ended.state, ended.code))
        self.assertEqual("a", self.read(self.a, "vm1", 1))
        self.assertEqual([], self.names(self.b))
        self.assert_tidy(self.a, self.b)

    def no_space(self, size):
        raise NoSpace("there is none")


class MigrateTest(MoveCase):
    def move(self, vm="vm1"):
        self.a.migrate(vm, "b")
        ended = self.ended(vm)
        self.assertEqual("done", ended.state, ended)
        return ended

    def test_a_vm_moves_with_all_that_it_wrote(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a", c3="b", c6="c")
        ended = self.move()
        self.assertGreater(ended.pause, 0)
        self.assertEqual("a..b..c.", self.read(self.b, "vm1"))
        self.assertEqual(([], ["vm1"]), (self.names(self.a), self.names(self.b)))
        self.assertNotIn("virtman_debian_vm_vm1", self.a.kernel.mappings)
        self.assert_tidy(self.a, self.b)

    def test_what_is_written_meanwhile_goes_too(self):
        """Each round finds something new; the last part goes while the VM is held."""
        self.useFixture(fixtures.MockPatchObject(sender, "PAUSE", -1.0))
        self.useFixture(fixtures.MockPatchObject(sender, "SHRINKS", math.inf))
        self.useFixture(fixtures.MockPatchObject(sender, "ROUNDS", 3))
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="0")
        send, written = sender.Sender._send, []

        def sending(one, *arguments):
            send(one, *arguments)
            number = len(written)
            with contextlib.suppress(BlockingIOError):
                self.write(self.a, "vm1", **{"c0": str(number), f"c{number + 1}": str(number)})
                written.append(number)

        self.useFixture(fixtures.MockPatchObject(sender.Sender, "_send", sending))
        ended = self.move()
        self.assertEqual([0, 1, 2, 3], written)
        self.assertEqual("30123...", self.read(self.b, "vm1"))
        self.assertEqual(4, ended.move.round)

    def test_a_vm_whose_reads_have_no_end_moves_once_they_have(self):
        self.useFixture(fixtures.MockPatchObject(journey, "_PENDING", 0.01))
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        self.a.kernel.mappings["virtman_debian_vm_vm1"].hung = True
        self.a.migrate("vm1", "b")
        self.await_(lambda: self.status(self.a, "vm1").note, lambda: self.status(self.a, "vm1"))
        self.assertIn("does not end", self.status(self.a, "vm1").note)
        self.write(self.a, "vm1", c1="b")
        self.a.kernel.end_reads()
        self.assertEqual("done", self.ended().state)
        self.assertEqual("ab", self.read(self.b, "vm1", 2))

    def test_a_vm_goes_on_although_it_cannot_be_written_down_that_it_does(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        put, full = Records.put, []

        def putting(records, record):
            if isinstance(record, Move) and (record.handed or full):
                full.append(record)
                raise NoSpace("the disk is full")
            put(records, record)

        with fixtures.MockPatchObject(Records, "put", putting):
            self.a.migrate("vm1", "b")
            self.assertEqual("failed", self.ended().state)
        self.assertEqual([True, False], [one.handed for one in full])
        self.write(self.a, "vm1", c1="b")
        self.assertEqual("ab", self.read(self.a, "vm1", 2))
        self.assert_tidy(self.a, self.b)

    def test_a_move_that_failed_is_undone_once_the_disk_can_be_written(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        forget, broken = Records.forget, []

        def forgetting(records, record):
            if isinstance(record, Move) and len(broken) < 2:
                broken.append(record)
                raise OSError(errno.EROFS, "the file system is read-only")
            forget(records, record)

        def sealed(suspension, vm):
            raise StoreInvalid("injected")

        with (
            fixtures.MockPatchObject(Records, "forget", forgetting),
            fixtures.MockPatchObject(Suspension, "suspend", sealed),
        ):
            self.a.migrate("vm1", "b")
            self.assertEqual("failed", self.ended().state)
        self.assertEqual(2, len(broken))
        self.assertEqual("injected", self.ended().note)
        self.assertEqual([], list(self.a.records.inventory().snapshots))
        self.write(self.a, "vm1", c1="b")
        self.assertEqual("ab", self.read(self.a, "vm1", 2))
        self.assert_tidy(self.a, self.b)

    def test_data_stay_where_the_record_may_say_that_they_are(self):
        """The record was renamed, but its folder cannot be synced; then nothing is written."""
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        put, forget, failed = Records.put, Records.forget, []

        def putting(records, record):
            if records is self.a.records and isinstance(record, Move) and (record.handed or failed):
                if not failed:
                    put(records, record)
                failed.append(record)
                raise OSError(errno.EIO, "the folder is not on the disk")
            put(records, record)

        def forgetting(records, record):
            if records is self.a.records and failed:
                failed.append(record)
                raise OSError(errno.EIO, "the folder is not on the disk")
            forget(records, record)

        with (
            fixtures.MockPatchObject(Records, "put", putting),
            fixtures.MockPatchObject(Records, "forget", forgetting),
        ):
            self.a.migrate("vm1", "b")
            self.await_(lambda: len(failed) > 2)
            self.a.die()
        self.a.start()
        self.a.recover()
        self.a.serve()
        self.await_(lambda: not self.a.records.moving())
        self.assertEqual(([], ["vm1"]), (self.names(self.a), self.names(self.b)))
        self.assertEqual("a", self.read(self.b, "vm1", 1))

    def test_a_move_that_was_cancelled_stays_so_whatever_becomes_of_the_agent(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        began, cut = threading.Event(), threading.Event()

        def send(peer, *_):
            began.set()
            cut.wait(30)
            raise PeerUnreachable("it does not answer")

        self.addCleanup(cut.set)
        with fixtures.MockPatchObject(Peer, "send", send):
            self.a.migrate("vm1", "b")
            self.assertTrue(began.wait(30))
            self.a.moves._journeys["vm1"].timeout = 0.1
            with self.a.process.here():
                self.a.moves.cancel("vm1")
            self.a.process.dead = True
            cut.set()
            self.a.die()
        self.a.start()
        self.a.recover()
        self.a.serve()
        ended = self.ended()
        self.assertEqual(("failed", "virtman.move.cancelled"), (ended.state, ended.code))
        self.assertEqual(["vm1"], self.names(self.a))
        self.write(self.a, "vm1", c1="b")
        self.assertEqual("ab", self.read(self.a, "vm1", 2))
        self.assert_tidy(self.a, self.b)

    def test_a_name_is_free_once_nothing_is_left_of_the_vm_that_moved_away(self):
        self.a.create("vm1")
        forget, away = Records.forget, [True]

        def forgetting(records, record):
            if records is self.a.records and isinstance(record, Move) and away[0]:
                raise OSError(errno.EIO, "not just now")
            forget(records, record)

        with fixtures.MockPatchObject(Records, "forget", forgetting):
            self.a.migrate("vm1", "b")
            self.await_(lambda: not self.names(self.a))
            self.assertRaises(MoveInProgress, self.a.create, "vm1")
            self.assertRaises(MoveInProgress, self.b.migrate, "vm1", "a")
            away[0] = False
            self.await_(lambda: not self.a.records.moving())
        self.a.create("vm1")
        self.assertEqual((["vm1"], ["vm1"]), (self.names(self.a), self.names(self.b)))

    def test_a_vm_that_is_held_goes_on_when_the_agent_stops_though_the_peer_is_silent(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        silent, answered = threading.Event(), threading.Event()

        def complete(peer, *arguments):
            silent.set()
            answered.wait(30)
            raise PeerUnreachable("it does not answer")

        self.addCleanup(answered.set)
        with (
            fixtures.MockPatchObject(Peer, "complete", complete),
            fixtures.MockPatchObject(outgoing, "_LAST", 0.1),
        ):
            self.a.migrate("vm1", "b")
            self.assertTrue(silent.wait(30))
            self.assertTrue(self.a.kernel.mappings["virtman_debian_vm_vm1"].suspended)
            with self.a.process.here():
                self.a.moves.stop()
            self.write(self.a, "vm1", c1="b")
            answered.set()
        self.assertEqual("ab", self.read(self.a, "vm1", 2))

    def test_what_cannot_be_written_down_here_is_let_go_of_there_at_once(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        put = Records.put

        def putting(records, record):
            if isinstance(record, Move):
                raise NoSpace("the disk is full")
            put(records, record)

        for live in (False, True):
            with fixtures.MockPatchObject(Records, "put", putting):
                self.assertRaises(NoSpace, self.a.migrate, "vm1", "b", live=live)
            self.assertEqual(([], []), (self.names(self.b), self.b.records.arriving()))
        self.assert_tidy(self.a, self.b)
        self.a.migrate("vm1", "b")
        self.assertEqual("done", self.ended().state)

    def test_an_offer_whose_answer_was_lost_is_let_go_of_within_a_minute(self):
        self.a.create("vm1")
        offer = Peer.offer

        def lost(peer, *arguments):
            offer(peer, *arguments)
            raise PeerUnreachable("the line is down")

        with fixtures.MockPatchObject(Peer, "offer", lost):
            self.assertRaises(PeerUnreachable, self.a.migrate, "vm1", "b", live=True)
        self.assertEqual(["vm1"], self.names(self.b))
        self.assertLess(1.5 * incoming._QUIET, 60)
        with fixtures.MockPatchObject(incoming, "_QUIET", 0.0), self.b.process.here():
            self.b.arrivals.look()
        self.assertEqual([], self.names(self.b))
        self.assert_tidy(self.a, self.b)

    def test_a_vm_that_is_just_being_offered_is_no_orphan(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        sends, receive, asked, looks = Peer.sends, Stores.receive, threading.Event(), []

        def look():
            with self.b.process.here():
                self.b.arrivals.look()

        def asking(peer, move):
            known = sends(peer, move)
            asked.set()
            return known

        def received(stores, wanted):
            receive(stores, wanted)
            looks.append(threading.Thread(target=look))
            looks[0].start()
            self.assertTrue(asked.wait(10))

        self.useFixture(fixtures.MockPatchObject(Peer, "sends", asking))
        self.useFixture(fixtures.MockPatchObject(Stores, "receive", received))
        self.a.migrate("vm1", "b")
        looks[0].join()
        self.assertEqual("done", self.ended().state)
        self.assertEqual("a", self.read(self.b, "vm1", 1))

    def test_a_round_goes_on_where_the_link_or_an_agent_died(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", **{f"c{number}": str(number) for number in range(8)})
        take, taken = incoming.Arrivals.take, []

        def taking(one, host, vm, piece, packed):
            if len(taken) == 2:
                taken.append("died")
                self.restart(self.b, reboot=True)
                raise MoveStale("this process has died")
            take(one, host, vm, piece, packed)
            taken.append(piece.end)

        self.useFixture(fixtures.MockPatchObject(incoming.Arrivals, "take", taking))
        ended = self.move()
        self.assertEqual([2, 4, "died", 6, 8], taken)
        self.assertEqual(8 * CHUNK, ended.sent)
        self.assertEqual("01234567", self.read(self.b, "vm1"))

    def test_what_a_round_sent_is_on_the_disk_before_the_next_one(self):
        """A power cut of the destination would lose it, and nobody sends it again."""
        self.useFixture(fixtures.MockPatchObject(incoming, "_KEEP", 1 << 30))
        self.useFixture(fixtures.MockPatchObject(sender, "PAUSE", -1.0))
        self.a.create("vm1")
        self.write(self.a, "vm1", c3="a")
        freeze, kept = sender.Sender._freeze, []

        def frozen(one, number):
            arrival = self.b.records.arrival("vm1")
            kept.append((arrival.done, arrival.complete))
            return freeze(one, number)

        self.useFixture(fixtures.MockPatchObject(sender.Sender, "_freeze", frozen))
        self.move()
        self.assertEqual([(0, False), (4, False)], kept[:2])

    def merging_after(self, owner, name):
        """Have node a merge what it can right after each call of a function; return the merges.

        One that has to wait for the verb which called the function goes on after that.
        """
        called, merges = getattr(owner, name), []

        def merge():
            with self.a.process.here():
                Merger(self.a.agent.stores).merge("vm1")

        def calling(*arguments):
            found = called(*arguments)
            is_mine = current() is self.a.process and threading.current_thread() not in merges
            if is_mine and self.a.records.inventory().merge("vm1"):
                merges.append(threading.Thread(target=merge))
                merges[-1].start()
                merges[-1].join(0.2)
            return found

        self.useFixture(fixtures.MockPatchObject(owner, name, calling))
        return merges

    def assert_right_whatever_merges_after(self, owner, name):
        """Move a VM with much to merge, in several rounds."""
        self.useFixture(fixtures.MockPatchObject(sender, "PAUSE", -1.0))
        self.useFixture(fixtures.MockPatchObject(sender, "_MERGES", 0.0))
        self.a.merger.stop()
        self.a.create("vm1")
        for chunk, text in enumerate("abcd"):
            self.write(self.a, "vm1", **{f"c{chunk}": text})
            self.a.snapshot("vm1", f"at-{text}")
        for text in "abcd":
            self.a.delete_snapshot(f"at-{text}")
        freeze = sender.Sender._freeze

        def frozen(one, number):
            self.write(self.a, "vm1", **{f"c{4 + number % 4}": str(number)})
            return freeze(one, number)

        self.useFixture(fixtures.MockPatchObject(sender.Sender, "_freeze", frozen))
        merges = self.merging_after(owner, name)
        self.a.migrate("vm1", "b")
        ended = self.ended()
        for one in merges:
            one.join()
        self.assertEqual(("done", ""), (ended.state, ended.note), ended)
        self.assertTrue(merges)
        self.assertEqual("abcd", self.read(self.b, "vm1", 4))

    def test_a_merge_in_the_middle_of_a_snapshot_of_a_round_waits(self):
        self.assert_right_whatever_merges_after(Stores, "_next")

    def test_a_merge_while_a_round_looks_at_its_stores_waits(self):
        self.assert_right_whatever_merges_after(Rounds, "_newer")

    def test_what_was_garbled_on_the_way_is_sent_again(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a", c3="b", c6="c")
        send, garbled = Peer.send, []

        def sending(peer, vm, piece, content):
            if not garbled:
                garbled.append(content)
                content = bytes(len(content))
            return send(peer, vm, piece, content)

        self.useFixture(fixtures.MockPatchObject(Peer, "send", sending))
        self.move()
        self.assertEqual("a..b..c.", self.read(self.b, "vm1"))

    def test_what_would_grow_beyond_its_piece_is_not_unpacked(self):
        packed = zstandard.compress(bytes(64 << 20))
        piece = Piece("1", 0, ((0, CHUNK),), 1, hashlib.sha256(bytes(CHUNK)).hexdigest())
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        self.assertRaises(MoveGarbled, incoming._unpacked, piece, packed, 8 << 20)
        self.assertLess(tracemalloc.get_traced_memory()[1], 1 << 20)

    def test_a_vm_can_go_and_come_back(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        self.move()
        self.write(self.b, "vm1", c1="b")
        self.b.migrate("vm1", "a")
        self.assertEqual("done", self.ended(node=self.b).state)
        self.assertEqual("ab......", self.read(self.a, "vm1"))
        self.assert_tidy(self.a, self.b)

    def test_its_snapshots_stay(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        self.a.snapshot("vm1", "mine")
        self.write(self.a, "vm1", c0="b")
        self.move()
        self.a.create("vm2", snapshot="mine")
        self.assertEqual(("a", "b"), (self.read(self.a, "vm2", 1), self.read(self.b, "vm1", 1)))

    def test_a_vm_can_begin_elsewhere_at_a_snapshot(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a", c3="b")
        self.a.snapshot("vm1", "mine")
        self.write(self.a, "vm1", c0="x", c1="y")
        self.a.create("vm2", snapshot="mine")
        self.a.migrate("vm2", "b")
        self.assertEqual("done", self.ended("vm2").state)
        self.assertEqual("a..b....", self.read(self.b, "vm2"))
        self.assertEqual(["vm1"], self.names(self.a))
        self.assertEqual("xy.b....", self.read(self.a, "vm1"))
        self.assertEqual(["mine"], list(self.a.records.inventory().snapshots))
        self.a.delete_snapshot("mine")
        self.assert_tidy(self.a, self.b)

    def test_who_has_the_old_device_open_gets_errors(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        self.a.kernel.held.add("/dev/mapper/virtman_debian_vm_vm1")
        self.a.migrate("vm1", "b")
        self.await_(lambda: self.status(self.a, "vm1").note, lambda: self.status(self.a, "vm1"))
        self.assertEqual("handed", self.status(self.a, "vm1").state)
        self.assertEqual("a", self.read(self.b, "vm1", 1))
        (row,) = self.a.kernel.mappings["virtman_debian_vm_vm1"].table
        self.assertEqual("error", row[2])
        self.a.kernel.held.clear()
        self.assertEqual("done", self.ended().state)
        self.assert_tidy(self.a, self.b)

    def test_a_vm_on_its_way_is_left_alone(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a", c2="b", c4="c", c6="d")
        self.b.listener.stop()
        self.b.listener._server = None
        with self.b.process.here():
            self.a.credentials.client()
        self.useFixture(fixtures.MockPatchObject(sender.Sender, "try_offer", lambda *_, **__: None))
        self.a.records.put(Move("vm1", "x" * 32, "b", "vm1", False))
        for verb, *arguments in (
            (self.a.destroy, "vm1"),
            (self.a.snapshot, "vm1", "mine"),
            (self.a.rollback, "vm1", "mine"),
            (self.a.migrate, "vm1", "b"),
            (self.a.clone, "vm1", "b", "copy"),
        ):
            self.assertRaises(MoveInProgress, verb, *arguments)
        self.assertEqual("a", self.read(self.a, "vm1", 1))

    def test_a_move_can_be_cancelled_while_the_other_host_is_away(self):
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        freeze = sender.Sender._freeze

        def frozen(one, number):
            self.b.die()
            return freeze(one, number)

        self.useFixture(fixtures.MockPatchObject(sender.Sender, "_freeze", frozen))
        self.a.migrate("vm1", "b")
        self.await_(lambda: self.status(self.a, "vm1").note, lambda: self.status(self.a, "vm1"))
        with self.a.process.here():
            self.a.moves.cancel("vm1")
        ended = self.ended()
        self.assertEqual(("failed", "virtman.move.cancelled"), (ended.state, ended.code))
        self.write(self.a, "vm1", c1="b")
        self.assertEqual("ab", self.read(self.a, "vm1", 2))
        self.assert_tidy(self.a)
        self.b.start()
        self.b.recover()
        self.b.serve()
        self.assertEqual(["vm1"], self.names(self.b))
        with self.b.process.here():
            self.b.arrivals.look()
        self.assertEqual([], self.names(self.b))
        self.assert_tidy(self.b)

    def test_what_the_other_host_gave_up_halfway_is_not_begun_anew(self):
        """It would lack all that earlier rounds had."""
        self.useFixture(fixtures.MockPatchObject(sender, "PAUSE", -1.0))
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a")
        freeze = sender.Sender._freeze

        def frozen(one, number):
            if number:
                with self.b.process.here():
                    self.b.arrivals.give_up("vm1")
                self.write(self.a, "vm1", c1="b")
            return freeze(one, number)

        self.useFixture(fixtures.MockPatchObject(sender.Sender, "_freeze", frozen))
        self.a.migrate("vm1", "b")
        ended = self.ended()
        self.assertEqual(("failed", MoveUnknown.code), (ended.state, ended.code))
        self.assertEqual("ab", self.read(self.a, "vm1", 2))
        self.assertEqual([], self.names(self.b))
        self.assert_tidy(self.a, self.b)


class LogicalVolumeTest(MigrateTest):
    """The same in logical volumes."""

    lvm = True


def counted(function, after=False):
    """Return a function that counts as a step at which its process may die; twice if ``after``."""

    def step(*arguments):
        def passes(name):
            with current().kernel.lock:
                current().passes(name)

        passes(function.__name__)
        found = function(*arguments)
        if after:
            passes(f"{function.__name__}, answered")
        return found

    return step


class KilledTest(MoveCase):
    """An agent dies at each step in turn, and a new one takes its place.

    A step is a root verb, a change of a record, and a call of the other agent: before it is
    made, and after it was answered.
    """

    def setUp(self):
        super().setUp()
        for kind, name, after in (
            (Records, "put", False),
            (Records, "forget", False),
            (Peer, "_call", True),
        ):
            step = counted(getattr(kind, name), after)
            self.useFixture(fixtures.MockPatchObject(kind, name, step))
        self.useFixture(fixtures.MockPatchObject(threading, "excepthook", self.died))

    def died(self, what):
        if what.exc_type is not Killed:
            threading.__excepthook__(what)

    def device(self, node):
        return node.kernel.mappings.get("virtman_debian_vm_vm1")

    def owner(self):
        """Return the one node that owns the VM; a VM runs on no other."""
        device, move = self.device(self.a), self.a.records.move("vm1")
        handed = move is not None and move.handed
        here = "vm1" in self.names(self.a) and not handed
        there = "vm1" in self.names(self.b) and (handed or not self.b.records.arrival("vm1"))
        if handed:
            there = True
            self.assertTrue(device is None or device.suspended or device.table[0][2] == "error")
        self.assertEqual(1, here + there, (move, self.names(self.a), self.names(self.b)))
        if here:
            self.assert_no_data(self.device(self.b))
        return self.a if here else self.b

    def assert_no_data(self, device):
        """A destination that does not own the VM has no device that shows what came of it."""
        self.assertIsNone(device)

    def assert_survives(self, victim, start):
        """Move or copy a VM, with a node's agent dying at each step in turn."""
        owners = set()
        for index in range(1, ENOUGH):
            self.a.create("vm1")
            self.write(self.a, "vm1", c0="a", c2="b", c4="c", c6="d", c7=str(index % 10))
            self.a.settle()
            self.b.settle()
            victim.process.fate(kill_at=index)
            with contextlib.suppress(Killed, VirtmanError):
                start()
            self.await_(
                lambda: victim.process.fired or self.quiet(),
                lambda: (self.a.moves.all(), victim.process),
            )
            fired, expected = victim.process.fired, f"a.b.c.d{index % 10}"
            victim.process.fate()
            if fired:
                victim.die()
                where = self.owner()
                owners.add(where)
                self.restart(victim, reboot=index % 3 == 1)
                self.owner()
                expected = expected.replace(".", self.written(where), 1)
            self.finish((index, fired, expected))
            if not fired:
                self.assertGreater(index, 15)
                return owners
        self.fail("more steps than expected")

    def written(self, node):
        """Have the VM write where it runs; return what must be there from then on."""
        with contextlib.suppress(BlockingIOError, OSError):
            self.write(node, "vm1", c1="w")
            return "w"
        return "."

    def finish(self, case):
        """Wait until all is over, and look whether it is right; then remove the VM."""
        self.await_(lambda: not self.a.records.moving(), lambda: (case, self.a.moves.all()))
        with self.b.process.here():
            self.b.arrivals._coming.clear()  # of a move that had hardly begun
            self.b.arrivals.look()
        self.assert_right(case)
        self.assert_tidy(self.a, self.b)
        for node in (self.a, self.b):
            for vm in self.names(node):
                node.destroy(vm)
            self.assertEqual([], self.stores(node), case)

    def assert_right(self, case):
        self.assertEqual(case[2], self.read(self.owner(), "vm1"), case)

    def quiet(self):
        with self.a.process.here():
            found = self.a.moves.all()
        return found and all(one.state in ("done", "failed") for one in found)

    def test_the_source_dies(self):
        owners = self.assert_survives(self.a, lambda: self.a.migrate("vm1", "b"))
        self.assertEqual({self.a, self.b}, owners)

    def test_the_destination_dies(self):
        owners = self.assert_survives(self.b, lambda: self.a.migrate("vm1", "b"))
        self.assertEqual({self.a, self.b}, owners)


class CopyKilledTest(KilledTest):
    """The same while a VM is copied: it goes on, and the copy is there as a whole or not at all."""

    def owner(self):
        self.assertIn("vm1", self.names(self.a))
        if self.b.records.arrival("copy"):
            self.assertNotIn("virtman_debian_vm_copy", self.b.kernel.mappings)
        return self.a

    def assert_right(self, case):
        super().assert_right(case)
        if "copy" in self.names(self.b):
            found = self.read(self.b, "copy")
            self.assertIn(found, (case[2], case[2].replace("w", ".")), case)

    def test_the_source_dies(self):
        self.assert_survives(self.a, lambda: self.a.clone("vm1", "b", "copy"))

    def test_the_destination_dies(self):
        self.assert_survives(self.b, lambda: self.a.clone("vm1", "b", "copy"))
