"""What reads cost that go on and on, by who answers them."""

import testtools

from planning.errors import Invalid
from planning.ring import reading, v_nodes
from planning.ring.reading import Site

FAR, NEAR = v_nodes.ANYWHERE, v_nodes.OWN_RACK


class ReadingTest(testtools.TestCase):
    def test_alone_the_source_sends_what_the_cache_lacks(self):
        found = reading.alone(Site(hosts=4, regions=200, cache=50))
        self.assertEqual(800, found.reads)
        self.assertAlmostEqual(0.75, found.source_share, delta=0.05)
        self.assertEqual(found.reads, found.source + found.at_home)
        self.assertEqual(0, found.sent.total())

    def test_a_ring_needs_no_source_once_its_caches_hold_the_image(self):
        site = Site(hosts=7, regions=210, cache=52)
        ring, trees = reading.ring(site, FAR), reading.trees(site)
        self.assertEqual(0, ring.source)
        self.assertGreater(trees.source_share, 0.3)
        self.assertLess(ring.link_share, trees.link_share)
        self.assertEqual(ring.reads, ring.at_home + ring.sent.total())

    def test_a_ring_that_is_too_small_asks_the_source_for_the_rest(self):
        found = reading.ring(Site(hosts=4, regions=200, cache=25), FAR)
        self.assertAlmostEqual(0.5, found.source_share, delta=0.06)

    def test_with_room_for_all_trees_need_no_source_either(self):
        site = Site(hosts=7, regions=100, cache=100)
        self.assertLess(reading.trees(site).source_share, 0.01)
        self.assertGreater(reading.trees(site).home_share, 0.95)

    def test_more_hosts_than_a_ring_takes_are_in_two(self):
        found = reading.ring(Site(hosts=reading.GROUP + 8, regions=64, cache=8, racks=9), FAR)
        self.assertEqual(0, found.source)

    def test_a_rack_of_its_own_asks_no_other(self):
        site = Site(hosts=16, regions=160, cache=40, racks=2)
        everywhere, near = reading.ring(site, FAR), reading.ring(site, NEAR)
        self.assertEqual(near.source, near.crossed)
        self.assertGreater(everywhere.crossed, 0)
        self.assertLess(near.source_share, 0.05)

    def test_what_is_read_most_is_at_home(self):
        shares = [
            reading.ring(Site(hosts=7, regions=210, cache=60, skew=skew), FAR).home_share
            for skew in (0.0, 1.0)
        ]
        self.assertGreater(shares[1], shares[0] + 0.1)

    def test_what_cannot_be_is_refused(self):
        for words, told in (
            ({"hosts": 0}, "no host"),
            ({"regions": 0}, "nothing to read"),
            ({"cache": 0}, "holds nothing"),
            ({"racks": 9}, "cannot fill 9 racks"),
            ({"skew": -1.0}, "rare regions"),
        ):
            error = self.assertRaises(
                Invalid, Site, **{"hosts": 4, "regions": 10, "cache": 5} | words
            )
            self.assertIn(told, str(error))


class ShapedTest(testtools.TestCase):
    def test_a_ring_of_volt_needs_no_source_once_its_caches_hold_the_image(self):
        found = reading.shaped(Site(7, 256, 64), keeps_owned=True)
        self.assertEqual(0, found.source)
        self.assertLess(reading.trees(Site(7, 256, 64)).link_share / 2, found.link_share)

    def test_what_was_used_last_pushes_out_what_others_count_on(self):
        site = Site(7, 256, 64)
        found = reading.shaped(site, keeps_owned=False)
        self.assertLess(0.4 * reading.trees(site).source, found.source)

    def test_with_room_for_all_it_is_the_same(self):
        site = Site(3, 64, 80)
        one, other = (reading.shaped(site, keeps_owned=kept) for kept in (True, False))
        self.assertEqual((one.source, one.at_home), (other.source, other.at_home))
