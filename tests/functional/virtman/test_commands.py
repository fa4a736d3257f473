"""What ``virtman`` and its sisters print, complete and read from a configuration file."""

import os
import shlex
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import click
import fixtures
import testtools
from click.testing import CliRunner

from planning.cmd.model import main as model
from planning.cmd.simulate import main as simulate
from tests.commands import commands, commands_of
from tests.functional.terminal import run_at_terminal
from tests.functional.virtman.api.test_client import ServedCase
from virtman import source
from virtman.cmd import table
from virtman.cmd.golden import main as golden
from virtman.cmd.shell import shell
from virtman.model.address import Portal
from volt.cmd.manage import main as manage

TOP = Path(__file__).resolve().parents[3]
LONG = "0f8a7c52-3d7e-4a9f-9f3e-5a4b1c2d3e4f"  # as nova calls a server
VIRTMAN = [sys.executable, "-m", "virtman.cmd.shell"]
PROGRAMS = {
    "virtman": "virtman.cmd.shell",
    "virtman-agent": "virtman.cmd.agent",
    "virtman-golden": "virtman.cmd.golden",
    "virtman-images": "virtman.cmd.images",
    "virtman-model": "planning.cmd.model",
    "virtman-simulate": "planning.cmd.simulate",
    "volt-api": "volt.cmd.api",
    "volt-manage": "volt.cmd.manage",
}


def run(*command, **environment):
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


class TableTest(ServedCase):
    def setUp(self):
        super().setUp()
        self.device = self.client.create(LONG, "debian", quota=3 << 30)["device"]

    def test_a_terminal_gets_a_table_that_fits(self):
        for columns in (80, 100):
            lines = run_at_terminal(columns, *VIRTMAN, "vm", "list", VIRTMAN_SOCKET=self.socket)
            self.assertEqual(2, len(lines))
            self.assertLessEqual(max(map(len, lines)), columns)
            vm, image, state, taken, quota, device = lines[1].split()
            self.assertEqual(("debian", "ready", "128K", "3G"), (image, state, taken, quota))
            for shown, whole in ((vm, LONG), (device, self.device)):
                head, tail = shown.split("…")
                self.assertTrue(whole.startswith(head) and whole.endswith(tail), shown)

    def test_a_wide_terminal_gets_all(self):
        lines = run_at_terminal(200, *VIRTMAN, "vm", "list", VIRTMAN_SOCKET=self.socket)
        self.assertEqual([LONG, "debian", "ready", "128K", "3G", self.device], lines[1].split())

    def test_a_pipe_gets_all_and_in_bytes(self):
        _, said, _ = run(*VIRTMAN, "vm", "list", VIRTMAN_SOCKET=self.socket)
        self.assertEqual(
            [LONG, "debian", "ready", "131072", "3221225472", self.device],
            said.splitlines()[1].split(),
        )

    def test_short_forms_do_the_same(self):
        for words in (["list"], ["list", "--json"]):
            short, long = (run(*VIRTMAN, *form, *words, VIRTMAN_SOCKET=self.socket)
                           for form in ([], ["vm"]))  # fmt: skip
            self.assertEqual(short, long)
        found = commands_of(shell)
        for verb in ("create", "destroy", "list", "clone", "migrate"):
            self.assertIs(found["vm"].commands[verb], found[verb])


class LoadingTest(ServedCase):
    def test_a_command_loads_no_more_than_it_needs(self):
        run(*VIRTMAN, "create", "debian", "web", VIRTMAN_SOCKET=self.socket)
        code = "import sys\nfrom virtman.cmd.shell import shell\n"
        code += "shell(['destroy', 'web'], standalone_mode=False)\nprint(*sys.modules)"
        _, said, _ = run(sys.executable, "-c", code, VIRTMAN_SOCKET=self.socket)
        loaded = said.split()
        self.assertIn("virtman.cmd.vm", loaded)
        for other in ("virtman.cmd.profile", "importlib.metadata", "concurrent.futures"):
            self.assertNotIn(other, loaded)


class RoundedTest(testtools.TestCase):
    def test_bytes_get_the_letters_that_a_quota_has(self):
        for number, shown in (
            (0, "0"), (1023, "1023"), (1024, "1K"), (1536, "1.5K"), (10 << 30, "10G"),
            (3 << 40, "3T"), (5000 << 40, "5000T"),
        ):  # fmt: skip
            self.assertEqual(shown, table.rounded(number))


class CompletionTest(ServedCase):
    def complete(self, *words, **settings):
        code, said, complaint = run(
            *VIRTMAN, _VIRTMAN_COMPLETE="bash_complete", COMP_WORDS=shlex.join(("virtman", *words)),
            COMP_CWORD=str(len(words)), **{"VIRTMAN_SOCKET": self.socket, **settings},
        )  # fmt: skip
        self.assertEqual((0, ""), (code, complaint))
        return [line.removeprefix("plain,") for line in said.splitlines() if line]

    def test_nouns_verbs_and_options(self):
        self.assertEqual(["snapshot", "source", "suspend-image"], self.complete("s"))
        self.assertIn("create", self.complete("cr"))
        self.assertEqual(["limit", "list"], self.complete("vm", "li"))
        self.assertIn("--from-snapshot", self.complete("vm", "create", "--"))

    def test_names_are_the_running_agents(self):
        for vm in ("web1", "web2", "db"):
            self.client.create(vm, "debian")
        self.client.snapshot("web1", "monday")
        self.client.snapshot("db", "tuesday")
        for words, names in (
            (["vm", "show", "w"], ["web1", "web2"]),
            (["destroy", "web1", "d"], ["db"]),
            (["create", "d"], ["debian"]),
            (["create", "debian", "w"], []),
            (["image", "drop", "d"], ["debian"]),
            (["snapshot", "show", "m"], ["monday"]),
            (["snapshot", "rollback", "db", "t"], ["tuesday"]),
            (["snapshot", "rollback", "db", "m"], []),
            (["create", "--from-snapshot", "m"], ["monday"]),
            (["move", "watch", "w"], []),
        ):
            self.assertEqual(names, self.complete(*words), words)
        asked = ["--socket", self.socket, "vm", "show", "d"]
        self.assertEqual(["db"], self.complete(*asked, VIRTMAN_SOCKET="/nowhere"))

    def test_an_agent_that_does_not_answer_is_not_waited_for(self):
        deaf = str(self.bed.folder / "deaf.sock")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(deaf)
            server.listen()
            for path in (deaf, f"{deaf}-not"):
                begin = time.monotonic()
                self.assertEqual([], self.complete("vm", "show", "w", VIRTMAN_SOCKET=path))
                self.assertLess(time.monotonic() - begin, 10)

    def test_bash_completes_with_what_the_program_prints(self):
        self.client.create("web1", "debian")
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        program = folder / "virtman"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(VIRTMAN)} "$@"\n')
        program.chmod(0o755)
        script = (
            'eval "$(_VIRTMAN_COMPLETE=bash_source virtman)"\n'
            "COMP_WORDS=(virtman vm show w) COMP_CWORD=3\n"
            "_virtman_completion virtman\n"
            'echo "${COMPREPLY[@]}"\n'
        )
        path = f"{folder}:{os.environ['PATH']}"
        _, said, complaint = run("bash", "-c", script, PATH=path, VIRTMAN_SOCKET=self.socket)
        self.assertEqual(("web1\n", ""), (said, complaint))


class VersionTest(testtools.TestCase):
    def ask(self, program, **environment):
        return run(sys.executable, "-m", PROGRAMS[program], "--version", **environment)

    def test_an_installed_package_says_its_version(self):
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        (folder / "virtman-1.2.3.dist-info").mkdir()
        known = folder / "virtman-1.2.3.dist-info" / "METADATA"
        known.write_text("Metadata-Version: 2.1\nName: virtman\nVersion: 1.2.3\n")
        for program in PROGRAMS:
            code, said, _ = self.ask(program, PYTHONPATH=f"{folder}:{TOP}")
            self.assertEqual((0, f"{program} 1.2.3\n"), (code, said))

    def test_a_source_tree_says_that_it_is_one(self):
        for program in ("virtman", "virtman-agent", "volt-manage"):
            code, said, _ = self.ask(program)
            self.assertEqual(0, code)
            self.assertRegex(said, rf"^{program} (\(not installed: .*\)|\d.*)\n$")


class HelpTest(testtools.TestCase):
    def test_help_is_plain_and_fits_a_terminal(self):
        for root in (shell, golden, manage, model, simulate):
            for words, command in commands(root):
                text = CliRunner().invoke(root, [*words, "--help"], terminal_width=80).output
                self.assertIn("Usage:", text)
                self.assertNotRegex(text, r"(?m) _|[a-z]\.\.\.$", words)
                self.assertLessEqual(max(map(len, text.splitlines())), 80, words)
                for parameter in command.params:
                    if isinstance(parameter, click.Option):
                        self.assertTrue(parameter.help, (words, parameter.name))


CONF = """
[DEFAULT]
debug = true
[agent]
host = store1
[export]
ip = 192.0.2.7
port = 3262
[volt]
url = https://volt.example:8778
token_file = /etc/virtman/operator.token
cafile = /etc/virtman/ca.pem
"""


class SettingsTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.home = self.folder / "home"
        (self.home / ".virtman").mkdir(parents=True)
        self.useFixture(fixtures.EnvironmentVariable("HOME", str(self.home)))
        self.image = self.folder / "image.raw"
        self.image.write_bytes(bytes(512))
        self.calls = []
        for verb, answer in (
            ("add", source.Added(Portal("192.0.2.7", 3260, "iqn"), ())),
            ("withdraw", (False, None)),
        ):
            called = partial(self.called, answer)
            self.useFixture(fixtures.MockPatchObject(source, verb, called))

    def called(self, answer, *arguments, **settings):
        self.calls.append(arguments)
        return answer

    def configure(self, text=CONF, name="storage.conf"):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def invoke(self, *words):
        return CliRunner().invoke(shell, ["source", *words])

    def add(self, *words):
        done = self.invoke("add", "img", str(self.image), *words)
        self.assertEqual(0, done.exit_code, done.output)
        _, _, where, volt, access, _ = self.calls.pop()
        return (where.host, where.ip, where.port, volt, access.token_file, access.cafile)

    FILE = (
        "store1", "192.0.2.7", 3262, "https://volt.example:8778", "/etc/virtman/operator.token",
        "/etc/virtman/ca.pem",
    )  # fmt: skip

    def test_a_source_is_added_and_removed_as_the_file_says(self):
        conf = self.configure()
        self.assertEqual(self.FILE, self.add("--config-file", conf))
        self.assertEqual(0, self.invoke("remove", "img", "--config-file", conf).exit_code)
        ((image, host, volt, access),) = self.calls
        self.assertEqual(
            ("img", "store1", "https://volt.example:8778", "/etc/virtman/operator.token"),
            (image, host, volt, access.token_file),
        )

    def test_a_base_that_is_not_found_is_said_and_one_cannot_be_told_without_hashes(self):
        conf = ("--config-file", self.configure())
        done = self.invoke("add", "img", str(self.image), "--find-base", *conf)
        self.assertIn("no image of this host has much in common with img", done.output)
        for words, why in (
            (["--find-base", "--no-hash-tree"], "without a hash tree"),
            (["--based-on", "other", "--no-hash-tree"], "without a hash tree"),
            (["--no-base", "--find-base"], "give one of"),
        ):
            done = self.invoke("add", "img", str(self.image), *words, *conf)
            self.assertEqual(2, done.exit_code)
            self.assertIn(why, done.output)

    def test_the_file_is_found_where_oslo_config_looks(self):
        self.configure(name="home/.virtman/virtman.conf")
        self.assertEqual(self.FILE, self.add())

    def test_flags_come_before_the_file(self):
        flags = ["--host", "other", "--ip", "192.0.2.8", "--port", "3260", "--volt", "http://v",
                 "--token-file", "", "--cafile", "/ca"]  # fmt: skip
        found = self.add(*flags, "--config-file", self.configure())
        self.assertEqual(("other", "192.0.2.8", 3260, "http://v", "", "/ca"), found)
        self.assertEqual(found, self.add(*flags))

    def test_without_either_it_says_what_to_do(self):
        for words, option, setting in (
            (["--ip", "192.0.2.7"], "--volt", "[volt] url"),
            (["--volt", "http://v"], "--ip", "[export] ip"),
        ):
            done = self.invoke("add", "img", str(self.image), *words)
            self.assertEqual(2, done.exit_code)
            self.assertIn(
                f"Missing option '{option}': give it, or set {setting} in the configuration file.",
                done.output,
            )
        self.assertEqual([], self.calls)

    def test_the_name_of_the_host_is_the_default(self):
        host, *_ = self.add("--ip", "192.0.2.7", "--volt", "http://v")
        self.assertEqual(socket.gethostname().lower(), host)

    def test_beside_an_agent_a_source_has_its_name(self):
        agent = self.folder / "agent.sock"
        agent.touch()
        conf = self.configure(CONF.replace("[agent]", f"[agent]\nsocket = {agent}"))
        self.assertEqual(self.FILE, self.add("--config-file", conf))

    def test_a_file_that_cannot_be_used_is_named(self):
        for text, word in (("[export]\nport = x\n", "port"), ("no group\n", "storage.conf")):
            done = self.invoke("add", "img", str(self.image), "--config-file", self.configure(text))
            self.assertEqual(1, done.exit_code)
            self.assertIn(word, done.output)
            self.assertTrue(done.output.startswith("Error: "), done.output)

    def test_golden_takes_the_same_from_the_file(self):
        names = ("host", "ip", "port", "volt", "token_file", "cafile")
        conf = self.configure()
        params = golden.make_context("virtman-golden", ["--config-file", conf]).params
        self.assertEqual(self.FILE, tuple(params[name] for name in names))
        flags = ["--config-file", conf, "--port", "3260", "--token-file", ""]
        params = golden.make_context("virtman-golden", flags).params
        self.assertEqual((3260, ""), (params["port"], params["token_file"]))
        self.configure(CONF.replace("3262", "3263"), "home/.virtman/virtman-golden.conf")
        self.assertEqual(3263, golden.make_context("virtman-golden", []).params["port"])
