"""How busy a network card is, and when that is too busy."""

from types import SimpleNamespace

import fixtures
import testtools

from virtman.background import nic
from virtman.background.nic import Card, Overload, Rates

ADDRESS = SimpleNamespace(address="10.0.0.1")


class CardTest(testtools.TestCase):
    """A machine with a card ``eth1``, whose counters the tests move."""

    def setUp(self):
        super().setUp()
        self.addresses = {"lo": [], "eth1": [ADDRESS]}
        self.received = self.sent = 0
        self.now = 100.0
        for name, answer in (
            ("net_if_addrs", lambda: self.addresses),
            ("net_io_counters", lambda pernic: {"eth1": self, "lo": self}),
            ("net_if_stats", lambda: {"eth1": self}),
        ):
            self.useFixture(fixtures.MockPatchObject(nic.psutil, name, answer))
        self.speed = 1000
        self.card = Card("10.0.0.1", clock=lambda: self.now)

    bytes_recv = property(lambda self: self.received)
    bytes_sent = property(lambda self: self.sent)

    def test_a_rate_is_between_two_looks(self):
        self.received, self.sent = 10_000, 90_000
        self.assertEqual(Rates(0, 0), self.card.rates())
        self.received, self.sent, self.now = 12_000, 100_000, 102.0
        self.assertEqual(Rates(1000, 5000), self.card.rates())

    def test_counters_that_begin_anew_are_no_rate(self):
        self.sent = 90_000
        self.card.rates()
        self.sent, self.now = 10, 101.0
        self.assertEqual(Rates(0, 0), self.card.rates())

    def test_an_address_that_no_card_has_is_no_traffic(self):
        self.addresses = {}
        self.assertEqual((Rates(0, 0), 0), (self.card.rates(), self.card.speed()))

    def test_the_speed_is_the_cards_unless_somebody_knows_better(self):
        self.assertEqual(125_000_000, self.card.speed())
        self.assertEqual(12_500_000, Card("10.0.0.1", 100).speed())
        self.speed = 0
        self.assertEqual(0, self.card.speed())


class OverloadTest(testtools.TestCase):
    def looks(self, overload, *sent, speed=1000):
        return [overload.look(one, speed) for one in sent]

    def test_it_begins_with_the_third_busy_look_in_a_row(self):
        overload = Overload(0.9)
        self.assertEqual(5 * [False], self.looks(overload, 950, 950, 100, 950, 950))
        self.assertEqual([True], self.looks(overload, 950))

    def test_it_ends_only_well_below_where_it_began(self):
        overload = Overload(0.9)
        self.looks(overload, 950, 950, 950)
        self.assertEqual(4 * [True], self.looks(overload, 800, 800, 800, 800))
        self.assertEqual([True, True, False], self.looks(overload, 700, 700, 700))

    def test_a_link_of_unknown_speed_is_never_too_busy(self):
        self.assertEqual(4 * [False], self.looks(Overload(0.5), *4 * [10**12], speed=0))

    def test_at_one_it_is_switched_off(self):
        self.assertEqual(4 * [False], self.looks(Overload(1.0), *4 * [10**12]))
