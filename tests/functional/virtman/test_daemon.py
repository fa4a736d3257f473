"""What an agent does first and last."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import fixtures
from oslo_config import cfg

from tests.functional.virtman.base import FOREVER, SSD, TestCase
from virtman import conf as options
from virtman import daemon


class StartTest(TestCase):
    def test_what_an_agent_had_half_written_when_it_died_goes(self):
        node = self.bed.node(keep=FOREVER)
        state = node.folder / "state"
        conf = options.register(cfg.ConfigOpts())
        conf([], default_config_files=[])
        conf.set_override("state_dir", str(state), "agent")
        conf.set_override("devices", [SSD], "cache")
        with node.process.here():
            daemon.assemble(conf)
            folders = [Path(folder) for folder, _, _ in os.walk(state)]
            for folder in folders:
                (folder / ".one.json.part").write_text("{")
                (folder / "one.part").touch()
            daemon.assemble(conf)
        left = {file.relative_to(state) for file in state.rglob("*") if file.is_file()}
        self.assertEqual({folder.relative_to(state) / "one.part" for folder in folders}, left)
        self.assertIn(state / "stores", folders)


class StopTest(TestCase):
    def test_an_agent_that_is_told_to_stop_ends_what_goes_on_and_then_waits_for_verbs(self):
        node, done = self.bed.node(keep=FOREVER), mock.Mock()
        done.serve.side_effect = SystemExit
        self.useFixture(fixtures.MockPatchObject(daemon, "Server", lambda *_: done))
        self.useFixture(fixtures.MockPatchObject(node.agent.stores.suspension, "stop", done.wait))
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        served = {"socket": str(node.folder / "socket"), "threads": 1}
        conf, api = SimpleNamespace(agent=SimpleNamespace(**served)), mock.Mock(agent=node.agent)
        daemon.serve(conf, api, [done])
        self.assertEqual(
            ["prepare", "start", "serve", "stop", "stop", "wait"],
            [one[0] for one in done.method_calls],
        )
