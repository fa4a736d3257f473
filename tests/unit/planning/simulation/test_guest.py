"""What a boot reads: how much at once, and how much the kernel has ahead of it."""

from random import Random

import testtools

from planning.simulation.agreement import TREE
from planning.simulation.guest import reads
from planning.simulation.scenario import FOREST, Boot, Cluster, Design, Scenario

KIB = 1024


class ReadsTest(testtools.TestCase):
    def reads(self, rules):
        boot = Boot(1024 * KIB, 10.0, tail=0.1)
        cluster = Cluster(3, 1024.0 * KIB)
        return reads(Scenario(cluster, boot, Design(rules), piece=32 * KIB), Random(1))

    def test_each_stripe_has_page_caches_that_read_ahead(self):
        for rules, ahead in ((TREE, 1), (FOREST, 2)):
            found = {one.ahead - one.wanted.stop for one in self.reads(rules)[:-1]}
            self.assertEqual({ahead}, found)

    def test_all_is_wanted_once_and_in_order(self):
        found = self.reads(FOREST)
        self.assertEqual(list(range(32)), [unit for one in found for unit in one.wanted])
        self.assertEqual({6}, {len(one.wanted) for one in found[:-1]})
        self.assertAlmostEqual(9.0, sum(one.pause_s for one in found))
