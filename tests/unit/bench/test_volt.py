"""Which hosts join what, and where they are, when Volt is measured."""

from collections import Counter

import testtools

from bench.volt import Load


class LoadTest(testtools.TestCase):
    def test_images_are_dealt_to_hosts_in_turn(self):
        joins = Load(hosts=4, images=3, places=2).joins()
        assert joins[:2] == [("h00000", "bench0"), ("h00000", "bench1")]
        assert joins[-2:] == [("h00003", "bench0"), ("h00003", "bench1")]
        assert len(set(joins)) == len(joins) == 8

    def test_each_host_is_in_one_rack_of_about_as_many(self):
        load = Load(hosts=1000, racks=10)
        racks = Counter(load.rack(host) for host, _ in load.joins())
        assert len(racks) == 10
        assert min(racks.values()) > 70
        assert max(racks.values()) < 130

    def test_no_host_tells_a_rack_unless_there_are_some(self):
        assert Load(hosts=100).rack("h00001") is None
