"""First boots are recorded, later ones are helped; whatever fails, VMs and images go on."""

import contextlib
import itertools
import threading
import time
from hashlib import sha256

import fixtures

from tests.functional.virtman.base import MIB, SIZE, TestCase, hashes
from tests.functional.virtman.doubles.process import Killed, current
from virtman.background.boots import Boots
from virtman.errors import ImageUnknown, KernelFailure, ProfileUnbound, ProfileUnknown
from virtman.image import boot, page_caches, prefetch, recording
from virtman.image.boot import Options
from virtman.image.prefetch import How
from virtman.image.share import SharedCap
from virtman.model.prefetch_order import Policy
from virtman.model.profile import merged
from virtman.model.profile_format import decode, encode

KIB = 1024
PIECE = 64 * KIB
BOOT = (0, 1, 17, 40, 41, 42, 100)
HOW = How(Policy.IN_ORDER, 4, SharedCap(0))
SETTLED = 0.2


class Quick(fixtures.Fixture):
    """A boot is over soon, and looked at often."""

    def _setUp(self):
        for module, name, value in (
            (boot, "LOOK", 0.01),
            (boot, "_AGAIN", 0.02),
            (boot, "_ASK_AGAIN", 0.02),
            (prefetch, "LOOK", 0.01),
            (prefetch, "_DOUBT_S", 0.01),
            (prefetch, "_UNREAD_S", 0.1),
            (recording, "_SETTLED", SETTLED),
        ):
            self.useFixture(fixtures.MockPatchObject(module, name, value))


class BootsCase(TestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(Quick())
        self.addCleanup(self.end)
        self.all = []

    def end(self):
        """Wait until nobody follows a boot."""
        for one in self.all:
            one.stop()
        self.await_(lambda: not following())

    def boots(self, node, record=1, how=HOW, piece=PIECE, prefetch=True):
        made = Boots(
            node.agent.images, Options(record, piece, prefetch, how), node.heartbeat.hasten
        )
        self.all.append(made)
        return made

    def begin(self, node, **options):
        """Have the boots on a node followed from now on."""
        boots = self.boots(node, **options)
        self.look(node, boots)
        return boots

    def look(self, node, boots):
        with node.process.here():
            boots.look()

    def follow(self, node, boots):
        """Look for boots until those that there are are over."""
        self.look(node, boots)
        self.await_(lambda: not following(), following)

    def record(self, node, numbers=BOOT, **options):
        """Have a VM read pieces, and its boot followed."""
        boots = self.begin(node, **options)
        for number in numbers:
            node.kernel.vm_reads("debian", number * PIECE, PIECE)
        self.follow(node, boots)

    def store(self, numbers=BOOT, content="debian", runs=1, workload="boot", piece=PIECE):
        """Have a profile at Volt."""
        made = None
        for _ in range(runs):
            made = merged(made, {one: 0.5 for one in numbers}, hashes(content)[0].root, piece)
        volt = self.bed.operator()
        present = volt.profile("debian", workload)
        volt.store_profile("debian", workload, encode(made), present and present[1])

    def stored(self, node):
        """Return the profile at Volt."""
        found = node.agent.coordinator.profile("debian", "boot")
        return decode(found[0]) if found else None


def following():
    return [one.name for one in threading.enumerate() if one.name.startswith(("boot ", "ahead "))]


class RecordingTest(BootsCase):
    def test_what_a_first_boot_reads_becomes_the_profile(self):
        node = self.bed.node()
        node.create("vm1")
        self.record(node)
        found = self.stored(node)
        self.assertEqual((1, BOOT), (found.runs, found.wanted()))
        self.assertEqual([set(BOOT)], [set(run) for run in found.latest])
        self.assertEqual({}, node.kernel.mappings["virtman_debian_origin"].counts)

    def test_what_the_kernel_reads_ahead_is_left_out(self):
        node = self.bed.node()
        node.create("vm1")
        boots = self.begin(node)
        node.kernel.vm_reads("debian", 3 * PIECE, PIECE, ahead=32 * KIB)
        node.kernel.vm_reads("debian", 9 * PIECE, 4 * KIB, ahead=60 * KIB)
        self.follow(node, boots)
        self.assertEqual((3, 9), self.stored(node).wanted())

    def test_pieces_may_be_smaller(self):
        node = self.bed.node()
        node.create("vm1")
        boots = self.begin(node, piece=4 * KIB)
        node.kernel.vm_reads("debian", 16 * KIB, 4 * KIB)
        self.follow(node, boots)
        found = self.stored(node)
        self.assertEqual((4 * KIB, (4,)), (found.piece_size, found.wanted()))

    def test_boots_at_once_on_several_nodes_are_merged(self):
        nodes = [self.bed.node(name) for name in "abc"]
        for node in nodes:
            node.create("vm1")
        found = []
        for number, node in enumerate(nodes):
            boots = self.begin(node, record=2)
            node.kernel.vm_reads("debian", number * PIECE, PIECE)
            node.kernel.vm_reads("debian", 50 * PIECE, PIECE)
            found.append(boots)
        self.await_(lambda: not following(), following)
        self.assertEqual(2, self.stored(nodes[0]).runs)
        self.assertIn(50, self.stored(nodes[0]).wanted())

    def test_only_the_first_boot_after_an_image_came_is_recorded(self):
        node = self.bed.node()
        node.create("vm1")
        self.record(node, record=9)
        node.create("vm2")
        self.follow(node, self.all[0])
        self.assertEqual(1, self.stored(node).runs)

    def test_a_boot_that_the_cache_answers_does_not_count(self):
        node = self.bed.node()
        node.create("vm1")
        node.kernel.cache_answers = True
        self.record(node)
        self.assertIsNone(self.stored(node))
        self.assertIn("the cache had what its VMs read", self.log.output)

    def test_a_vm_that_goes_before_its_boot_is_over_does_not_count(self):
        node = self.bed.node()
        node.create("vm1")
        boots = self.begin(node)
        node.kernel.vm_reads("debian", 0, PIECE)
        node.destroy("vm1")
        self.follow(node, boots)
        self.assertIsNone(self.stored(node))

    def test_nothing_binds_a_profile_to_an_image_without_hashes(self):
        self.bed.register("plain", hashed=False)
        node = self.bed.node()
        node.create("vm1", "plain")
        self.follow(node, self.boots(node))
        self.assertEqual(0, node.kernel.mappings["virtman_plain_origin"].area)
        self.assertNotIn("WARNING", self.log.output)

    def test_one_that_begins_while_others_are_looked_for_is_not_forgotten(self):
        node = self.bed.node()
        node.create("vm1")
        boots, begun = self.boots(node), []

        def begin():
            with node.process.here():
                begun.append(boots.count_anew(node.agent.images.attached("debian")))

        def attachments():
            other.start()
            other.join(0.2)
            return []  # the image came after that

        other = threading.Thread(target=begin)
        with fixtures.MockPatchObject(node.agent.images, "attachments", attachments):
            self.look(node, boots)
        other.join()
        self.assertEqual({"debian": begun[0]}, boots._boots)

    def test_none_is_recorded_if_none_is_wanted(self):
        node = self.bed.node()
        node.create("vm1")
        self.record(node, record=0)
        self.assertIsNone(self.stored(node))

    def test_one_that_volt_does_not_hear_of_is_stored_once_it_does(self):
        node = self.bed.node()
        node.create("vm1")
        self.begin(node)
        node.kernel.vm_reads("debian", 0, PIECE)
        self.await_(lambda: ("counted", "virtman_debian_origin") in node.kernel.log)
        self.bed.volt.silence()
        self.await_(lambda: "is not stored yet" in self.log.output)
        self.bed.volt.silence(False)
        self.await_(lambda: not following())
        self.assertEqual((0,), self.stored(node).wanted())

    def test_one_that_begins_while_volt_is_away_is_recorded_all_the_same(self):
        node = self.bed.node()
        node.create("vm1")
        self.bed.volt.silence()
        self.begin(node)
        node.kernel.vm_reads("debian", 0, PIECE)
        self.await_(lambda: "is not stored yet" in self.log.output)
        self.bed.volt.silence(False)
        self.await_(lambda: not following())
        self.assertEqual((0,), self.stored(node).wanted())

    def test_a_profile_that_cannot_be_read_is_replaced(self):
        identity = bytes.fromhex(hashes()[0].root)
        damaged = b"VMBP\x02" + identity + sha256(b"body").digest() + b"body"
        self.bed.operator().store_profile("debian", "boot", damaged, None)
        node = self.bed.node()
        node.create("vm1")
        self.record(node)
        self.assertEqual((1, BOOT), (self.stored(node).runs, self.stored(node).wanted()))
        self.assertIn("its boot is replaced: no valid boot profile", self.log.output)

    def test_an_agent_that_starts_counts_nothing_of_what_it_did_not_see(self):
        node = self.bed.node()
        node.create("vm1")
        node.die()
        node.start()
        self.assertEqual([], list(node.recover()))
        node.settle()
        self.assertEqual(0, node.kernel.mappings["virtman_debian_origin"].area)
        self.record(node)
        self.assertIsNone(self.stored(node))


class PrefetchTest(BootsCase):
    def setUp(self):
        super().setUp()
        self.store()
        self.node = self.bed.node()

    def fetched(self):
        """Return the pieces that were fetched ahead, in order."""
        found = []
        for name, offset, length in self.node.kernel.ahead:
            numbers = range((offset - MIB) // PIECE, -(-(offset - MIB + length) // PIECE))
            stripes = {number // 16 % 2 for number in numbers}
            self.assertEqual({int(name[-1])}, stripes)
            found += numbers
        return found

    def help(self, **options):
        self.node.create("vm1")
        boots = self.boots(self.node, **options)
        self.follow(self.node, boots)
        return boots

    def test_what_the_profile_names_is_fetched_once(self):
        boots = self.help()
        self.assertEqual(list(BOOT), sorted(self.fetched()))
        self.assertEqual(len(BOOT) * PIECE, boots.totals.fetched)
        self.assertIn("0.4 MiB were fetched ahead", self.log.output)

    def test_neighbours_come_at_once_while_no_vm_waits(self):
        self.store(range(16))
        self.help(how=How(Policy.IN_ORDER, 4, SharedCap(100 * MIB)))
        requests = [length // PIECE for _, _, length in self.node.kernel.ahead]
        self.assertEqual(list(range(16)), sorted(self.fetched()))
        self.assertLess(1, max(requests))
        self.assertGreaterEqual(4, max(requests))

    def test_however_long_pieces_are_half_a_mib_is_requested_at_once(self):
        for piece in (256 * KIB, MIB):
            self.store(range(6 * MIB // piece), piece=piece, workload=f"of-{piece}")
            with self.node.process.here():
                self.boots(self.node, how=How(Policy.IN_ORDER, 8, SharedCap(0))).warm(
                    "debian", f"of-{piece}"
                )
            self.await_(lambda: not following(), following)
            lengths = [length for _, _, length in self.node.kernel.ahead]
            self.assertEqual((6 * MIB, 512 * KIB), (sum(lengths), max(lengths)))
            self.node.drop()
            self.node.kernel.ahead.clear()

    def test_while_a_vm_waits_nothing_comes_before_it_read_a_piece(self):
        self.node.create("vm1")
        origin = self.node.kernel.mappings["virtman_debian_origin"]
        origin.hung = True
        boots = self.begin(self.node, how=HOW)
        time.sleep(SETTLED)
        self.assertEqual([], self.fetched())
        self.node.kernel.vm_reads("debian", 17 * PIECE, PIECE)
        self.follow(self.node, boots)
        self.assertEqual([0, 1, 40, 41, 42, 100], sorted(self.fetched()))
        self.assertEqual({PIECE}, {length for _, _, length in self.node.kernel.ahead})
        self.assertEqual(PIECE, boots.ahead("debian").missed)
        self.node.kernel.end_reads()

    def test_a_profile_that_is_asked_for_comes_whatever_vms_read(self):
        self.node.create("vm1")
        self.node.kernel.mappings["virtman_debian_origin"].hung = True
        boots = self.boots(self.node, record=0, prefetch=False)
        with self.node.process.here():
            boots.warm("debian")
        self.await_(lambda: not following(), following)
        self.assertEqual(list(BOOT), sorted(self.fetched()))
        self.node.kernel.end_reads()

    def test_at_random_is_all_too(self):
        self.help(how=How(Policy.WINDOW_RANDOM, 8, SharedCap(0)))
        self.assertEqual(list(BOOT), sorted(self.fetched()))

    def test_what_is_there_is_not_fetched(self):
        self.node.create("vm1")
        self.node.kernel.vm_reads("debian", 17 * PIECE, PIECE)
        self.follow(self.node, self.boots(self.node))
        self.assertEqual([0, 1, 40, 41, 42, 100], sorted(self.fetched()))

    def test_what_vms_read_of_it_is_counted(self):
        self.store(range(128))
        self.node.create("vm1")
        boots = self.begin(self.node, how=How(Policy.IN_ORDER, 1, SharedCap(20 * MIB)))
        self.await_(lambda: len(self.fetched()) > 8)
        self.node.kernel.vm_reads("debian", 2 * PIECE, PIECE)
        self.node.kernel.vm_reads("debian", 3 * PIECE, 4 * KIB)
        self.await_(lambda: boots.totals.used == 2 * PIECE, lambda: boots.totals)
        self.await_(lambda: not following(), following)
        self.assertIn("VMs read 0.1 of the", self.log.output)

    def test_no_more_than_the_cap_is_fetched_a_second(self):
        self.store(range(128))
        rate = 8 * MIB
        begin = time.monotonic()
        self.help(how=How(Policy.IN_ORDER, 8, SharedCap(rate)))
        spent = time.monotonic() - begin
        self.assertEqual(128, len(self.fetched()))
        self.assertGreater(spent, 0.85 * SIZE / rate)

    def test_a_boot_that_is_still_to_be_recorded_gets_no_help(self):
        self.node.create("vm1")
        self.record(self.node, record=2)
        self.assertEqual([], self.fetched())
        self.assertEqual(2, self.stored(self.node).runs)

    def test_one_of_another_image_is_refused(self):
        foreign = encode(merged(None, {1: 0.5}, "ab" * 32))
        coordinator = self.node.agent.coordinator
        self.useFixture(
            fixtures.MockPatchObject(coordinator, "profile", lambda *_: (foreign, "tag"))
        )
        self.help(record=0)
        self.assertIn("the profile is of another image", self.log.output)
        self.assertEqual([], self.fetched())

    def test_while_volt_is_away_the_last_one_is_used(self):
        self.help()
        self.node.destroy("vm1")
        self.node.kernel.ahead.clear()
        self.node.create("vm1")
        with self.node.process.here():
            self.assertIsNotNone(self.node.agent.coordinator.profile("debian", "boot"))
        attachment = self.node.agent.images.attached("debian")
        for name in attachment.exports:
            self.node.kernel.mapping(name.removeprefix("/dev/mapper/")).pages.clear()
        self.bed.volt.silence()
        self.follow(self.node, self.boots(self.node))
        self.assertEqual(list(BOOT), sorted(self.fetched()))

    def test_one_that_volt_tells_late_is_used(self):
        self.store()
        self.node.create("vm1")
        self.bed.volt.silence()
        self.look(self.node, self.boots(self.node))
        self.await_(lambda: "its profile is not known yet" in self.log.output)
        self.bed.volt.silence(False)
        self.await_(lambda: not following(), following)
        self.assertEqual(list(BOOT), sorted(self.fetched()))

    def test_one_that_vms_do_not_read_stops_by_itself(self):
        wanted, other = range(64), range(64, 128)
        self.store(wanted)
        self.node.create("vm1")
        boots = self.begin(self.node, how=How(Policy.IN_ORDER, 1, SharedCap(MIB)))
        for number in other:
            self.node.kernel.vm_reads("debian", number * PIECE, PIECE)
        self.await_(lambda: not following(), following)
        self.assertIn("VMs hardly read what the profile says", self.log.output)
        self.assertEqual(1, boots.totals.useless)
        self.assertLess(len(self.fetched()), 64)

    def test_it_ends_with_the_last_vm(self):
        self.store(range(128))
        self.node.create("vm1")
        self.begin(self.node, how=How(Policy.IN_ORDER, 1, SharedCap(2 * MIB)))
        self.await_(self.fetched)
        self.node.destroy("vm1")
        self.await_(lambda: not following(), following)
        self.node.drop()
        self.bed.operator().remove_profile("debian", "boot")
        self.assertNotIn("is not followed any more", self.log.output)
        self.assertTrue(self.node.kernel.is_clean())

    def test_a_parent_that_does_not_answer_is_no_fault_of_the_vm(self):
        self.node.create("vm1")
        for stripe in (0, 1):
            self.node.kernel.mappings[f"virtman_debian_export{stripe}"].hung = True
        self.follow(self.node, self.boots(self.node))
        self.assertIn("no more is fetched ahead", self.log.output)
        self.node.kernel.end_reads()
        self.node.destroy("vm1")

    def test_an_image_that_is_attached_again_is_helped_again(self):
        boots = self.help()
        self.node.destroy("vm1")
        self.node.drop()
        self.node.kernel.ahead.clear()
        self.node.create("vm1")
        self.follow(self.node, boots)
        self.assertEqual(list(BOOT), sorted(self.fetched()))


class WarmTest(BootsCase):
    def setUp(self):
        super().setUp()
        self.store()
        self.node = self.bed.node()
        self.made = self.boots(self.node, record=0, prefetch=False)

    def warm(self, image="debian"):
        with self.node.process.here():
            self.made.warm(image)
        self.await_(lambda: not following(), following)

    def fetched(self):
        return sum(length for _, _, length in self.node.kernel.ahead)

    def test_an_image_is_attached_and_has_what_its_profile_names(self):
        self.warm()
        wanted = len(BOOT) * PIECE
        ahead = self.made.ahead("debian")
        self.assertEqual(("fetched", wanted, wanted), (ahead.state, ahead.wanted, ahead.there))
        self.assertEqual(wanted, self.fetched())
        self.assertEqual(frozenset(), self.node.agent.images.attached("debian").users)
        self.node.drop()
        self.assert_nothing_is_left(self.node)
        with self.node.process.here():
            self.made.look()
        self.assertIsNone(self.made.ahead("debian"))

    def test_a_vm_that_comes_then_finds_it_there(self):
        self.warm()
        self.node.create("vm1")
        self.follow(self.node, self.made)
        for number in BOOT:
            self.node.kernel.vm_reads("debian", number * PIECE, PIECE)
        self.assertEqual(len(BOOT) * PIECE, self.fetched())

    def test_an_image_that_vms_use_is_warmed_under_them(self):
        self.node.create("vm1")
        self.follow(self.node, self.made)
        self.assertEqual(0, self.fetched())
        self.warm()
        self.assertEqual(len(BOOT) * PIECE, self.fetched())
        self.warm()
        self.assertEqual(len(BOOT) * PIECE, self.fetched())
        self.assertEqual({"vm1"}, self.node.agent.images.attached("debian").users)
        self.assertEqual(0, self.node.kernel.mappings["virtman_debian_origin"].area)

    def test_what_is_on_its_way_is_not_asked_for_twice(self):
        self.made.options = Options(0, PIECE, False, How(Policy.IN_ORDER, 1, SharedCap(MIB)))
        with self.node.process.here():
            self.made.warm("debian")
            self.await_(lambda: self.made.ahead("debian"))
            self.made.warm("debian")
        self.assertEqual(1, len([one for one in following() if one.startswith("boot")]))
        self.await_(lambda: not following(), following)

    def test_it_stops_with_an_agent(self):
        self.made.options = Options(0, PIECE, False, How(Policy.IN_ORDER, 1, SharedCap(MIB / 4)))
        with self.node.process.here():
            self.made.warm("debian")
        self.made.stop()
        self.await_(lambda: not following(), following)
        self.assertEqual("stopped", self.made.ahead("debian").state)

    def test_an_image_of_which_nothing_is_known_is_refused(self):
        self.bed.register("other")
        self.bed.register("plain", hashed=False)
        for image, error in (
            ("other", ProfileUnknown),
            ("plain", ProfileUnbound),
            ("none", ImageUnknown),
        ):
            self.assertRaises(error, self.warm, image)
        self.assertEqual((), tuple(self.node.agent.images.attachments()))

    def test_one_that_cannot_be_attached_is_wanted_by_nobody_then(self):
        self.node.process.fate(fail_at=20)
        self.assertRaises(KernelFailure, self.warm)
        self.assert_nothing_is_left(self.node)


class KillsTest(BootsCase):
    """An agent that dies at any verb, or call of Volt, loses nothing and leaves nothing."""

    def setUp(self):
        super().setUp()
        self.numbers = itertools.count(1)
        self.counted(page_caches.page_cache, "fetch")

    def booted(self, read, kill_at=0):
        """Follow a VM's boot on a new node, whose agent dies at that step; return the node."""
        node = self.bed.node(f"n{next(self.numbers)}", keep=0)
        node.create("vm1")
        for name in ("profile", "store_profile"):
            self.counted(node.agent.coordinator, name)
        node.process.fate(kill_at=kill_at)
        with contextlib.suppress(Killed):
            self.record(node, read)
        self.await_(lambda: not following(), following)
        return node

    def counted(self, where, name):
        """Have a call be a step of the process, and so its answer."""
        call = getattr(where, name)

        def asked(*words):
            current().passes(name)
            answer = call(*words)
            current().passes(f"{name} was answered")
            return answer

        self.useFixture(fixtures.MockPatchObject(where, name, asked))

    def leave(self, node):
        """Have the agent start anew, and leave the image; look for what is left."""
        node.die()
        node.start()
        self.assertEqual([], list(node.recover()))
        self.assertEqual({}, node.kernel.mappings["virtman_debian_origin"].counts)
        node.destroy("vm1")
        self.await_(node.kernel.is_clean, node.kernel.state)

    def kill(self, prepare, read):
        """Kill an agent at the first and the last time of each step of a boot.

        :param prepare: has the right profile at Volt
        :param read: pieces that the VM reads
        :returns: the names of the steps
        """
        prepare()
        node = self.booted(read)
        steps = node.process.passed
        self.leave(node)
        last = {name: number for number, name in enumerate(steps, 1)}
        first = {name: steps.index(name) + 1 for name in last}
        for number in sorted({*first.values(), *last.values()}):
            prepare()
            node = self.booted(read, number)
            stored = self.bed.operator().profile("debian", "boot")
            if stored is not None:
                found = decode(stored[0])
                self.assertEqual((1, BOOT), (found.runs, found.wanted()))
            self.leave(node)
        return set(last)

    def test_while_a_boot_is_recorded(self):
        steps = self.kill(lambda: self.bed.operator().remove_profile("debian", "boot"), BOOT)
        self.assertLess({"counted", "count_no_more", "store_profile was answered"}, steps)

    def test_while_a_boot_is_helped(self):
        def prepare():
            if self.bed.operator().profile("debian", "boot") is None:
                self.store()

        steps = self.kill(prepare, BOOT[:2])
        self.assertLess({"counted", "count_no_more", "fetch was answered"}, steps)
