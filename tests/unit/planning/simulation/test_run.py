"""Boots at once, simulated: small ones, whose outcome can be told."""

from dataclasses import replace

import testtools

from planning import measured
from planning.errors import Invalid
from planning.simulation import agreement, prediction
from planning.simulation.agreement import STAR, TREE
from planning.simulation.run import run
from planning.simulation.scenario import FOREST, Boot, Cluster, Design, Scenario
from volt.placement.rules import Rules, Shape

MIB = 2.0**20
LINK = 10 * MIB
PLACED_S = 0.2  # until Volt places who joins

ALL = Boot(20 * MIB, 0.0, at_once=20 * MIB, behind=0.0, sent=1.0)
"""Reads all at once: 2 s for a link."""


def scenario(hosts, boot=ALL, rules=None, **differs):
    design = Design(ahead=False, attach_s=1.0)
    if rules is not None:
        design = replace(design, rules=rules)
    cluster = {key: differs.pop(key) for key in ("racks", "uplink", "source") if key in differs}
    return Scenario(Cluster(hosts, LINK, **cluster), boot, design, **differs)


class BytesTest(testtools.TestCase):
    """Where links alone decide."""

    def test_one_host_takes_what_its_link_takes(self):
        self.assertAlmostEqual(1 + 2, run(scenario(1)).last_s, delta=0.01)

    def test_a_star_takes_as_many_times_as_long_as_it_has_hosts(self):
        result = run(scenario(5, rules=STAR))
        self.assertAlmostEqual(1 + 10, result.last_s, delta=0.05)
        self.assertAlmostEqual(5, result.source_sent / ALL.working_set)
        self.assertEqual(0, result.busiest_sent)

    def test_a_tree_takes_twice_as_long_as_a_forest(self):
        forest, tree = run(scenario(15)), run(scenario(15, rules=TREE))
        self.assertAlmostEqual(1 + 2, forest.last_s, delta=0.25)
        self.assertAlmostEqual(1 + 4, tree.last_s, delta=0.25)
        self.assertAlmostEqual(1, forest.source_sent / ALL.working_set)
        self.assertAlmostEqual(2, tree.busiest_sent / ALL.working_set)
        self.assertAlmostEqual(1, forest.busiest_sent / ALL.working_set, delta=0.01)

    def test_an_uplink_carries_what_comes_from_other_racks(self):
        blind = Design(ahead=False, attach_s=1.0, knows_racks=False)
        told = scenario(40, racks=4, uplink=LINK / 2)
        aware, unaware = run(told), run(replace(told, design=blind))
        self.assertLess(sum(aware.into_racks), 0.9 * sum(unaware.into_racks))
        self.assertLess(aware.last_s, unaware.last_s)
        slowest = max(aware.into_racks) / (LINK / 2)
        self.assertGreater(aware.last_s, slowest)

    def test_a_slow_source_holds_all_up(self):
        self.assertAlmostEqual(1 + 4, run(scenario(4, source=LINK / 2)).last_s, delta=0.25)

    def test_the_same_seed_gives_the_same(self):
        one = scenario(9, deaths=0.3, joins_s=3.0)
        self.assertEqual(run(one), run(one))


class GuestTest(testtools.TestCase):
    """Where guests compute between reads."""

    BOOT = Boot(20 * MIB, 10.0, at_once=64 * 1024, behind=0.0, sent=1.0)

    def test_on_demand_pauses_and_reads_add_up(self):
        waits = 320 * measured.BED.hop_s
        result = run(scenario(1, self.BOOT))
        self.assertAlmostEqual(1 + 10 + 2 + waits, result.last_s, delta=0.02)
        self.assertEqual(320, result.waits)

    def test_what_is_fetched_ahead_comes_while_guests_compute(self):
        ahead = replace(scenario(7, self.BOOT), design=Design(attach_s=1.0))
        result = run(ahead)
        self.assertAlmostEqual(1 + 10, result.last_s, delta=0.3)
        self.assertLess(result.waits, 7 * 60)
        self.assertLess(result.last_s, run(scenario(7, self.BOOT)).last_s - 1)

    def test_where_attaching_cascades_each_level_takes_as_long(self):
        design = Design(TREE, ahead=False, attach_s=5.0, cascades=True)
        one = replace(scenario(6, self.BOOT), design=design)  # two levels
        at_once = replace(one, design=replace(design, cascades=False))
        self.assertAlmostEqual(5 + PLACED_S, run(one).last_s - run(at_once).last_s, delta=1)


class DeathTest(testtools.TestCase):
    BOOT = Boot(20 * MIB, 10.0, sent=1.0)

    def test_who_lives_is_ready_all_the_same(self):
        for design in (Design(), Design(ahead=False)):
            living = replace(scenario(20, self.BOOT), design=design)
            result = run(replace(living, deaths=0.25))
            self.assertEqual((5, 15), (result.dead, len(result.ready_s)))
            self.assertLess(result.last_s, run(living).last_s + 3)

    def test_if_all_die_there_is_nothing_to_tell(self):
        self.assertRaises(Invalid, run, scenario(2, self.BOOT, killed=(0, 1), killed_s=1.0))

    def test_who_waits_for_parents_that_die_is_attached_all_the_same(self):
        design = Design(TREE, cascades=True)
        for seed in range(8):
            storm = replace(scenario(26, self.BOOT, joins_s=3.0, deaths=0.3), design=design)
            result = run(replace(storm, seed=seed, boot=Boot(2 * MIB, 5.0)))
            self.assertEqual(26, len(result.ready_s) + result.dead)

    def test_children_of_one_who_dies_wait_until_they_notice(self):
        # a chain: whoever is second feeds all others but the first
        chain = Rules(Shape.CHAIN, stripes=1, fanout=1)
        living = scenario(4, replace(self.BOOT, think_s=0.0), rules=chain)
        result = run(replace(living, killed=(1,), killed_s=2.0))
        self.assertEqual(1, result.dead)
        self.assertAlmostEqual(1.25, result.last_s - run(living).last_s, delta=0.7)
        self.assertGreater(result.longest_wait_s, 1.25)

    def test_the_longer_standbys_have_to_feed_all_the_later_the_last_one_is_ready(self):
        soon, late = (
            run(agreement.InOrder("", FOREST, 7, LINK, 24 * MIB, 1.0, 1.0, moved_s).case.scenario)
            for moved_s in (2.25, 6.25)
        )
        self.assertLess(soon.last_s + 0.3, late.last_s)

    def test_connecting_takes_some_time(self):
        self.assertRaises(Invalid, Design, connect_s=-1.0)


class AgreementTest(testtools.TestCase):
    """Small cases whose outcome is known; the others are in tests/simulation."""

    def test_links_decide_in_the_lab(self):
        for case in agreement.cases():
            if case.group == "lab" and case.scenario.cluster.link < 50e6 / 8:
                found = agreement.compare(case)
                self.assertLess(abs(found.difference), 0.1, found)

    def test_a_server_by_the_papers_equations(self):
        case = next(one for one in agreement.cases() if one.group == "model")
        self.assertLess(abs(agreement.compare(case).difference), 0.02)

    def test_figure_5_begins_where_the_paper_does(self):
        self.assertAlmostEqual(60, run(agreement.figure_5(10)).last_s, delta=3)


class PredictionTest(testtools.TestCase):
    def test_all_designs_on_all_sites(self):
        runs = prediction.planned(prediction.SITES)
        self.assertEqual(15, len(runs))
        ours = next(one for one in runs if one.design == "ours")
        small = replace(ours.scenario.cluster, hosts=8, racks=2)
        found = prediction.figures(run(replace(ours.scenario, cluster=small)))
        self.assertEqual((8, 80, 1e9), (found["hosts"], found["vms"], found["link_bits_s"]))
        self.assertAlmostEqual(measured.SENT, found["source_over_set"], delta=0.01)


class RefusedTest(testtools.TestCase):
    def test_what_cannot_be(self):
        for kind, fields in (
            (Cluster, {"hosts": 0, "link": 1.0}),
            (Cluster, {"hosts": 2, "link": 1.0, "racks": 3}),
            (Cluster, {"hosts": 2, "link": -1.0}),
            (Cluster, {"hosts": 2, "link": float("inf")}),
            (Cluster, {"hosts": 2, "link": 1.0, "uplink": 0.0}),
            (Cluster, {"hosts": 2, "link": 1.0, "source": -1.0}),
            (Cluster, {"hosts": 2, "link": 1.0, "source": 0.0}),
            (Cluster, {"hosts": 2, "link": 1.0, "stragglers": 2}),
            (Cluster, {"hosts": 2, "link": 1.0, "others": 1}),
            (Boot, {"working_set": 0.0, "think_s": 1.0}),
            (Boot, {"working_set": 1.0, "think_s": -1.0}),
            (Boot, {"working_set": 1.0, "think_s": 1.0, "sent": 0.9}),
            (Boot, {"working_set": 1.0, "think_s": 1.0, "at_once": 0.0}),
            (Design, {"rules": Rules(Shape.FOREST, stripes=3, fanout=2)}),
            (Design, {"window": 0}),
            (Design, {"attach_s": -1.0}),
        ):
            self.assertRaises(Invalid, kind, **fields)
        for differs in ({"deaths": 1.0}, {"joins_s": -1.0}, {"killed": (9,)}, {"piece": -1.0}):
            self.assertRaises(Invalid, scenario, 2, **differs)
