"""What an agent does last."""

import signal
from types import SimpleNamespace
from unittest import mock

import fixtures

from tests.functional.virtman.base import FOREVER, TestCase
from virtman import daemon


class StopTest(TestCase):
    def test_an_agent_that_is_told_to_stop_ends_what_goes_on_and_then_waits_for_verbs(self):
        node, done = self.bed.node(keep=FOREVER), mock.Mock()
        done.serve.side_effect = SystemExit
        self.useFixture(fixtures.MockPatchObject(daemon, "Server", lambda *_: done))
        self.useFixture(fixtures.MockPatchObject(node.agent.stores.suspension, "stop", done.wait))
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        options = {"socket": str(node.folder / "socket"), "threads": 1}
        conf, api = SimpleNamespace(agent=SimpleNamespace(**options)), mock.Mock(agent=node.agent)
        daemon.serve(conf, api, [done])
        self.assertEqual(
            ["prepare", "start", "serve", "stop", "stop", "wait"],
            [one[0] for one in done.method_calls],
        )
