"""What volt-manage and volt-api print and refuse."""

import json
import subprocess
import sys
import threading
import traceback
from datetime import UTC, datetime, timedelta

from click.testing import CliRunner
from sqlalchemy import text

from lab.waiting import wait_until
from tests.functional.terminal import run_at_terminal
from tests.functional.volt.base import TestCase
from tests.profiles import ROOT_HASH, UPPER_HASHES, profile
from volt.cmd import manage
from volt.db.clock import ClockTable, Reading
from volt.model.hosts import ImageReport, Report, Wiring
from volt.model.images import NewImage
from volt.model.imports import Importing, Told
from volt.model.profiles import parse
from volt.model.warmups import Progress, Warming
from volt.placement.rules import Shape
from volt.transport import Portal
from volt.transport.iscsi import Chap


class TestCommands(TestCase):
    def setUp(self):
        super().setUp()
        self.conf = self.configure("volt.conf", self.ground.url)

    def configure(self, name, url):
        path = self.ground.folder / name
        path.write_text(f"[database]\nconnection = {url}\n[source]\ntimeout = 1\n")
        return str(path)

    def run_manage(self, *words, conf=None):
        return CliRunner().invoke(manage.main, ["--config-file", conf or self.conf, *words])

    def run_api(self, *words):
        # in a process of its own: it changes how all of Python waits
        command = [sys.executable, "-m", "volt.cmd.api", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def status_of_heartbeat(self, host, token):
        headers = {"Authorization": f"Bearer {token}"}
        client = self.ground.client()
        body = {"images": {}}
        return client.put(f"/v1/hosts/{host}/heartbeat", headers=headers, json=body).status_code

    def add(self, *more):
        source = ["--source-ip", "127.0.0.1", "--source-iqn", "iqn.2003-01.org.example:s"]
        port = ["--source-port", str(self.ground.source_port)]
        return self.run_manage("image", "add", "demo", "--size", "1024", *source, *port, *more)

    def test_an_image_is_added_listed_and_drawn(self):
        assert self.add("--fanout", "3").output == "image demo created\n"
        assert self.add("--fanout", "3").output == "image demo was there already\n"
        portal = Portal("192.0.2.1", 3260, "iqn.2003-01.org.example:h", 0)
        self.ground.placements.join("demo", "node1", portal)
        assert "demo" in self.run_manage("image", "list").output
        assert self.run_manage("tree", "show", "demo").output == (
            "stripe 0\nsource\n└─ node1* (joining)\n\nstripe 1\nsource\n└─ node1 (joining)\n"
        )
        shown = json.loads(self.run_manage("tree", "show", "demo", "--json").output)
        served = self.ground.client().get("/v1/images/demo/trees").json
        assert shown == served

    def test_an_image_with_a_whole_copy_is_independent_of_its_source(self):
        self.add()
        self.ground.placements.join(
            "demo", "node1", Portal("192.0.2.1", 3260, "iqn.2003-01.org.example:h", 0)
        )
        assert "state: needs its source" in self.run_manage("image", "show", "demo").output
        refused = self.run_manage("image", "rehome", "demo", "node1")
        assert "'virtman image hydrate' makes one there" in refused.output
        report = ImageReport(generation=1, copied=1024, whole=True)
        self.ground.hosts.heartbeat("node1", Report({"demo": report}))
        done = self.run_manage("image", "rehome", "demo", "node1")
        assert done.output == "image demo comes from node1\n"
        shown = self.run_manage("image", "show", "demo").output
        assert "home: node1" in shown
        assert "state: independent of its source" in shown
        assert self.run_manage("image", "rehome", "demo").exit_code == 2
        done = self.run_manage("image", "rehome", "demo", "--source")
        assert done.output == "image demo comes from its source\n"

    def test_hosts_are_told_to_copy_an_image(self):
        assert self.add().exit_code == 0
        self.ground.placements.join(
            "demo", "node1", Portal("192.0.2.1", 3260, "iqn.2003-01.org.example:h", 0)
        )
        assert "no hash tree" in self.run_manage("image", "hydrate", "demo", "--after", "9").output
        assert self.run_manage("image", "hydrate", "demo").exit_code == 2
        assert self.run_manage("image", "hydrate", "demo", "--copies", "0").exit_code == 2
        assert (
            self.run_manage("image", "hydrate", "demo", "--copies", "2", "--never").exit_code == 2
        )
        done = self.run_manage("image", "hydrate", "demo", "--never")
        assert done.output == "image demo is copied by its hosts: never\n"

    def test_so_many_whole_copies_are_wanted_and_shown(self):
        portal = Portal("192.0.2.1", self.ground.source_port, "iqn.2003-01.org.example:h", 0)
        there = Portal("127.0.0.1", self.ground.source_port, "iqn.2003-01.org.example:s", 0)
        hashed = {"root_hash": ROOT_HASH, "salt": "b" * 64, "upper_hashes": UPPER_HASHES}
        new = NewImage("demo", 1 << 20, Shape.FOREST, 2, 2, there, **hashed)
        self.ground.images.create(new, datetime.now(UTC))
        for host in ("node1", "node2", "node3"):
            self.ground.placements.join("demo", host, portal, Wiring("r1"))
        for words, said in (
            (("--copies", "all"), "its hosts: as soon as it comes"),
            (("--after", "60"), "its hosts: 60 s after it came"),
            (("--copies", "2", "--after", "60"), "2 of its hosts: 60 s after it came"),
        ):
            done = self.run_manage("image", "hydrate", "demo", *words)
            assert done.output == f"image demo is copied by {said}\n"
        report = ImageReport(generation=1, copied=1 << 20, whole=True)
        self.ground.hosts.heartbeat("node3", Report({"demo": report}))
        shown = self.run_manage("image", "show", "demo").output
        assert "copied by 2 of its hosts: 60 s after it came, rate 0\n" in shown
        assert [line.split() for line in shown.splitlines()[-3:]] == [
            ["node1", "r1", "0", "chosen"],
            ["node2", "r1", "0", "chosen"],
            ["node3", "r1", "1048576", "whole"],
        ]

    def test_an_image_that_is_added_again_keeps_the_secret_of_its_source(self):
        source = Portal("127.0.0.1", self.ground.source_port, "iqn.2003-01.org.example:s", 0)
        asked = Chap("source", "secretsecret")
        new = NewImage("demo", 1024, Shape.FOREST, 2, 2, source, asked)
        self.ground.images.create(new, datetime.now(UTC))
        before, _ = self.ground.placements.join("demo", "node1", source)
        assert before.stripes[0].parent.chap == asked
        assert self.add().output == "image demo was there already\n"
        assert self.ground.placements.show("demo", "node1") == before

    def test_a_hosts_link_is_listed_in_megabits(self):
        self.add()
        portal = Portal("127.0.0.1", 3260, "iqn.2003-01.org.example:node1", 0)
        self.ground.placements.join("demo", "node1", portal, Wiring("r7", 1_250_000_000))
        [_, line] = self.run_manage("host", "list").output.splitlines()
        assert line.split()[:3] == ["node1", "r7", "10000"]

    def test_hosts_are_listed_and_drained(self):
        self.ground.hosts.heartbeat("node1", Report({"demo": ImageReport(1)}))
        assert self.run_manage("host", "drain", "node1").output == "host node1 is draining\n"
        [_, line] = self.run_manage("host", "list").output.splitlines()
        assert line.split() == ["node1", "-", "-", "0", "1", "draining"]
        assert self.run_manage("host", "undrain", "node1").exit_code == 0
        assert "draining" not in self.run_manage("host", "list").output
        assert "not known" in self.run_manage("host", "drain", "nobody").output

    def test_lists_fit_a_terminal_and_are_complete_in_a_pipe(self):
        name = "compute-0f8a7c52-3d7e-4a9f-9f3e-5a4b1c2d3e4f"
        assert self.run_manage("token", "create", "--role", "host", "--host", name).exit_code == 0
        words = ["--config-file", self.conf, "token", "list"]
        lines = run_at_terminal(80, sys.executable, "-m", "volt.cmd.manage", *words)
        assert max(map(len, lines)) <= 80
        (shown,) = [line.split()[2] for line in lines if " compute-" in line]
        head, tail = shown.split("…")
        assert name.startswith(head)
        assert name.endswith(tail)
        assert f" {name} " in self.run_manage("token", "list").output

    def test_silent_hosts_are_expired_at_an_operators_word(self):
        self.ground.hosts.heartbeat("node1", Report({}))
        assert self.run_manage("host", "expire").output == "0 hosts expired\n"
        clock = ClockTable(self.ground.engine)
        seen = clock.read()
        assert clock.move(seen, Reading("somebody", seen.tick + 16))
        self.ground.hosts.heartbeat("node2", Report({}))
        assert self.run_manage("host", "expire").output == "1 hosts expired\n"
        assert [host.host for host in self.ground.hosts.index()] == ["node2"]

    def test_refusals_are_messages_and_exit_status_one(self):
        self.add()
        for words in (
            ("tree", "show", "nope"),
            ("image", "add", "demo", "--size", "1", "--source-ip", "::1", "--source-iqn", "x"),
        ):
            result = self.run_manage(*words)
            assert result.exit_code == 1
            assert result.output.startswith("Error: ")

    def test_a_token_is_printed_once_and_holds_until_it_is_revoked(self):
        printed = self.run_manage("token", "create", "--role", "host", "--host", "node1").output
        token = printed.removesuffix("\n")
        assert self.status_of_heartbeat("node1", token) == 200
        listed = json.loads(self.run_manage("token", "list", "--json").output)
        (name,) = [each["name"] for each in listed if each["host"] == "node1"]
        shown = self.run_manage("token", "list").output
        assert name in shown
        assert token not in shown
        assert self.run_manage("token", "revoke", name).exit_code == 0
        self.ground.app = self.ground.serve()
        assert self.status_of_heartbeat("node1", token) == 401
        again = self.run_manage("token", "revoke", name)
        assert again.exit_code == 1
        assert "volt-manage token list" in again.output

    def test_many_hosts_get_a_token_each(self):
        hosts = ["--host", "node1", "--host", "node2"]
        words = ["token", "create", "--role", "host", *hosts, "--days", "30", "--json"]
        made = json.loads(self.run_manage(*words).output)
        assert [each["host"] for each in made] == ["node1", "node2"]
        assert len({each["token"] for each in made}) == 2
        lifetime = [datetime.fromisoformat(made[0][name]) for name in ("created_at", "expires_at")]
        assert lifetime[1] - lifetime[0] == timedelta(days=30)
        plain = self.run_manage("token", "create", "--role", "host", *hosts).output
        assert [line[:3] for line in plain.splitlines()] == ["vt_", "vt_"]

    def test_a_token_that_would_be_of_no_use_is_refused(self):
        for words in (
            ("--role", "host"),
            ("--role", "operator", "--host", "node1"),
            ("--role", "host", "--host", "Node 1"),
        ):
            result = self.run_manage("token", "create", *words)
            assert result.exit_code == 1
            assert result.output.startswith("Error: ")

    def test_a_profile_is_imported_listed_exported_and_deleted(self):
        self.make_image("demo")
        file, copy = (self.ground.folder / name for name in ("file", "copy"))
        boot = ("demo", "boot")
        for revision, content in enumerate((b"1", b"2"), start=1):
            file.write_bytes(profile(content))
            done = self.run_manage("profile", "import", *boot, str(file))
            assert done.output == f"profile boot of image demo is at revision {revision}\n"
        [_, line] = self.run_manage("profile", "list", "demo").output.splitlines()
        assert line.split()[:3] == ["boot", "2", "70"]
        [_, *lines] = self.run_manage("profile", "history", *boot).output.splitlines()
        assert [each.split()[0] for each in lines] == ["2", "1"]
        for words, path in ((("list", "demo"), ""), (("history", *boot), "/boot/history")):
            shown = json.loads(self.run_manage("profile", *words, "--json").output)
            assert shown == self.ground.client().get(f"/v1/images/demo/profiles{path}").json
        for more, content in (((), b"2"), (("--revision", "1"), b"1")):
            assert self.run_manage("profile", "export", *boot, str(copy), *more).exit_code == 0
            assert copy.read_bytes() == profile(content)
        for state in ("deleted", "was not there"):
            done = self.run_manage("profile", "delete", *boot)
            assert done.output == f"profile boot of image demo {state}\n"

    def test_hosts_are_asked_to_warm_an_image_and_waited_for(self):
        self.make_profiled("demo")
        for host in ("node1", "node2"):
            self.ground.hosts.heartbeat(host, Report({}))
        for words in ((), ("--all", "--rack", "r1")):
            refused = self.run_manage("image", "warm", "demo", *words)
            assert refused.exit_code == 2
            assert "give one of --hosts, --rack and --all" in refused.output
        strange = self.run_manage("image", "warm", "demo", "--hosts", "node1,nobody")
        assert strange.exit_code == 1
        assert "not known: host nobody" in strange.output
        asked = self.run_manage("image", "warm", "demo", "--hosts", "node1")
        [_, line] = asked.output.splitlines()
        assert line.split() == ["node1", "boot", "asked", "0", "0"]
        self.tell("node1", Warming.WARM, 8, 8, "")
        for state, status in ((Warming.WARM, 0), (Warming.FAILED, 1)):
            self.tell_once_asked("node1", Warming.WARM, 8, 8, "")
            self.tell_once_asked("node2", state, 8, 5, "why" if status else "")
            done = self.run_manage("image", "warm", "demo", "--all", "--wait")
            assert done.exit_code == status
            assert [line.split()[:5] for line in done.output.splitlines()[1:3]] == [
                ["node1", "boot", "left", "8", "8"],
                ["node2", "boot", "failed" if status else "left", "5", "8"],
            ]
        assert "1 of 2 hosts are not warm" in done.output
        shown = json.loads(self.run_manage("image", "warmups", "demo", "--json").output)
        assert shown == self.ground.client().get("/v1/images/demo/warmups").json

    def test_a_host_that_expires_is_not_waited_for(self):
        self.make_profiled("demo")
        self.ground.hosts.heartbeat("node1", Report({}))
        timer = threading.Timer(1.5, self.ground.hosts.expire, (["node1"],))
        timer.start()
        self.addCleanup(timer.join)
        done = self.run_manage("image", "warm", "demo", "--all", "--wait", "--json")
        assert done.exit_code == 1
        assert "Volt does not know the host any more" in done.output

    def make_image(self, name):
        """Add an image with a hash tree."""
        source = Portal("127.0.0.1", self.ground.source_port, "iqn.2003-01.org.example:s", 0)
        tree = {"root_hash": ROOT_HASH, "salt": ROOT_HASH, "upper_hashes": UPPER_HASHES}
        new = NewImage(name, 1024**2, Shape.FOREST, 2, 2, source, **tree)
        self.ground.images.create(new, datetime.now(UTC))

    def make_profiled(self, name):
        """Add one that has a boot profile, too."""
        self.make_image(name)
        self.ground.profiles.store(name, "boot", parse(profile()), datetime.now(UTC))

    def tell(self, host, *progress):
        """Have a host say how far it is with what it is asked just now."""
        (wish,) = self.ground.warmups.of_host(host)
        self.ground.warmups.tell("demo", host, Progress(wish.generation, *progress))

    def tell_once_asked(self, host, *progress):
        """Have it say so as soon as it is asked."""

        def tell():
            wait_until(lambda: self.ground.warmups.of_host(host), f"a word to {host}", 20)
            self.tell(host, *progress)

        thread = threading.Thread(target=tell)
        thread.start()
        self.addCleanup(thread.join)

    def test_a_profile_that_cannot_be_had_leaves_files_alone(self):
        self.add()
        file = self.ground.folder / "file"
        file.write_bytes(b"anything")
        for words in (
            ("export", "demo", "boot", str(file)),
            ("import", "demo", "boot", str(file)),
            ("history", "demo", "boot"),
            ("list", "nope"),
        ):
            refused = self.run_manage("profile", *words)
            assert refused.exit_code == 1
            assert refused.output.startswith("Error: ")
        assert file.read_bytes() == b"anything"

    def test_caps_are_set_listed_and_cleared(self):
        self.add()
        for words, rate in (
            (("--image", "demo", "2.5MiB"), 2621440),
            (("--image", "demo", "40MiB"), 41943040),
            (("--rack", "Row1_R2", "4096"), 4096),
            (("--host", "node7", "1MiB"), 1048576),
        ):
            done = self.run_manage("cap", "set", *words)
            assert done.output == f"cap of {words[0][2:]} {words[1]}: {rate} bytes/s\n"
        [_, *lines] = self.run_manage("cap", "list").output.splitlines()
        assert [line.split() for line in lines] == [
            ["host", "node7", "1048576", "0", "0"],
            ["image", "demo", "41943040", "0", "0"],
            ["rack", "Row1_R2", "4096", "0", "0"],
        ]
        shown = json.loads(self.run_manage("cap", "list", "--json").output)
        assert shown == self.ground.client().get("/v1/caps").json
        for state in ("removed", "was not there"):
            done = self.run_manage("cap", "clear", "--image", "demo")
            assert done.output == f"cap of image demo {state}\n"

    def test_a_cap_that_makes_no_sense_is_refused(self):
        self.add()
        for words, told in (
            (("set", "--image", "nope", "1MiB"), "image nope is not known"),
            (("set", "--rack", "r 7", "1MiB"), "take 1 to 48 letters"),
            (("set", "--host", "N 7", "1MiB"), "host name 'N 7' is not allowed"),
            (("set", "--image", "demo", "0"), "volt-manage cap clear"),
            (("set", "--image", "demo", "40MB"), "such as 41943040, 40MiB or 2.5MiB"),
            (("set", "40MiB"), "give --image, --rack or --host"),
            (("clear", "--image", "demo", "--rack", "r7"), "give --image, --rack or --host"),
        ):
            refused = self.run_manage("cap", *words)
            assert refused.exit_code > 0
            assert told in refused.output
        assert self.ground.caps.index() == []

    def test_what_a_lost_host_needs_is_listed_and_let_go(self):
        self.add()
        for host, disks in (("node7", {"demo": 2, "other": 1}), ("node8", {"demo": 0})):
            self.ground.hosts.heartbeat(host, Report({}, disks=disks))
        self.ground.hosts.expire(["node7"])
        [_, *lines] = self.run_manage("hold", "list").output.splitlines()
        assert [line.split()[:5] for line in lines] == [
            ["demo", "node7", "2", "gone", "known"],
            ["demo", "node8", "0", "heard", "known"],
            ["other", "node7", "1", "gone", "missing"],
        ]
        assert len(self.run_manage("hold", "list", "--image", "other").output.splitlines()) == 2
        shown = json.loads(self.run_manage("hold", "list", "--host", "node7", "--json").output)
        assert shown == self.ground.client().get("/v1/holds?host=node7").json
        refused = self.run_manage("hold", "release", "node8")
        assert refused.exit_code == 1
        assert "host node8 has not expired" in refused.output
        done = self.run_manage("hold", "release", "node7", "--image", "other")
        assert done.output == "image other: 1 disks of host node7 let go\n"
        done = self.run_manage("hold", "release", "node7")
        assert done.output == "image demo: 2 disks of host node7 let go\n"
        assert self.run_manage("hold", "release", "node7").output == "host node7 needs no image\n"
        assert [one.host for one in self.ground.holds.index()] == ["node8"]

    def test_images_that_hosts_wait_for_are_listed_and_tried_anew(self):
        self.ground.hosts.heartbeat("node7", Report({}, disks={"one": 0, "two": 0}))
        failed = Told("storage1", Importing.FAILED, 0, 0, "its hash is wrong")
        self.ground.imports.tell("one", failed)
        [_, *lines] = self.run_manage("import", "list").output.splitlines()
        assert [line.split() for line in lines] == [
            ["one", "failed", "storage1", "1", "0", "0", "0", "its", "hash", "is", "wrong"],
            ["two", "wanted", "-", "1", "0", "0", "-"],
        ]
        assert self.run_manage("import", "retry", "one").exit_code == 0
        shown = json.loads(self.run_manage("import", "list", "--json").output)
        assert shown == self.ground.client().get("/v1/imports").json
        assert [one["state"] for one in shown["imports"]] == ["wanted", "wanted"]

    def test_every_command_has_a_help(self):
        for words in (
            "", "db upgrade", "image add", "image list", "image show", "image rehome",
            "image hydrate", "tree show",
            "host list",
            "token", "token create", "token list", "token revoke", "profile", "profile list",
            "profile history", "profile export", "profile import", "profile delete", "image warm",
            "image warmups", "cap", "cap list", "cap set", "cap clear", "hold", "hold list",
            "hold release", "import", "import list", "import retry",
        ):  # fmt: skip
            result = CliRunner().invoke(
                manage.main, ["--config-file", self.conf, *words.split(), "--help"]
            )
            assert result.exit_code == 0
        assert self.run_api("--help").returncode == 0

    def test_a_database_that_is_not_there_does_not_spread_its_password(self):
        password = "the-databases-password"
        conf = self.configure("far.conf", f"postgresql+psycopg://volt:{password}@127.0.0.1:1/volt")
        asked = self.run_manage("token", "list", conf=conf)
        assert asked.exit_code == 1
        assert asked.exception
        served = self.run_api("--config-file", conf)
        assert served.returncode == 1
        told = asked.output + "".join(traceback.format_exception(asked.exception))
        assert password not in told + served.stdout + served.stderr

    def test_an_old_schema_is_refused_until_it_is_upgraded(self):
        conf = self.configure("old.conf", f"sqlite:///{self.ground.folder}/old.sqlite")
        refused = self.run_api("--config-file", conf)
        assert refused.returncode == 1
        assert "volt-manage db upgrade" in refused.stderr
        assert self.run_manage("image", "list", conf=conf).exit_code == 1
        for _ in range(2):
            assert self.run_manage("db", "upgrade", conf=conf).exit_code == 0
        assert self.run_manage("image", "list", conf=conf).exit_code == 0

    def test_a_schema_of_a_newer_volt_is_refused_and_left_as_it_is(self):
        revision = text("UPDATE alembic_version SET version_num = 'later'")
        with self.ground.engine.begin() as connection:
            connection.execute(revision)
        for words in (["image", "list"], ["db", "upgrade"]):
            refused = self.run_manage(*words)
            assert refused.exit_code == 1
            assert "revision later, which this Volt does not know" in refused.output
