"""As many hosts copy an image as are wanted: each once, and far from each other."""

from dataclasses import replace

import hypothesis
import testtools
from hypothesis import strategies

from volt.model.copies import Keeper, choose, lacks


def host(name, rack=None, whole=False, chosen=False, **about):
    return Keeper(name, rack, whole, chosen, **about)


HOSTS = strategies.lists(
    strategies.builds(
        Keeper,
        strategies.sampled_from([f"h{number}" for number in range(12)]),
        strategies.sampled_from([None, "r1", "r2", "r3"]),
        *[strategies.booleans()] * 6,
        strategies.integers(0, 3),
    ),
    unique_by=lambda one: one.host,
)


class TestChoose(testtools.TestCase):
    @hypothesis.given(HOSTS, strategies.integers(0, 14))
    def test_there_are_as_many_as_are_wanted_as_long_as_anybody_is_left(self, hosts, copies):
        chosen = choose(hosts, copies)
        after = [replace(one, chosen=one.host in chosen) for one in hosts]
        kept = sum(one.counts for one in hosts)
        able = sum(one.whole or not one.declines for one in hosts)
        assert sum(one.counts for one in after) == max(kept, min(copies, able))
        assert not {one.host for one in hosts if one.declines and not one.whole} & chosen
        assert choose(after, copies) == chosen

    @hypothesis.given(HOSTS, strategies.integers(1, 14))
    def test_nobody_is_chosen_anew_where_nothing_lacks(self, hosts, copies):
        if not lacks(hosts, copies):
            assert choose(hosts, copies) == {one.host for one in hosts if one.chosen}

    def test_racks_take_turns(self):
        hosts = [host("a", "r1", whole=True), host("b", "r1"), host("c", "r1"), host("d", "r2")]
        assert choose(hosts, 2) == {"d"}
        assert choose(hosts, 3) == {"b", "d"}

    def test_who_has_begun_goes_on_before_all_others(self):
        assert choose([host("a"), host("b", begun=True, fits=False, feeds=False)], 1) == {"b"}

    def test_space_counts_more_than_that_it_feeds_and_that_more_than_racks(self):
        hosts = [host("w", "r1", whole=True), host("a", "r2", fits=False), host("b", "r1")]
        assert choose(hosts, 2) == {"b"}
        hosts = [host("w", "r1", whole=True), host("a", "r2", feeds=False), host("b", "r1")]
        assert choose(hosts, 2) == {"b"}

    def test_an_idle_link_counts_where_all_else_is_the_same(self):
        assert choose([host("a", traffic=9), host("b", traffic=3)], 1) == {"b"}
