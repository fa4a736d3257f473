"""Under a cap a node fetches ahead no faster than Volt lets it, from the first piece on."""

import threading
import time

from tests.functional.virtman.background.test_boots import PIECE, BootsCase, following
from tests.functional.virtman.base import MIB
from virtman.background.boots import Boots
from virtman.coordinator.memory import Memory
from virtman.errors import CoordinatorUnreachable
from virtman.image.boot import Options
from virtman.image.prefetch import How
from virtman.image.share import SharedCap
from virtman.model.prefetch_order import Policy
from volt.model.caps import CapKind
from volt.model.hosts import ImageReport, Report

HOW = How(Policy.IN_ORDER, 1, SharedCap(0))
PIECES = range(96)
ALL = len(PIECES) * PIECE
QUICK = 100 * MIB


class CapsTest(BootsCase):
    def setUp(self):
        super().setUp()
        self.store(PIECES)
        self.node = self.bed.node()
        self.caps = self.bed.volt.ground.caps

    def cap(self, rate):
        self.caps.put(CapKind.IMAGE, "debian", rate)

    def takers(self):
        """Return how many take of the cap, and what they are granted."""
        (cap,) = self.caps.index()
        return cap.takers, cap.granted

    def other(self, *, ahead):
        """Have another host say that it fetches ahead too, or not any more."""
        report = Report({"debian": ImageReport(0, ahead=ahead)})
        self.bed.volt.ground.hosts.heartbeat("other", report)

    def boot(self, node=None):
        """Begin to fetch ahead; return what follows that."""
        node = node or self.node
        node.create("vm1")
        return self.begin(node, how=HOW)

    def ask(self, node=None):
        """Send the heartbeat that fetching ahead begins with."""
        node = node or self.node
        self.await_(lambda: node.agent.images.attached("debian").share.is_taken)
        node.beat()

    def fetched(self, *boots):
        return sum(one.totals.fetched for one in boots)

    def rate(self, seconds, *boots):
        """Return how many bytes a second come meanwhile."""
        before, begin = self.fetched(*boots), time.monotonic()
        time.sleep(seconds)
        return (self.fetched(*boots) - before) / (time.monotonic() - begin)

    def test_without_a_cap_nothing_is_waited_for(self):
        boots = self.boot()
        self.await_(lambda: self.fetched(boots) == ALL)

    def test_nothing_comes_before_the_first_share(self):
        self.cap(QUICK)
        boots = self.boot()
        self.assertEqual(0, self.rate(0.3, boots))
        self.assertEqual((0, 0), self.takers())
        self.ask()
        self.await_(lambda: self.fetched(boots) == ALL)

    def test_a_heartbeat_asks_for_the_first_share_at_once(self):
        asked = threading.Event()
        self.node.create("vm1")
        boots = Boots(self.node.agent.images, Options(1, PIECE, True, HOW), asked.set)
        self.all.append(boots)
        self.look(self.node, boots)
        self.await_(asked.is_set)

    def test_a_node_has_what_volt_lets_it_have(self):
        self.cap(2 * MIB)
        boots = self.boot()
        self.ask()
        self.await_(lambda: self.fetched(boots) > 4 * PIECE)  # what may come at once has
        self.assertAlmostEqual(2 * MIB, self.rate(2, boots), delta=0.2 * MIB)
        self.await_(lambda: self.fetched(boots) == ALL)

    def test_nodes_together_have_no_more_than_the_cap(self):
        self.cap(2 * MIB)
        nodes = [self.node, self.bed.node("b")]
        boots = [self.boot(node) for node in nodes]
        for node in nodes * 2:
            self.ask(node)
        self.assertEqual((2, 2 * MIB), self.takers())
        self.assertLess(self.rate(2, *boots), 2.2 * MIB)
        self.assertGreater(self.fetched(*boots), 2 * MIB)

    def test_a_cap_that_is_lowered_slows_down_what_is_under_way(self):
        self.cap(8 * MIB)
        boots = self.boot()
        self.ask()
        self.await_(lambda: self.fetched(boots) > 0)
        self.cap(MIB // 4)
        self.node.beat()
        self.assertLess(self.rate(1, boots), MIB // 4 + 2 * PIECE)

    def test_one_that_is_cleared_is_none_with_the_next_heartbeat(self):
        self.cap(PIECE)
        boots = self.boot()
        self.ask()
        self.caps.clear(CapKind.IMAGE, "debian")
        self.assertLess(self.rate(0.2, boots), MIB)
        self.node.beat()
        self.await_(lambda: self.fetched(boots) == ALL)

    def test_who_gets_nothing_waits_until_there_is_some(self):
        self.cap(QUICK)
        self.other(ahead=True)
        boots = self.boot()
        self.ask()
        self.assertEqual(0, self.rate(0.3, boots))
        self.other(ahead=False)
        self.node.beat()
        self.await_(lambda: self.fetched(boots) == ALL)

    def test_while_volt_is_away_the_last_share_holds(self):
        self.cap(8 * MIB)
        boots = self.boot()
        self.ask()
        self.bed.volt.silence()
        self.assertRaises(CoordinatorUnreachable, self.node.beat)
        self.assertLess(self.rate(0.3, boots), 9 * MIB)
        self.await_(lambda: self.fetched(boots) == ALL)
        self.bed.volt.silence(False)

    def test_who_has_all_gives_its_share_back(self):
        self.cap(QUICK)
        self.boot()
        self.ask()
        self.assertEqual((1, QUICK), self.takers())
        self.await_(lambda: not self.node.agent.images.attached("debian").share.is_taken)
        self.node.beat()
        self.assertEqual((0, 0), self.takers())

    def test_who_waits_ends_with_the_last_vm(self):
        self.cap(1)
        boots = self.boot()
        self.ask()
        self.await_(following)
        self.node.destroy("vm1")
        self.await_(lambda: not following(), following)
        self.assertEqual(0, self.fetched(boots))
        self.node.beat()
        self.assertEqual((0, 0), self.takers())

    def test_an_agent_that_was_killed_leaves_no_share_once_another_reports(self):
        self.cap(1)
        self.boot()
        self.ask()
        self.assertEqual((1, 1), self.takers())
        self.node.die()
        self.node.start()
        self.assertEqual([], list(self.node.recover()))
        self.node.beat()
        self.assertEqual((0, 0), self.takers())

    def test_that_a_cap_applies_is_remembered(self):
        self.cap(1)
        self.node.create("vm1")
        known = Memory(self.node.folder / "volt").get("debian")
        self.assertTrue(known.placement.capped)
        self.assertTrue(self.node.agent.images.attached("debian").is_capped)
