"""What Volt asks to be warm gets warm, and Volt hears of it, whatever fails meanwhile."""

import threading
from datetime import UTC, datetime

import fixtures

from tests.functional.virtman.background.test_boots import BOOT, HOW, PIECE, BootsCase
from tests.functional.virtman.base import MIB, hashes
from virtman.background import warmups
from virtman.background.warmups import Warmups
from virtman.image.boot import Options
from virtman.image.prefetch import How, SharedCap
from virtman.model.prefetch_order import Policy
from virtman.model.profile import merged
from virtman.model.profile_format import encode
from volt.model.warmups import Chosen, Warming

ALL = len(BOOT) * PIECE


class WarmupsTest(BootsCase):
    def setUp(self):
        super().setUp()
        for name in ("_TOLD", "_AGAIN"):
            self.useFixture(fixtures.MockPatchObject(warmups, name, 0.02))
        self.store()
        self.node = self.bed.node()
        self.node.beat()
        self.serve(HOW)

    def serve(self, how):
        """Hear what Volt wishes on the node."""
        self.made = self.boots(self.node, record=0, prefetch=False)
        self.made.options = Options(0, PIECE, False, how)
        found = self.node.warmups = Warmups(self.made)
        self.node.watch.warm = found.ask
        self.addCleanup(self.await_, lambda: not following_warmups())
        self.addCleanup(found.stop)

    def ask(self, workload="boot"):
        self.bed.volt.ground.warmups.ask("debian", workload, Chosen(), datetime.now(UTC))

    def hear(self):
        """Have the node ask Volt for news."""
        with self.node.process.here():
            self.node.watch.fetch(0)

    def told(self):
        """What Volt knows of the node."""
        (found,) = self.bed.volt.ground.warmups.index("debian")
        return found

    def await_end(self):
        self.await_(lambda: self.told().state.is_end, self.told)
        return self.told()

    def fetched(self):
        return sum(length for _, _, length in self.node.kernel.ahead)

    def test_what_volt_asks_for_is_fetched_and_volt_hears_so(self):
        self.ask()
        self.hear()
        found = self.await_end()
        self.assertEqual(
            (Warming.WARM, ALL, ALL, ""), (found.state, found.wanted, found.there, found.detail)
        )
        self.assertTrue(found.attached)
        self.assertEqual(ALL, self.fetched())
        self.await_(lambda: not following_warmups())
        self.hear()
        self.assertEqual(ALL, self.fetched())

    def test_a_host_that_watches_begins_at_once(self):
        with self.node.process.here():
            self.node.watch.start()
        self.addCleanup(self.node.watch.stop)
        self.ask()
        self.assertEqual(Warming.WARM, self.await_end().state)

    def test_volt_hears_how_far_it_is(self):
        self.serve(How(Policy.IN_ORDER, 1, SharedCap(MIB)))
        self.ask()
        self.hear()
        self.await_(lambda: 0 < self.told().there < ALL, self.told)
        self.assertEqual(Warming.FETCHING, self.told().state)
        self.assertEqual(Warming.WARM, self.await_end().state)

    def test_what_cannot_be_done_is_told(self):
        self.ask()
        self.bed.operator().remove_profile("debian", "boot")
        self.hear()
        found = self.await_end()
        self.assertEqual(Warming.FAILED, found.state)
        self.assertIn("has no profile boot yet", found.detail)

    def test_an_image_that_is_left_meanwhile_is_not_warm(self):
        self.serve(How(Policy.IN_ORDER, 1, SharedCap(MIB / 8)))
        self.ask()
        self.hear()
        self.await_(self.fetched)
        with self.node.process.here():
            attachment = self.node.agent.images.attached("debian")
            (user,) = attachment.users
            attachment.release(user)
        found = self.await_end()
        self.assertEqual(Warming.FAILED, found.state)
        self.assertIn("the image was left", found.detail)

    def test_it_joins_what_is_fetched_for_a_vm(self):
        self.made.options = Options(0, PIECE, True, How(Policy.IN_ORDER, 1, SharedCap(MIB)))
        self.node.create("vm1")
        self.look(self.node, self.made)
        self.await_(self.fetched)
        self.ask()
        self.hear()
        self.assertEqual(Warming.WARM, self.await_end().state)
        self.assertEqual(ALL, self.fetched())

    def test_what_follows_later_is_not_waited_for(self):
        made = None
        for part in 2 * (range(20, 40), range(60, 80)):  # a run has one or the other
            run = dict.fromkeys(range(4), 0.5) | dict.fromkeys(part, 60.5)
            made = merged(made, run, hashes()[0].root)
        self.bed.operator().store_profile("debian", "vary", encode(made), None)
        self.serve(How(Policy.STREAM, 1, SharedCap(MIB)))
        self.node.create("vm1")
        coordinator, asked = self.node.agent.coordinator, []
        tell = coordinator.tell_warmup

        def late(wish, warmup):
            if not asked:  # until it has come, and something follows
                self.await_(lambda: self.made.ahead("debian").state == "fetched")
                self.node.kernel.vm_reads("debian", 23 * PIECE, PIECE)
                self.await_(lambda: self.made.ahead("debian").state == "fetching")
            asked.append(warmup.state)
            tell(wish, warmup)

        self.useFixture(fixtures.MockPatchObject(coordinator, "tell_warmup", late))
        self.ask("vary")
        self.hear()
        found = self.await_end()
        self.assertEqual(
            (Warming.WARM, 4 * PIECE, 4 * PIECE), (found.state, found.wanted, found.there)
        )
        self.await_(lambda: not following_warmups())
        self.assertEqual(["fetching", "warm"], asked)

    def test_another_workload_takes_the_place_of_one(self):
        self.serve(How(Policy.IN_ORDER, 1, SharedCap(MIB / 8)))
        self.ask()
        self.hear()
        self.await_(self.fetched)
        self.store((120,), workload="web")
        self.ask("web")
        self.hear()
        found = self.await_end()
        self.assertEqual(("web", Warming.WARM, PIECE), (found.workload, found.state, found.wanted))
        self.await_(lambda: not following_warmups(), following_warmups)
        self.assertIn("Volt does not wish it warm any more", self.log.output)
        self.assertEqual("web", self.told().workload)

    def test_what_was_asked_for_is_fetched_whatever_vms_read(self):
        self.serve(How(Policy.IN_ORDER, 1, SharedCap(MIB / 4)))
        self.node.create("vm1")
        self.ask()
        self.hear()
        self.await_(self.fetched)
        for number in range(44, 100):
            self.node.kernel.vm_reads("debian", number * PIECE, PIECE)
        self.assertEqual(Warming.WARM, self.await_end().state)
        self.assertEqual(ALL, self.fetched())

    def test_a_volt_that_is_away_hears_it_later(self):
        self.serve(How(Policy.IN_ORDER, 1, SharedCap(MIB)))
        self.ask()
        self.hear()
        self.await_(self.fetched)
        self.bed.volt.silence()
        self.await_(lambda: "does not know yet that it is warm" in self.log.output)
        self.bed.volt.silence(False)
        self.node.beat()
        self.assertEqual(Warming.WARM, self.await_end().state)

    def test_the_next_agent_goes_on(self):
        self.serve(How(Policy.IN_ORDER, 1, SharedCap(MIB / 8)))
        self.ask()
        self.hear()
        self.await_(self.fetched)
        self.node.warmups.stop()
        self.made.stop()
        self.await_(lambda: not following_warmups())
        self.assertFalse(self.told().state.is_end)
        self.node.die()
        self.node.start()
        self.serve(HOW)
        self.hear()
        self.assertEqual(Warming.WARM, self.await_end().state)
        self.assertEqual(ALL, self.fetched())


def following_warmups():
    return [one.name for one in threading.enumerate() if one.name.startswith("warm-up ")]
