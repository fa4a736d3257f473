import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.image.hit_rate import Warmth
from virtman.stack.cache import Figures

SPAN = 60.0


class WarmthTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.time = 1000.0
        self.warmth = Warmth(SPAN, lambda: self.time)
        self.warm = False

    def look(self, hits, misses, after=SPAN):
        self.time += after
        self.warm = self.warmth.look(Figures(hits, misses), self.warm)
        return self.warm

    def test_what_nobody_misses_is_warm(self):
        self.assertFalse(self.look(0, 5000))
        self.assertTrue(self.look(100, 5000))
        self.assertTrue(self.look(100, 5000))

    def test_a_few_misses_do_not_matter(self):
        self.look(0, 5000)
        self.assertTrue(self.look(0, 5059))
        self.assertTrue(self.look(0, 5059 + 959))

    def test_many_make_it_cold_again(self):
        self.look(0, 5000)
        self.look(0, 5000)
        self.assertFalse(self.look(0, 5961))
        self.assertFalse(self.look(0, 6022))
        self.assertTrue(self.look(0, 6022))

    def test_nothing_changes_before_the_span_is_over(self):
        self.look(0, 5000)
        self.assertFalse(self.look(0, 5000, after=SPAN - 1))
        self.assertTrue(self.look(0, 5000, after=1))
        self.assertTrue(self.look(0, 9999, after=SPAN - 1))
        self.assertFalse(self.look(0, 9999, after=1))

    def test_what_nobody_has_read_is_not_warm(self):
        self.assertFalse(self.look(0, 0))
        self.assertFalse(self.look(0, 0))

    def test_a_cache_that_was_made_anew_is_cold(self):
        self.look(9, 5000)
        self.assertTrue(self.look(9, 5000))
        self.assertFalse(self.look(9, 10))

    def test_one_that_begins_anew_owes_nothing_to_what_was_counted_before(self):
        self.look(0, 200)
        self.time += SPAN - 1
        self.warmth.begin()
        self.assertFalse(self.look(0, 200, after=1))
        self.assertFalse(self.look(0, 200, after=SPAN - 1))
        self.assertTrue(self.look(0, 200))

    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.floats(0, 200))))
    def test_without_a_span_nothing_is_ever_warm(self, looks):
        warmth = Warmth(0, lambda: self.time)
        for hits, misses, after in looks:
            self.time += after
            self.assertFalse(warmth.look(Figures(hits, misses), False))
