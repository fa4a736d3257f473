"""What an operator is told to choose, and what boots wait for."""

from dataclasses import replace
from random import Random

import testtools

from planning import placed
from planning.errors import Invalid
from planning.sizing import Site, Sizing
from planning.trees import Trees
from volt.placement.rules import Rules, Shape

MIB = 2.0**20
GBIT = 1e9 / 8
SITE = Site(
    hosts=100,
    racks=4,
    link=GBIT,
    uplink=10 * GBIT,
    source=GBIT,
    others=0.0,
    image=15e9,
    working_set=200 * MIB,
    images=2,
    vms=1000,
    boot_s=20.0,
    wanted_s=30.0,
)


def answers(site):
    return {one.what: one for one in Sizing(site).answers()}


class LimitTest(testtools.TestCase):
    def limit(self, **differs):
        return Sizing(replace(SITE, **differs)).limits[0].what

    def test_what_is_slow_limits(self):
        self.assertEqual("guest", self.limit())
        self.assertEqual("host links", self.limit(link=GBIT / 20))
        self.assertEqual("uplinks", self.limit(uplink=GBIT / 8))
        self.assertEqual("source", self.limit(source=GBIT / 20))

    def test_the_last_vm_waits_for_the_slowest(self):
        slow = Sizing(replace(SITE, link=GBIT / 20))
        carried = 200 * MIB * 1.18 / (GBIT / 20 * 0.95)
        self.assertAlmostEqual(1.6 + carried, slow.last_s, delta=0.2)
        self.assertFalse(slow.is_reached)
        self.assertTrue(Sizing(SITE).is_reached)

    def test_what_others_need_is_theirs(self):
        alone, shared = Sizing(SITE), Sizing(replace(SITE, others=0.5))
        seconds = [
            {one.what: one.seconds for one in sizing.limits}["host links"] - 1.6
            for sizing in (alone, shared)
        ]
        self.assertAlmostEqual(2 * seconds[0], seconds[1], delta=0.1)


class AnswersTest(testtools.TestCase):
    def test_two_trees_are_enough(self):
        self.assertEqual(Trees(2, 2), Sizing(SITE).trees)

    def test_links_that_are_as_slow_as_they_may_be_are_just_enough(self):
        found = answers(replace(SITE, boot_s=0.0))
        link, uplink = (found[f"{what}, at least"].value for what in ("host link", "uplink"))
        source = found["source sustains, at least"].value / 0.95
        tight = replace(SITE, boot_s=0.0, link=link, uplink=uplink, source=source)
        for one in Sizing(tight).limits:
            if one.what != "guest":
                self.assertAlmostEqual(30, one.seconds, delta=0.5)

    def test_caches_hold_what_all_images_are_read_for(self):
        found = answers(SITE)
        self.assertEqual(2 * 200 * MIB, found["cache of a host, at least"].value)
        self.assertAlmostEqual(2 * 15e9 * 129 / 128, found["cache of a host, at most"].value)

    def test_a_cap_leaves_others_their_share(self):
        self.assertIsNone(answers(SITE)["cap of a rack"].value)
        found = answers(replace(SITE, uplink=GBIT, others=0.3))
        through = found["working sets through an uplink"].value * 1.18
        self.assertAlmostEqual(
            GBIT * 0.7 * 0.95, found["cap of a rack"].value / 25 * through, delta=1
        )

    def test_one_rack_has_no_uplinks(self):
        found = answers(replace(SITE, racks=1))
        self.assertNotIn("uplink, at least", found)
        self.assertIn("host link, at least", found)


class RefusedTest(testtools.TestCase):
    def test_a_site_that_cannot_be(self):
        for differs in (
            {"hosts": 0},
            {"racks": 101},
            {"link": 0.0},
            {"uplink": -1.0},
            {"others": 1.0},
            {"working_set": 16e9},
            {"working_set": 0.0},
            {"vms": 0},
            {"wanted_s": 0.0},
            {"boot_s": -1.0},
        ):
            self.assertRaises(Invalid, replace, SITE, **differs)

    def test_devices_take_longer_than_all_shall_take(self):
        self.assertRaises(Invalid, Sizing, replace(SITE, wanted_s=1.0))


class PlacedTest(testtools.TestCase):
    RULES = Rules(Shape.FOREST, 2, 2)

    def test_links_from_rack_to_rack_are_counted_one_by_one(self):
        # stripe 0: source - a - b, c; stripe 1: source - b - a, c
        joining = [placed.Host(*pair) for pair in (("a", "r1"), ("b", "r1"), ("c", "r2"))]
        found = placed.crossings(placed.place(joining, self.RULES), joining, 2)
        self.assertEqual(placed.Crossings(total=4, into=2, out_of=2), found)

    def test_racks_that_volt_knows_save_links(self):
        joining = placed.hosts(60, 4, Random(1))
        blind = [placed.Host(one.name, None) for one in joining]
        with_racks, without = (
            placed.crossings(placed.place(told, self.RULES), joining, 2).total
            for told in (joining, blind)
        )
        self.assertLess(with_racks, 0.8 * without)
