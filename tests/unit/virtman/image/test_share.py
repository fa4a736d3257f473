"""Who fetches ahead waits for the share of the node, as it is at each moment."""

import threading
import time

import testtools

from virtman.image.share import Share

MIB = 1024 * 1024


class ShareTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.share = Share()
        self.over = threading.Event()
        self.begin = time.monotonic()

    def since(self):
        return time.monotonic() - self.begin

    def wait(self, amount=MIB, seconds=0.0):
        """Return whether so much may be fetched, and seconds since the test began."""
        may = self.share.wait(amount, seconds, self.over.is_set)
        return may, self.since()

    def later(self, act, *words):
        """Do something after a tenth of a second, or later on a busy machine."""

        def run():
            self.acted = self.since()
            act(*words)

        self.timer = threading.Timer(0.1, run)
        self.timer.start()
        self.addCleanup(self.timer.join)

    def assert_waited(self, least, found, *, may=True):
        self.assertIs(may, found[0])
        self.assertGreaterEqual(found[1], least - 0.01)
        self.assertLess(found[1], least + 1)

    def test_without_a_cap_nobody_waits(self):
        with self.share.taken(capped=False):
            self.assert_waited(0, self.wait(2**40))

    def test_under_a_cap_all_wait_for_the_first_share(self):
        with self.share.taken(capped=True):
            self.later(self.share.grant, 2**40)
            self.assert_waited(0.1, self.wait())

    def test_that_no_cap_applies_any_more_lets_all_go_on(self):
        with self.share.taken(capped=True):
            self.later(self.share.grant, None)
            self.assert_waited(0.1, self.wait())
            self.assertIsNone(self.share.rate)

    def test_a_share_that_becomes_more_shortens_the_wait(self):
        with self.share.taken(capped=True):
            self.share.grant(MIB // 100)
            self.later(self.share.grant, 10 * MIB)
            self.assert_waited(0.2, self.wait())

    def test_a_share_that_becomes_less_prolongs_the_wait(self):
        with self.share.taken(capped=True):
            self.share.grant(5 * MIB)
            self.later(self.share.grant, MIB)
            waited = self.wait(MIB * 9 // 10)
            self.timer.join()
            self.assert_waited(max(0.9 / 5, self.acted + 0.9 - 5 * self.acted), waited)

    def test_the_longer_wait_counts(self):
        with self.share.taken(capped=True):
            self.share.grant(2**40)
            self.assert_waited(0.2, self.wait(seconds=0.2))

    def test_who_waits_notices_the_end(self):
        with self.share.taken(capped=True):
            self.later(self.over.set)
            self.assert_waited(0.1, self.wait(), may=False)

    def test_it_is_taken_until_the_last_has_done(self):
        with self.share.taken(capped=True):
            self.share.grant(5)
            with self.share.taken(capped=True):
                self.assertEqual(5, self.share.rate)
            self.assertEqual((True, 5), (self.share.is_taken, self.share.rate))
        self.assertEqual((False, None), (self.share.is_taken, self.share.rate))

    def test_what_comes_after_the_end_is_of_no_use(self):
        self.share.grant(5)
        self.assertIsNone(self.share.rate)

    def test_vms_that_wait_go_first_and_not_for_ever(self):
        self.share.give_way(10, self.over.is_set)
        self.share.want(is_wanted=True)
        self.share.want(is_wanted=True)
        self.share.give_way(0.1, self.over.is_set)
        self.assertGreaterEqual(self.since(), 0.09)
        self.later(lambda: self.share.want(is_wanted=False))
        self.share.give_way(10, self.over.is_set)
        self.assertGreaterEqual(self.since(), self.acted)
        self.share.want(is_wanted=True)
        self.over.set()
        self.share.give_way(10, self.over.is_set)
        self.assertLess(self.since(), 5)

    def test_whether_vms_wait_is_waited_for(self):
        with self.share.taken(capped=False):
            self.later(lambda: self.share.want(is_wanted=True))
            self.share.await_word(10)
            self.assertTrue(self.share.is_wanted)
            self.share.await_word(10)  # it is known already
        self.assertLess(self.since(), 5)
        with self.share.taken(capped=False):
            self.share.await_word(0.1)
            self.assertGreaterEqual(self.since(), self.acted + 0.09)

    def test_what_volt_said_counts_for_a_while(self):
        now = 7.0
        share = Share(lambda: now)
        share.want(is_wanted=True)
        now += 29
        self.assertTrue(share.is_wanted)
        share.want(is_wanted=True)
        now += 29
        self.assertTrue(share.is_wanted)
        now += 2
        self.assertFalse(share.is_wanted)
        share.give_way(1000, self.over.is_set)
        share.want(is_wanted=True)
        share.give_way(0, self.over.is_set)
        self.assertTrue(share.is_wanted)
