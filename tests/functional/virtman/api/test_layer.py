"""Users commit VMs, see how far that is, and remove layers; by the API and by commands."""

import json
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import fixtures
from click.testing import CliRunner

from lab.waiting import wait_until
from tests.functional.virtman.api.test_client import ServedCase
from tests.functional.virtman.base import SIZE
from tests.unit.virtman.model.test_suspended import RECORD
from virtman import errors
from virtman.api import answers
from virtman.api.client import Client
from virtman.cmd.shell import shell
from virtman.model import layer_format
from virtman.qemu import resuming, sandbox
from virtman.qemu.resuming import Resumed
from volt.registry import source


class LayerTest(ServedCase):
    def setUp(self):
        super().setUp()
        # nodes listen in their simulated kernels only
        self.useFixture(fixtures.MockPatchObject(source, "check_answers", lambda *_: None))
        self.client.create("vm1", "debian")

    def command(self, *words):
        return CliRunner().invoke(shell, ["--socket", self.socket, *words])

    def told(self, name, length):
        made = self.client.layer(name)["created_at"]
        return f"{name}: {length} bytes over debian, as of {made}\n"

    def test_a_vm_may_be_called_as_a_verb(self):
        self.client.create("list", "debian")
        done = self.command("checkpoint", "--", "list")
        self.assertEqual(self.told("list.1", layer_format.length(0)), done.output)
        done = self.command("checkpoint", "make", "list")
        self.assertEqual("list.2", self.client.layers()[-1]["layer"])
        self.assertEqual(0, done.exit_code)
        self.assertEqual(0, self.command("checkpoint", "stop", "list").exit_code)

    def test_a_client_commits_a_vm_and_removes_the_layer(self):
        self.assert_is(answers.LayerAnswer, self.client.commit("vm1", "web"))
        seen = []
        made = self.client.await_layer("web", seen.append)
        self.assertEqual(made, seen[-1])
        self.assertEqual(
            ("web", "debian", "vm1", SIZE, "kept", layer_format.length(0)),
            tuple(made[key] for key in ("layer", "image", "vm", "disk_size", "state", "length")),
        )
        self.assertEqual([made], self.client.layers())
        self.client.create("vm2", "web")
        found = self.client.image("web")
        self.assertEqual(("debian", None), (found["parent"], self.client.image("debian")["parent"]))
        self.assertRaises(errors.ImageInUse, self.client.remove_layer, "web")
        self.client.destroy("vm2")
        self.client.drop("web")
        self.client.remove_layer("web")
        self.assertRaises(errors.LayerUnknown, self.client.layer, "web")
        self.assertRaises(errors.LayerUnknown, self.client.remove_layer, "web")

    def test_a_client_cannot_suspend_what_does_not_run_nor_resume_what_is_not_suspended(self):
        self.assertRaises(errors.QemuFailed, self.client.suspend, "vm1", "gold", "/nowhere/qmp")
        self.client.commit("vm1", "web")
        self.client.await_layer("web")
        for image in ("web", "debian"):
            self.assertRaises(errors.SuspendedUnknown, self.client.suspended, image)
        self.assertRaises(errors.ImageUnknown, self.client.suspended, "gold")
        self.useFixture(fixtures.MockPatchObject(resuming, "starter", Mock()))
        done = self.command("resume", "web", "vm2")
        self.assertIsInstance(done.exception, errors.SuspendedUnknown)
        done = self.command("suspend-image", "vm1", "gold", "--qmp", "/nowhere/qmp")
        self.assertEqual(2, done.exit_code)
        self.assertEqual(["vm1"], [one["vm"] for one in self.client.list()])

    def resuming(self, resume):
        """Have VMs of an image resumed by this instead of by QEMU; return those that run."""
        found = set()

        def run(vm, disk, *_):
            resume(vm)
            found.add(vm)
            return Resumed(1.0, 0.0, "uuid", "")

        for where, name, stand_in in (
            (Client, "suspended", lambda *_: (RECORD, "/dev/null")),
            (sandbox, "have_no_huge_pages", lambda: None),
            (resuming, "starter", Mock()),
            (resuming, "check_host", lambda *_: None),
            (resuming, "resume", run),
            (resuming, "runs", found.__contains__),
        ):
            self.useFixture(fixtures.MockPatchObject(where, name, stand_in))
        return found

    def test_vms_are_resumed_at_once_and_those_that_run_are_left_alone(self):
        all_begun = threading.Barrier(3, timeout=30)
        runs = self.resuming(lambda vm: all_begun.wait())
        done = self.command("resume", "debian", "web", "--count", "3")
        names = [f"web-{number}" for number in (1, 2, 3)]
        lines = [f"{name}: runs after 1.0 s" for name in names]
        self.assertEqual((0, lines), (done.exit_code, sorted(done.output.splitlines())))
        self.assertEqual(["vm1", *names], sorted(one["vm"] for one in self.client.list()))
        self.assertEqual(set(names), runs)
        again = self.command("resume", "debian", "web", "--count", "3")
        lines = [f"{name}: runs already" for name in names]
        self.assertEqual((0, lines), (again.exit_code, sorted(again.output.splitlines())))
        again = self.command("resume", "debian", "web-1")
        self.assertIsInstance(again.exception, errors.InstanceExists)
        refused = self.command("resume", "debian", "db", "--count", "2", "--tap", "lo")
        self.assertIn("no TAP interface lo-1", str(refused.exception))
        self.assertEqual(set(names), runs)

    def test_one_that_does_not_go_on_is_gone_and_those_that_do_are_told(self):
        seen = set()

        def vms():
            found = {one["vm"] for one in self.client.list()}
            seen.update(found)
            return found

        def resume(vm):
            vms()
            if vm == "web-2":
                raise errors.QemuFailed("QEMU ended")
            wait_until(lambda: "web-2" in seen and "web-2" not in vms(), "its end", 30, 0.01)
            time.sleep(0.5)  # until the command knows

        runs = self.resuming(resume)
        done = self.command("resume", "debian", "web", "--count", "9")
        self.assertIsInstance(done.exception, errors.QemuFailed)
        told = {line.partition(":")[0] for line in done.output.splitlines()}
        self.assertEqual(runs, told)
        self.assertIn("web-1", runs)
        self.assertEqual({"vm1", *runs}, vms())
        self.assertNotIn("web-9", runs)

    def test_commands_do_the_same(self):
        done = self.command("commit", "vm1", "web")
        length = layer_format.length(0)
        self.assertEqual(self.told("web", length), done.output)
        self.assertEqual(done.output, self.command("commit", "vm1", "web").output)
        done = self.command("layer", "create", "--json", "--final", "vm1", "end")
        self.assertEqual("kept", json.loads(done.output)["state"])
        self.assertEqual([], self.client.list())
        (shown,) = (one for one in self.client.layers() if one["layer"] == "end")
        self.assertEqual(shown, json.loads(self.command("layer", "watch", "--json", "end").output))
        listed = self.command("layer", "list").output
        self.assertIn("end", listed)
        self.assertIn(str(length), listed)
        self.assertEqual(2, len(json.loads(self.command("layer", "list", "--json").output)))
        self.assertEqual(0, self.command("layer", "remove", "end", "web").exit_code)
        self.assertEqual([], self.client.layers())

    def test_a_layer_goes_to_a_file_and_comes_back(self):
        self.command("commit", "vm1", "web")
        file = Path(self.useFixture(fixtures.TempDir()).path) / "web.file"
        done = self.command("layer", "export", "web", str(file))
        self.assertEqual((0, ""), (done.exit_code, done.output))
        length = layer_format.length(0)
        done = self.command("layer", "import", str(file), "copy")
        self.assertEqual(self.told("copy", length), done.output)
        self.client.remove_layer("web")
        done = self.command("layer", "import", "--json", str(file))
        self.assertEqual(
            ("web", ""), tuple(json.loads(done.output)[one] for one in ("layer", "vm"))
        )
        # the agent answers who has sent far more than it reads
        with open(file, "ab") as more:
            more.write(bytes(8 << 20))
        done = self.command("layer", "import", str(file))
        self.assertEqual("virtman.layer.exists", done.exception.code)
        file.write_bytes(bytes(8 << 20))
        done = self.command("layer", "import", str(file))
        self.assertEqual("virtman.layer.file", done.exception.code)
        done = self.command("layer", "export", "nope", str(file.with_name("new")))
        self.assertEqual("virtman.layer.unknown", done.exception.code)
        self.assertEqual([file], list(file.parent.iterdir()))
        self.assertEqual(1, self.command("layer", "export", "web", "/nowhere/file").exit_code)

    def test_checkpoints_are_made_listed_and_stopped(self):
        self.assertEqual([], self.client.checkpoints())
        done = self.command("checkpoint", "vm1", "--every", "10m", "--keep", "2")
        self.assertEqual(self.told("vm1.1", layer_format.length(0)), done.output)
        (found,) = self.client.checkpoints()
        self.assert_is(answers.CheckpointsAnswer, found)
        self.assertEqual(
            ("vm1", 600, 2, ["vm1.1"], ""),
            tuple(found[key] for key in ("vm", "every", "keep", "layers", "note")),
        )
        self.assertEqual(self.client.layer("vm1.1")["created_at"], found["created_at"])
        made = self.client.checkpoint("vm1")
        self.assertEqual(("vm1.2", "vm1"), (made["layer"], made["vm"]))
        self.client.await_layer("vm1.2")
        listed = self.command("checkpoint", "list").output
        self.assertIn("vm1.1 vm1.2", listed)
        self.assertIn("600 s", listed)
        found = json.loads(self.command("checkpoint", "list", "--json").output)
        self.assertEqual(found, self.client.checkpoints())
        self.assertEqual(0, self.command("checkpoint", "stop", "vm1").exit_code)
        self.assertEqual([], self.client.checkpoints())
        self.assertEqual(2, len(self.client.layers()))
        for text in ("soon", "10x", "-1", "1.5m"):
            done = self.command("checkpoint", "vm1", f"--every={text}")
            self.assertIn("is not a duration", done.output)
        for text in ("60", "60s", "1m"):
            self.assertEqual(0, self.command("checkpoint", "vm1", "--every", text).exit_code)
            self.assertEqual(60, self.client.checkpoints()[0]["every"])

    def test_what_cannot_be_is_an_error(self):
        for words, code in (
            (("checkpoint", "vm2"), "virtman.instance.unknown"),
            (("checkpoint", "stop", "vm1"), "virtman.checkpoint.unknown"),
            (("commit", "vm2", "web"), "virtman.instance.unknown"),
            (("commit", "vm1", "debian"), "virtman.layer.exists"),
            (("layer", "remove", "web"), "virtman.layer.unknown"),
        ):
            self.assertEqual(code, self.command(*words).exception.code)
        self.assertRaises(
            errors.InvalidRequest, self.client._call, "POST", "/v1/instances/vm1/commit", {}
        )
