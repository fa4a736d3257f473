import fixtures
from werkzeug.test import Client as Test

from tests.functional.virtman.base import TestCase
from tests.functional.virtman.doubles.sysfs import Sysfs

ORIGIN = "virtman_debian_origin"
CACHED, SHARED = "bcache over virtman_debian_backing", "virtman_debian_readers"


class WarmTest(TestCase):
    def setUp(self):
        super().setUp()
        self.node = self.bed.node(warm=1e-9)
        self.node.create("vm1")
        (self.member,) = self.node.kernel.members.values()

    def ways(self):
        """Return what VMs read from, best first.

        The cache is one of them only while a few sectors may be missed below it.
        """
        tables = self.node.kernel.state()["dm"]
        ((_, _, _, words),) = tables[ORIGIN][0]
        found = {way: words.find(way) for way in (CACHED, SHARED) if way in words}
        ((_, _, _, below),) = tables["virtman_debian_stripe"][0]
        self.assertEqual(CACHED in found, "loop on /dev/mapper/virtman_debian_regions1" in below)
        return sorted(found, key=lambda way: found[way])

    def shows(self):
        """Return whether the agent calls the image warm."""
        with self.node.process.here():
            (image,) = Test(self.node.api()).get("/v1/images").json["images"]
        return image["warm"]

    def reads(self, hits, misses):
        """Have so many reads counted, and let the agent see that."""
        self.member.reads = (hits, misses, 0)
        self.node.beat()
        return self.ways()

    def test_vms_read_from_the_cache_while_the_image_is_warm(self):
        self.assertEqual([SHARED], self.ways())
        self.assertEqual([SHARED], self.reads(0, 9999))
        self.assertFalse(self.shows())
        self.assertEqual([CACHED, SHARED], self.reads(0, 9999))
        self.assertTrue(self.shows())
        self.assertEqual([SHARED], self.reads(0, 9999999))
        self.assertFalse(self.shows())

    def start_again(self, start):
        self.node.stop()
        start()
        self.assertEqual([], self.node.recover())

    def test_an_agent_that_starts_changes_nothing(self):
        self.reads(0, 9999)
        self.reads(0, 9999)
        before = self.node.kernel.state()["dm"]
        self.start_again(self.node.start)
        self.assertEqual([CACHED, SHARED], self.ways())
        self.assertTrue(self.shows())
        self.assertEqual(before, self.node.kernel.state()["dm"])

    def test_a_node_that_was_booted_begins_cold(self):
        self.reads(0, 9999)
        self.reads(0, 9999)
        self.start_again(self.node.reboot)
        self.assertEqual([SHARED], self.ways())

    def test_an_image_that_comes_again_begins_cold(self):
        self.reads(0, 9999)
        self.node.destroy("vm1")
        self.node.drop()
        self.node.create("vm1")
        (self.member,) = self.node.kernel.members.values()
        # as many misses as its earlier devices had
        self.assertEqual([SHARED], self.reads(0, 9999))

    def test_a_way_that_failed_is_used_again(self):
        self.reads(0, 9999)
        self.reads(0, 9999)
        self.node.kernel.mappings[ORIGIN].failed.add(self.member.number)
        self.assertEqual({CACHED: "F", SHARED: "A"}, self.node.kernel.path_states(ORIGIN))
        self.reads(0, 9999)
        self.assertEqual({CACHED: "A", SHARED: "A"}, self.node.kernel.path_states(ORIGIN))

    def test_nothing_is_swapped_while_reads_may_hang(self):
        self.reads(0, 9999)
        self.bed.source_dies()
        self.assertEqual([SHARED], self.reads(0, 9999))
        self.bed.source_returns()
        self.assertEqual([CACHED, SHARED], self.reads(0, 9999))

    def test_large_blocks_are_read_through_the_page_cache(self):
        self.useFixture(fixtures.MockPatchObject(Sysfs, "block_size", lambda *_: 4096))
        self.reads(0, 9999)
        self.assertEqual([SHARED], self.reads(0, 9999))

    def test_all_of_it_goes(self):
        self.reads(0, 9999)
        self.reads(0, 9999)
        self.node.destroy("vm1")
        self.node.drop("debian")
        self.assertTrue(self.node.kernel.is_clean(), self.node.kernel.state())
