"""A service does its rounds until it is told to end."""

import os
import signal

import fixtures
import testtools

from virtman.cmd import rounds


class RoundsTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        for number in (signal.SIGTERM, signal.SIGINT):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        self.done = 0

    def test_one_that_fails_is_followed_by_others_until_a_signal_comes(self):
        def tend():
            self.done += 1
            if self.done == 1:
                raise OSError("it is away")
            if self.done == 3:
                os.kill(os.getpid(), signal.SIGTERM)

        rounds.run(tend, 0.001, "Cinder")
        self.assertEqual(3, self.done)
        self.assertEqual("Cinder: it is away\n", self.log.output)
