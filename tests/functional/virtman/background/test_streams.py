"""What VMs read decides what comes next; whatever fails, VMs and images go on."""

import fixtures

from tests.functional.virtman.background.test_boots import PIECE, BootsCase, following
from tests.functional.virtman.base import MIB, hashes
from virtman.image import prefetch
from virtman.image.prefetch import How
from virtman.image.share import SharedCap
from virtman.model.prefetch_order import Policy
from virtman.model.profile import merged
from virtman.model.profile_format import encode

MENU = range(4)
ONE, OTHER = range(20, 30), range(40, 50)  # parts, of which each run reads one
STREAM = How(Policy.STREAM, 4, SharedCap(0))


class StreamCase(BootsCase):
    def setUp(self):
        super().setUp()
        self.learn(MENU, ONE, OTHER)
        self.node = self.bed.node()

    def learn(self, menu, *parts, workload="boot"):
        """Have a profile at Volt of two runs with each part."""
        made = None
        for part in 2 * parts:
            run = dict.fromkeys(menu, 0.5) | dict.fromkeys(part, 60.5)
            made = merged(made, run, hashes()[0].root)
        self.keep(made, workload)

    def keep(self, made, workload="boot"):
        volt = self.bed.operator()
        present = volt.profile("debian", workload)
        volt.store_profile("debian", workload, encode(made), present and present[1])

    def follow_stream(self, node=None, how=STREAM):
        """Have the boots on a node followed from now on."""
        return self.begin(node or self.node, record=0, how=how)

    def reads(self, *numbers):
        for number in numbers:
            self.node.kernel.vm_reads("debian", number * PIECE, PIECE)

    def fetched(self, node=None):
        """Return the pieces that were fetched ahead, in order."""
        return [
            number
            for _, offset, length in (node or self.node).kernel.ahead
            for number in range((offset - MIB) // PIECE, (offset - MIB + length) // PIECE)
        ]

    def await_fetched(self, *parts):
        wanted = sorted(number for part in parts for number in part)
        self.await_(lambda: sorted(self.fetched()) == wanted, self.fetched)


class StreamTest(StreamCase):
    def test_at_the_start_comes_what_is_likely_and_what_follows_a_miss_then(self):
        self.node.create("vm1")
        boots = self.follow_stream()
        self.await_fetched(MENU)
        self.reads(*MENU, 23)
        self.await_fetched(MENU, set(ONE) - {23})
        self.reads(*ONE)
        used = (len(MENU) + len(ONE) - 1) * PIECE
        self.await_(lambda: boots.totals.used == used, lambda: boots.totals)
        self.assertEqual(used, boots.totals.fetched)
        self.await_(lambda: boots.ahead("debian").state == "fetched")
        self.assertEqual((used, used), (boots.ahead("debian").wanted, boots.ahead("debian").there))
        self.assertFalse(self.node.agent.images.attached("debian").share.is_taken)
        self.reads(40)
        self.await_fetched(MENU, set(ONE) - {23}, set(OTHER) - {40})
        self.assertIn("0.6 MiB were fetched ahead", self.log.output)

    def test_what_follows_a_miss_comes_before_what_waits(self):
        self.learn(range(64), range(80, 90), range(100, 110))
        self.node.create("vm1")
        self.follow_stream(how=How(Policy.STREAM, 1, SharedCap(MIB)))
        self.await_(self.fetched)
        self.reads(85)
        self.await_(lambda: len(self.fetched()) > 40, self.fetched)
        found = self.fetched()
        self.assertLess(max(map(found.index, set(range(80, 90)) - {85})), 30)
        self.assertIn(0, found)

    def test_if_nothing_is_missed_what_came_tells_what_follows(self):
        early = dict.fromkeys(MENU, 0.5) | dict.fromkeys(ONE, 900.5)
        self.keep(merged(None, early | dict.fromkeys(OTHER, 1800.5), hashes()[0].root))
        self.useFixture(fixtures.MockPatchObject(prefetch, "HINT_S", 0.0))
        self.node.create("vm1")
        self.follow_stream()
        self.await_fetched(MENU, ONE)  # the rest is more than 16 minutes away
        self.reads(20)
        self.await_fetched(MENU, ONE, OTHER)

    def test_vms_that_come_later_are_followed_until_the_image_is_left(self):
        self.node.create("vm1")
        self.follow_stream()
        self.await_fetched(MENU)
        self.node.destroy("vm1")
        self.node.create("vm2")
        self.reads(20)
        self.await_fetched(MENU, set(ONE) - {20})
        self.node.destroy("vm2")
        self.node.drop()
        self.await_(lambda: not following(), following)
        self.assert_nothing_is_left(self.node)
        self.assertNotIn("is not followed any more", self.log.output)

    def test_vms_that_read_what_no_run_did_get_no_more(self):
        self.node.create("vm1")
        boots = self.follow_stream()
        self.await_fetched(MENU)
        self.reads(*range(60, 100), 20)
        self.await_(lambda: not following(), following)
        self.assertEqual(1, boots.totals.useless)
        self.assertIn("VMs hardly read what the profile says", self.log.output)
        before = self.fetched()
        self.reads(40)
        self.assertEqual(before, self.fetched())
        self.assertEqual({}, self.node.kernel.mappings["virtman_debian_origin"].counts)

    def test_an_image_that_was_warmed_is_followed_once_a_vm_comes(self):
        self.keep(merged(None, dict.fromkeys(range(100, 110), 0.5), hashes()[0].root))
        self.learn(MENU, ONE, OTHER, workload="desktop")
        boots = self.boots(self.node, record=0, how=STREAM, prefetch=False)
        with self.node.process.here():
            boots.warm("debian", "desktop").fetched.wait(5)
        self.await_fetched(MENU)
        self.await_(lambda: not self.node.agent.images.attached("debian").users)
        self.node.create("vm1")
        self.reads(41)
        self.await_fetched(MENU, set(OTHER) - {41})

    def test_it_ends_with_its_agent(self):
        self.node.create("vm1")
        boots = self.follow_stream()
        self.await_fetched(MENU)
        boots.stop()
        self.await_(lambda: not following(), following)
        self.assertEqual({}, self.node.kernel.mappings["virtman_debian_origin"].counts)

    def test_a_cap_holds_for_what_follows_too(self):
        self.node.create("vm1")
        self.follow_stream()
        self.await_fetched(MENU)
        share = self.node.agent.images.attached("debian").share
        with share.taken(capped=True):
            self.reads(20)
            self.await_(lambda: "fetching" in str(self.all[0].ahead("debian").state))
            self.assertEqual(sorted(MENU), sorted(self.fetched()))
            share.grant(100 * MIB)
            self.await_fetched(MENU, set(ONE) - {20})


class KillsTest(StreamCase):
    def test_an_agent_that_dies_at_any_verb_leaves_nothing(self):
        wanted = {*MENU, *ONE} - {20}
        verbs, number = 1, 0
        while number <= verbs:
            self.node = node = self.bed.node(f"n{number}", keep=0)
            node.create("vm1")
            node.process.fate(kill_at=number)  # the first one lives
            self.follow_stream(node)
            self.await_(lambda: self.node.process.dead or set(self.fetched()) >= set(MENU))
            self.reads(20)
            self.await_(lambda: self.node.process.dead or set(self.fetched()) >= wanted)
            if not number:
                verbs = node.process.count
            number += 1
            self.all[-1].stop()
            self.await_(lambda: not following(), following)
            node.die()
            node.start()
            self.assertEqual([], list(node.recover()))
            self.assertEqual({}, node.kernel.mappings["virtman_debian_origin"].counts)
            node.destroy("vm1")
            self.await_(node.kernel.is_clean, node.kernel.state)
