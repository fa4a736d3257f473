"""What a cache set holds is read from what bcache wrote to the cache device."""

import testtools

from tests.functional.virtman import ondisk
from virtman.caches import Extent
from virtman.caches.extents import extents

KIB = 1024
ROOT = (0, 0, 64 * KIB, ondisk.at(5))


def found(device, member=1):
    return extents(lambda offset, length: device[offset : offset + length], member)


class ExtentsTest(testtools.TestCase):
    def test_keys_of_leaves_below_the_root_and_of_the_journal(self):
        device = ondisk.device(
            [ondisk.entry(3, 3, ROOT, 1, [(1, 64 * KIB, 8 * KIB, 4096 * KIB)])],
            {
                5: ondisk.node([(1, 0, 64 * KIB, ondisk.at(6))]),
                6: ondisk.node([(1, 0, 4 * KIB, 1024 * KIB), (2, 0, 4 * KIB, 2048 * KIB)]),
            },
        )
        expected = [Extent(0, 4 * KIB, 1024 * KIB), Extent(64 * KIB, 8 * KIB, 4096 * KIB)]
        self.assertEqual(expected, found(device))
        self.assertEqual([Extent(0, 4 * KIB, 2048 * KIB)], found(device, 2))
        self.assertEqual([], found(device, 3))

    def test_only_the_newest_root_and_entries_that_the_tree_may_lack_count(self):
        older = ondisk.entry(1, 1, (0, 0, 64 * KIB, ondisk.at(9)), 0, [(1, 0, 4 * KIB, 0)])
        newer = ondisk.entry(3, 2, ROOT, 0, [])
        lacking = ondisk.entry(2, 1, ROOT, 0, [(1, 8 * KIB, 4 * KIB, 64 * KIB)])
        device = ondisk.device([older + newer, lacking], {5: ondisk.node([])})
        self.assertEqual([Extent(8 * KIB, 4 * KIB, 64 * KIB)], found(device))

    def test_a_later_key_takes_the_place_of_an_earlier_one(self):
        first = ondisk.node([(1, 0, 4 * KIB, 64 * KIB), (1, 4 * KIB, 4 * KIB, 68 * KIB)])
        second = ondisk.node([(1, 0, 4 * KIB, -1), (1, 4 * KIB, 4 * KIB, 128 * KIB)])
        stale = ondisk.node([(1, 8 * KIB, 4 * KIB, 64 * KIB)], sequence=8)
        device = ondisk.device([ondisk.entry(1, 1, ROOT, 0, [])], {5: first + second + stale})
        self.assertEqual([Extent(4 * KIB, 4 * KIB, 128 * KIB)], found(device))

    def test_data_that_are_on_their_way_are_not_held_yet(self):
        leaf = ondisk.node([(1, 64 * KIB, 4 * KIB, 0)], more=ondisk.coming(1, 0))
        device = ondisk.device([ondisk.entry(1, 1, ROOT, 0, [])], {5: leaf})
        self.assertEqual([Extent(64 * KIB, 4 * KIB, 0)], found(device))

    def test_a_node_whose_place_was_given_to_others_has_no_keys(self):
        device = ondisk.device([ondisk.entry(1, 1, ROOT, 1, [])], {5: b"\xff" * 65536})
        self.assertEqual([], found(device))

    def test_a_device_without_a_cache_set_is_refused(self):
        self.assertRaises(ValueError, found, bytes(65536))
