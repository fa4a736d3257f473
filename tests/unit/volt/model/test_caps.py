"""Shares of caps: never more than there is, and an equal part for each in the end."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from volt.model.caps import Cap, CapKind, Dealing

IMAGES = [(CapKind.IMAGE, name) for name in "xy"]
RACKS = [(CapKind.RACK, name) for name in "rs"]
KEYS = [*IMAGES, *RACKS]
RATES = st.integers(1000, 10**9)
HOSTS = st.integers(0, 7)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), HOSTS, st.sampled_from(IMAGES)),
        st.tuples(st.just("end"), HOSTS, st.sampled_from(IMAGES)),
        st.tuples(st.just("rate"), st.sampled_from(KEYS), RATES),
    ),
    max_size=40,
)


class Site:
    """Hosts of two racks, each of which deals with one heartbeat of its own."""

    def __init__(self, rates):
        self.rates = dict(zip(KEYS, rates, strict=True))
        self.granted = {}

    def keys(self, taker):
        host, image = taker
        return [image, RACKS[host % 2]]

    def of(self, key):
        return [share for taker, share in self.granted.items() if key in self.keys(taker)]

    def beat(self, *taker):
        had = self.granted.setdefault(taker, 0)
        caps = [Cap(*key, self.rates[key], len(self.of(key)), sum(self.of(key))) for key in KEYS]
        self.granted[taker] = Dealing(caps).share(self.keys(taker), had)

    def end(self, *taker):
        self.granted.pop(taker, None)

    def rate(self, key, rate):
        self.rates[key] = rate

    def part(self, taker):
        """An equal part of each cap, whichever is least."""
        return min(self.rates[key] // len(self.of(key)) for key in self.keys(taker))


class DealingTest(testtools.TestCase):
    @given(st.tuples(RATES, RATES, RATES, RATES), STEPS)
    def test_no_cap_is_ever_drawn_on_beyond_its_rate(self, rates, steps):
        site = Site(rates)
        for verb, *words in steps:
            before = {key: sum(site.of(key)) for key in KEYS}
            getattr(site, verb)(*words)
            for key in KEYS:
                # who was granted more before its rate fell may have it until it reports
                self.assertLessEqual(sum(site.of(key)), max(site.rates[key], before[key]))

    @given(st.tuples(RATES, RATES, RATES, RATES), STEPS, st.randoms())
    def test_once_all_have_reported_twice_each_has_an_equal_part(self, rates, steps, chance):
        site = Site(rates)
        for verb, *words in steps:
            getattr(site, verb)(*words)
        takers = list(site.granted)
        for number in range(2):
            chance.shuffle(takers)
            for taker in takers:
                site.beat(*taker)
            for key in KEYS:
                self.assertLessEqual(sum(site.of(key)), site.rates[key])
            if number:
                for taker in takers:
                    self.assertEqual(site.part(taker), site.granted[taker])
                    self.assertLess(0, site.granted[taker])

    def test_who_comes_later_waits_for_who_has_all(self):
        site = Site([12, 1, 100, 100])
        seen = []
        for host in (0, 2, 0, 2):
            site.beat(host, IMAGES[0])
            seen.append({taker[0]: share for taker, share in site.granted.items()})
        self.assertEqual([{0: 12}, {0: 12, 2: 0}, {0: 6, 2: 0}, {0: 6, 2: 6}], seen)

    def test_who_shares_two_caps_gets_the_less(self):
        site = Site([100, 100, 30, 1])
        for host, image in ((0, IMAGES[0]), (0, IMAGES[1]), (2, IMAGES[0])) * 2:
            site.beat(host, image)
        self.assertEqual([10, 10, 10], list(site.granted.values()))
