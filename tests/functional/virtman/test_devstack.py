"""The plug-in of devstack, in a root of its own: real files and programs, no services."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import fixtures
import testtools
import yaml
from oslo_config import cfg, iniparser
from werkzeug.test import Client

from tests.functional.volt.keystone import Keystone, StandIn
from virtman import conf as agent_options
from virtman.cmd.golden import main as golden
from virtman.cmd.images import main as images
from virtman.openstack import options
from volt import conf as volt_options
from volt.api import app
from volt.auth import policies
from volt.background.worker import Worker

TOP = Path(__file__).resolve().parents[3]
ALL = "nova n-cpu cinder c-api horizon"


class Settings(iniparser.BaseParser):
    """What a file sets; the last word counts."""

    def __init__(self, file):
        super().__init__()
        self.group = ""
        self.found = {}
        with open(file, encoding="utf-8") as lines:
            self.parse(lines)

    def new_section(self, section):
        self.group = section

    def assignment(self, key, value):
        self.found[self.group, key] = value[0]


class DevstackTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.root = Path(self.useFixture(fixtures.TempDir()).path)
        self.clone = self.root / "dest" / "virtman"
        for name in ("devstack", "etc"):
            self.clone.mkdir(parents=True, exist_ok=True)
            (self.clone / name).symlink_to(TOP / name)
        enabled = self.clone / "horizon_patches" / "virtman_dashboard" / "enabled"
        enabled.mkdir(parents=True)
        for name in ("__init__.py", "_3110_virtman.py"):
            (enabled / name).touch()
        self.apply("exit 0")
        self.volt_manage("echo token")
        self.local = self.root / "dest" / "horizon" / "openstack_dashboard" / "local"
        for folder in (self.local / "enabled", self.local / "local_settings.d", self.root / "etc"):
            folder.mkdir(parents=True)
        self.driver = self.root / "dest" / "nova" / "nova" / "virt" / "virtman"
        self.driver.parent.mkdir(parents=True)
        self.etc = self.root / "etc"
        (self.etc / "nova.conf").write_text("[DEFAULT]\nhost = Node1\n")
        (self.etc / "nova-cpu.conf").touch()

    def program(self, path, body):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def volt_manage(self, body):
        self.program(self.root / "bin" / "volt-manage", body)

    def apply(self, outcome):
        record = f'echo "apply|$*" >> "{self.root}/calls"'
        self.program(self.clone / "nova_patches" / "apply", f"{record}\n{outcome}")

    def run_phase(self, *phase, services=ALL, **settings):
        """Run the plug-in as stack.sh does; return what it called since."""
        calls = self.root / "calls"
        calls.write_text("")
        script = (
            "set -o errexit\n"
            f"source {TOP}/tests/functional/virtman/devstack.sh\n"
            f"source {TOP}/devstack/settings\n"
            f"source {TOP}/devstack/plugin.sh {' '.join(phase)}\n"
        )
        environment = {
            **os.environ,
            "ROOT": str(self.root),
            "PROGRAMS": str(self.root / "bin"),
            "ENABLED_SERVICES": services,
            **settings,
        }
        self.done = subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False
        )
        return [line.split("|") for line in calls.read_text().splitlines()]

    def stack(self, **settings):
        calls = []
        for phase in ("install", "post-config", "extra"):
            calls += self.run_phase("stack", phase, **settings)
            self.assertEqual((0, ""), (self.done.returncode, self.done.stderr))
        return calls

    def settings(self, name):
        return Settings(self.etc / name).found

    def real_volt_manage(self):
        self.volt_manage(f'PYTHONPATH={TOP} exec {sys.executable} -m volt.cmd.manage "$@"')

    def test_programs_take_what_it_configures(self):
        self.real_volt_manage()
        self.stack(VIRTMAN_CACHE_DEVICES="/dev/vdb,/dev/vdc")
        volt = volt_options.load([str(self.etc / "virtman" / "volt.conf")])
        self.assertEqual("0.0.0.0:8778", volt.api.bind)
        agent = agent_options.register(cfg.ConfigOpts())
        agent([], default_config_files=[str(self.etc / "virtman" / "virtman.conf")])
        self.assertEqual(["/dev/vdb", "/dev/vdc"], agent.cache.devices)
        self.assertEqual("http://192.0.2.1:8778", agent.volt.url)
        # The name by which nova knows the node, as Volt can have it.
        self.assertEqual("node1", agent.agent.host)
        for group, key in self.settings("virtman/virtman.conf"):
            self.assertIn(key, agent[group])
        for name in ("operator", "reader", "node1"):
            token = self.etc / "virtman" / f"{name}.token"
            self.assertTrue(token.read_text().strip())
            self.assertEqual(0o600, token.stat().st_mode & 0o777)
        self.assertEqual(str(token), agent.volt.token_file)

    def test_volt_takes_tokens_of_users_beside_those_of_agents(self):
        cleanups = ExitStack()
        self.addCleanup(cleanups.close)
        keystone = Keystone(StandIn(cleanups), "/identity", {"volt": ["service"]}, "p")
        keystone.users = {"of-admin": ("admin", ["admin"]), "of-demo": ("demo", ["member"])}
        self.real_volt_manage()
        calls = self.stack(KEYSTONE=keystone.url.removesuffix("/v3"))
        self.assertIn(["create_service_user", "volt"], calls)
        file = self.etc / "virtman" / "volt.conf"
        self.assertEqual(0o600, file.stat().st_mode & 0o777)
        options = volt_options.load([str(file)])
        worker = Worker(options)
        self.addCleanup(worker.engine.dispose)
        client = Client(app.from_conf(options, worker, policies.load(options)))
        own = (self.etc / "virtman" / "reader.token").read_text().strip()
        for token, status in (("of-admin", 200), ("of-demo", 403), (own, 200), ("of-nobody", 401)):
            answer = client.get("/v1/images", headers={"X-Auth-Token": token})
            self.assertEqual(status, answer.status_code, token)

    def test_services_run(self):
        calls = self.stack()
        ran = {call[1]: call[2:] for call in calls if call[0] == "run_process"}
        self.assertEqual({"volt", "virtman-agent", "virtman-golden", "virtman-images"}, set(ran))
        self.assertEqual(["", "root"], ran["virtman-agent"][1:])
        program, *arguments = ran["virtman-golden"][0].split()[2:]
        self.assertTrue(program.endswith("/virtman-golden"))
        options = golden.make_context("virtman-golden", arguments).params
        self.assertEqual(("virtman", 3262), (options["cloud"], options["port"]))
        self.assertEqual("node1", options["host"])
        program, *arguments = ran["virtman-images"][0].split()[2:]
        self.assertTrue(program.endswith("/virtman-images"))
        options = images.make_context("virtman-images", arguments).params
        self.assertEqual(self.root / "data" / "virtman" / "glance", options["folder"])
        clouds = yaml.safe_load((self.etc / "virtman" / "clouds.yaml").read_text())
        self.assertEqual("nova", clouds["clouds"]["virtman"]["auth"]["username"])
        (kind,) = [call for call in calls if call[0] == "openstack"]
        self.assertIn("multiattach=<is> True", kind)

    def test_nova_and_horizon_know_of_it(self):
        calls = self.stack()
        self.assertIn(["apply", str(self.root / "dest" / "nova")], calls)
        self.assertEqual(self.clone / "nova" / "virt" / "virtman", self.driver.readlink())
        known = {one.dest for one in options.OPTS}
        weigher = (TOP / "virtman" / "openstack" / "weigher.py").read_text()
        for name in ("nova.conf", "nova-cpu.conf"):
            found = self.settings(name)
            self.assertEqual("True", found["virtman", "use_vmtsnapshot"])
            self.assertEqual("nova", found["cinder", "username"])
            for group, key in found:
                if group == "virtman":
                    self.assertTrue(key in known or f'"{key}"' in weigher, key)
            self.assertEqual("virtman.LibvirtDriver", found["DEFAULT", "compute_driver"])
            self.assertNotIn(("conductor", "workers"), found)
        self.assertEqual(
            "nova.scheduler.weights.all_weighers,virtman.openstack.weigher.WarmWeigher",
            self.settings("nova.conf")["filter_scheduler", "weight_classes"],
        )
        self.assertEqual(
            ["_3110_virtman.py"], [one.name for one in (self.local / "enabled").iterdir()]
        )
        scope = {}
        exec((self.local / "local_settings.d" / "_3110_virtman.py").read_text(), scope)
        self.assertEqual("virtman", scope["VIRTMAN"]["volume_type"])

    def test_settings_for_large_requests(self):
        self.stack(VIRTMAN_LARGE_REQUESTS="True")
        for ours, theirs in (("nova", "nova.conf"), ("cinder", "cinder.conf")):
            profile = Settings(TOP / "etc" / "openstack" / f"{ours}-large-requests.conf").found
            found = self.settings(theirs)
            self.assertEqual(profile, {key: found.get(key) for key in profile})

    def test_compute_node_of_several_has_an_agent_only(self):
        for phase in ("install", "post-config", "extra"):
            calls = self.run_phase("stack", phase, services="nova n-cpu", ONLY="virtman-agent")
            self.assertEqual((0, ""), (self.done.returncode, self.done.stderr))
        self.assertEqual(["virtman-agent"], [call[1] for call in calls if call[0] == "run_process"])
        self.assertEqual(["virtman.conf"], [one.name for one in (self.etc / "virtman").iterdir()])

    def test_another_nova_stops_it(self):
        self.apply("exit 1")
        self.run_phase("stack", "install")
        self.assertEqual(1, self.done.returncode)
        self.assertIn("check out 34.0.0", self.done.stderr)

    def test_clean_leaves_nothing(self):
        self.stack()
        stopped = self.run_phase("unstack")
        self.assertEqual(4, sum(call[0] == "stop_process" for call in stopped))
        calls = self.run_phase("clean")
        self.assertEqual(0, self.done.returncode, self.done.stderr)
        self.assertIn(["apply", "--undo " + str(self.root / "dest" / "nova")], calls)
        self.assertFalse(self.driver.is_symlink())
        self.assertFalse((self.etc / "virtman").exists())
        self.assertFalse((self.root / "data" / "virtman").exists())
        left = [*(self.local / "enabled").iterdir(), *(self.local / "local_settings.d").iterdir()]
        self.assertEqual([], left)
