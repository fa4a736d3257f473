"""The client and the command, against an agent behind its Unix socket."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial

import fixtures
from click.testing import CliRunner

from lab.waiting import wait_until
from tests.functional.virtman.base import DEADLINE, SIZE, TestCase, hashes
from virtman import errors
from virtman.api import answers
from virtman.api.client import Client
from virtman.cmd import buffering
from virtman.cmd.shell import shell
from virtman.model.profile import merged
from virtman.model.profile_format import encode
from virtman.server import Server


class ServedCase(TestCase):
    def setUp(self):
        super().setUp()
        self.node = self.bed.node()
        self.socket = self.serve(self.node)
        self.client = Client(self.socket, 10)

    def serve(self, node):
        """Have a node's agent serve its local API; return the socket."""
        socket = str(self.bed.folder / f"agent-{node.name}.sock")
        with node.process.here():
            server = Server(socket, node.api(), threads=4)
            server.expiration_interval = 0.02  # seconds until it sees that it is stopped
            server.prepare()
            thread = threading.Thread(target=server.serve, daemon=True)
            self.addCleanup(thread.join, DEADLINE)
            self.addCleanup(server.stop)
            thread.start()
        return socket

    def assert_is(self, kind, answer):
        """Assert that an answer has what its type says, and nothing else."""
        self.assertEqual(set(kind.__annotations__), set(answer))


class ClientTest(ServedCase):
    def test_answers_have_what_their_types_say(self):
        vm = self.client.create("vm1", "debian")
        self.assert_is(answers.VmAnswer, vm)
        self.assert_is(answers.StoreAnswer, vm["stores"][0])
        self.assert_is(answers.SnapshotAnswer, self.client.snapshot("vm1", "monday"))
        (image,) = self.client.images()
        self.assert_is(answers.ImageAnswer, image)
        self.assert_is(answers.CacheAnswer, image["cache"])
        self.assert_is(answers.SpaceAnswer, self.client.space())
        self.assert_is(answers.ScrubAnswer, self.client.scrub("debian"))

    def test_a_vm_is_made_listed_and_destroyed(self):
        made = self.client.create("vm1", "debian")
        self.assertEqual("/dev/mapper/virtman_debian_vm_vm1", made["device"])
        self.assertEqual([made], self.client.list())
        self.assertEqual(made, self.client.show("vm1"))
        ((image),) = self.client.images()
        self.assertEqual(("debian", ["vm1"]), (image["image"], image["instances"]))
        self.client.destroy("vm1")
        self.assertEqual([], self.client.list())
        self.client.drop("debian")
        self.assert_nothing_is_left(self.node)

    def test_a_vm_is_suspended_by_name_with_a_save_or_without(self):
        words = ["--socket", self.socket, "suspend-image", "nope", "gold", "--qmp", self.socket]
        for more in ([], ["--saved", __file__], ["--project", "shop"]):
            done = CliRunner().invoke(shell, [*words, *more])
            self.assertIsInstance(done.exception, errors.InstanceUnknown, done.output)

    def test_who_buffers_waits_for_enough_and_not_for_all(self):
        wait = partial(buffering.wait, self.client, "debian", "boot", "vm1", as_json=False)
        self.assertRaises(errors.ProfileUnknown, wait)
        self.store_profile({0: 0.5, 17: 1.0})
        seen = []
        self.client.warm("debian", until=lambda ahead: seen.append(ahead) or True)
        self.assertLess(len(seen), 2)  # it may have come before the first look
        wait()
        ((image,),) = (self.client.images(),)
        self.assertTrue(buffering.is_enough(image["ahead"]))

    def test_an_image_is_warmed_by_its_profile(self):
        error = self.assertRaises(errors.ProfileUnknown, self.client.warm, "debian")
        self.assertIn("image debian has no profile boot yet: boot VMs from it", str(error))
        self.store_profile({0: 0.5, 17: 1.0})
        ahead = self.client.warm("debian")
        self.assert_is(answers.AheadAnswer, ahead)
        self.assertGreater(ahead.pop("seconds"), 0)
        expected = ("fetched", 131072, 131072, 131072, 0, 0, 0, 131072, 0, "")
        self.assertEqual(expected, tuple(ahead.values()))
        words = ["--socket", self.socket, "image", "warm", "debian"]
        done = CliRunner().invoke(shell, words)
        self.assertEqual(0, done.exit_code)
        self.assertEqual("debian: 128K of 128K here, 0 were fetched\n", done.output)
        done = CliRunner().invoke(shell, [*words, "--json"])
        self.assertEqual(0, json.loads(done.output)["fetched"])
        self.await_(lambda: not self.client.images()[0]["instances"])
        self.client.drop("debian")

    def test_a_workload_is_recorded_until_its_time_is_over_or_somebody_says_so(self):
        self.client.create("vm1", "debian")
        self.client.create("vm2", "debian")
        ends = (("--for", "4"), None), ((), signal.SIGINT), ((), signal.SIGTERM)
        for read, (words, number) in enumerate(ends):
            command = [sys.executable, "-m", "virtman.cmd.shell", "--socket", self.socket]
            command += ["profile", "record", "vm1", "--workload", "web", "--json", *words]
            done = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            wait_until(lambda: self.state("vm1") == "recording", "a recording", 30)
            self.node.kernel.vm_reads("debian", read * 65536, 65536)
            wait_until(lambda: self.client.recording("vm1")["pieces"], "what was read", 30)
            if number:
                done.send_signal(number)
            shown = json.loads(done.communicate(timeout=30)[0])
            self.assertEqual(0, done.returncode)
            self.assertEqual(("stored", 1), (shown["state"], shown["pieces"]))
            self.assert_is(answers.RecordingAnswer, shown)
        self.assertEqual(3, shown["runs"])
        words = ["--socket", self.socket, "profile", "record", "vm2", "--workload", "web"]
        failed = CliRunner().invoke(shell, [*words, "--for", "1"])
        self.assertEqual(1, failed.exit_code)
        self.assertIn("nothing is stored: VMs read nothing that had to be fetched", failed.output)

    def state(self, vm):
        """How far a recording of a VM is; None if there is none."""
        with contextlib.suppress(errors.RecordingUnknown):
            return self.client.recording(vm)["state"]

    def store_profile(self, run):
        """Have a profile at Volt of a boot that read these pieces."""
        volt = self.bed.operator()
        volt.store_profile("debian", "boot", encode(merged(None, run, hashes()[0].root)), None)

    def test_a_snapshot_is_taken_booted_from_rolled_back_to_and_deleted(self):
        self.client.create("vm1", "debian", quota=1 << 20)
        kept = self.client.snapshot("vm1", "monday")
        self.assertEqual([kept], self.client.snapshots())
        self.assertEqual([], self.client.snapshots("vm2"))
        self.assertEqual(kept, self.client.show_snapshot("monday"))
        made = self.client.create("vm2", snapshot="monday")
        self.assertEqual(kept["stores"], made["stores"][:1])
        self.assertEqual(["monday"], self.client.rollback("vm1", "monday")["snapshots"])
        self.assertEqual(0, self.client.limit("vm1", 0)["quota"])
        self.assertEqual(3 * SIZE, self.client.create("vm3", "debian", size=3 * SIZE)["size"])
        self.assertEqual(2 * SIZE, self.client.resize("vm1", 2 * SIZE)["size"])
        self.client.delete_snapshot("monday")
        self.assertRaises(errors.SnapshotUnknown, self.client.show_snapshot, "monday")

    def test_errors_arrive_as_they_were_raised(self):
        self.client.create("vm1", "debian")
        self.node.kernel.held.add("/dev/mapper/virtman_debian_vm_vm1")
        for kind, call, *arguments in (
            (errors.ImageUnknown, self.client.create, "vm2", "nope"),
            (errors.InstanceExists, self.client.create, "vm1", "debian"),
            (errors.InstanceUnknown, self.client.destroy, "vm2"),
            (errors.DeviceBusy, self.client.destroy, "vm1"),
            (errors.DeviceBusy, self.client.drop, "debian"),
            (errors.InvalidName, self.client.create, "a/b", "debian"),
            (errors.InvalidName, self.client.create, "a", "de bian"),
        ):
            error = self.assertRaises(errors.VirtmanError, call, *arguments)
            self.assertIs(kind, type(error), arguments)
            self.assertGreater(len(str(error)), 20)

    def test_what_could_not_be_taken_down_is_named(self):
        self.client.create("vm1", "debian")
        self.client.destroy("vm1")
        self.node.kernel.held.add("/dev/mapper/virtman_debian_stripe")
        error = self.assertRaises(errors.DeviceBusy, self.client.drop, "debian")
        self.assertIn("device virtman_debian_stripe: still in use", str(error))

    def test_an_agent_that_never_answers_keeps_the_run_waiting_for_moments(self):
        ended = threading.Event()
        self.addCleanup(ended.set)
        self.useFixture(fixtures.MockPatchObject(self.node.agent, "list", ended.wait))
        client = Client(self.serve(self.node), 0.2)
        self.assertRaises(errors.AgentUnreachable, client.list)

    def test_no_agent_is_a_clear_error(self):
        client = Client(self.socket + "-not", 1)
        error = self.assertRaises(errors.AgentUnreachable, client.list)
        self.assertIn(f"{self.socket}-not", str(error))

    def test_an_agent_that_is_started_anew_is_waited_for(self):
        moved, client = self.socket + "-moved", Client(self.socket, patience=20)
        os.rename(self.socket, moved)
        back = threading.Timer(0.3, os.rename, (moved, self.socket))
        back.start()
        self.addCleanup(back.join)
        self.assertEqual([], client.list())
        os.rename(self.socket, moved)
        self.addCleanup(os.rename, moved, self.socket)
        self.assertRaises(errors.AgentUnreachable, Client(self.socket, patience=0.2).list)
        self.assertRaises(errors.AgentUnreachable, client.within(5).list)


class ShellTest(ServedCase):
    def run_shell(self, *arguments):
        done = CliRunner().invoke(
            shell, ["--socket", self.socket, *arguments], catch_exceptions=False
        )
        self.assertEqual(0, done.exit_code, done.output)
        return done.output

    def run_process(self, *arguments):
        return subprocess.run(
            [sys.executable, "-m", "virtman.cmd.shell", *arguments],
            env={**os.environ, "VIRTMAN_SOCKET": self.socket},
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip

    def test_a_vm_from_create_to_destroy(self):
        device = "/dev/mapper/virtman_debian_vm_vm1"
        self.assertEqual(f"{device}\n", self.run_shell("create", "debian", "vm1"))
        self.assertEqual(
            "VM   IMAGE   STATE  TAKEN   QUOTA  DEVICE\n"
            f"vm1  debian  ready  131072  -      {device}\n",
            self.run_shell("list"),
        )
        self.assertEqual(
            "IMAGE   SIZE     STATE  PARENTS        VMS\n"
            "debian  8388608  cold   source,source  vm1\n",
            self.run_shell("image", "list"),
        )
        self.run_shell("create", "debian", "vm2")
        self.assertEqual("", self.run_shell("destroy", "vm1", "vm2"))
        self.assertEqual("VM  IMAGE  STATE  TAKEN  QUOTA  DEVICE\n", self.run_shell("list"))
        self.assertEqual("", self.run_shell("image", "drop", "debian"))
        self.assertEqual([], json.loads(self.run_shell("image", "list", "--json")))
        self.assert_nothing_is_left(self.node)

    def test_a_snapshot_from_create_to_delete(self):
        self.run_shell("create", "--quota", "1M", "debian", "vm1")
        self.assertEqual("", self.run_shell("snapshot", "create", "vm1", "monday"))
        titles, row = self.run_shell("snapshot", "list", "vm1").splitlines()
        self.assertEqual(["SNAPSHOT", "VM", "IMAGE", "CREATED"], titles.split())
        self.assertEqual(["monday", "vm1", "debian"], row.split()[:3])
        self.assertIn("s1.cow", self.run_shell("snapshot", "show", "monday"))
        shown = self.run_shell("vm", "show", "vm1")
        for words in ("state: ready", "of 1048576", "s1.cow", "s2.cow", "snapshots: monday"):
            self.assertIn(words, shown)
        made = json.loads(self.run_shell("create", "--json", "--from-snapshot", "monday", "vm2"))
        self.assertEqual("debian", made["image"])
        self.assertEqual("", self.run_shell("vm", "limit", "vm1", "0"))
        self.assertEqual("", self.run_shell("vm", "resize", "vm1", "1G"))
        self.assertIn(f"size: {1 << 30}", self.run_shell("vm", "show", "vm1"))
        longer = json.loads(self.run_shell("create", "--json", "--size", "20M", "debian", "vm3"))
        self.assertEqual(20 << 20, longer["size"])
        self.assertEqual("", self.run_shell("destroy", "vm3"))
        self.assertEqual("", self.run_shell("snapshot", "rollback", "vm1", "monday"))
        self.assertEqual("", self.run_shell("snapshot", "delete", "monday"))
        self.assertEqual("", self.run_shell("destroy", "--drop-image", "vm1"))
        self.assertEqual(1, len(json.loads(self.run_shell("image", "list", "--json"))))
        self.assertEqual("", self.run_shell("destroy", "--drop-image", "vm2"))
        self.assert_nothing_is_left(self.node)

    def test_a_size_has_a_number_and_perhaps_a_letter(self):
        for size in ("x", "10X", "-1", "1.5G", ""):
            done = CliRunner().invoke(shell, ["vm", "limit", "vm1", size])
            self.assertEqual(2, done.exit_code, size)

    def test_json_is_for_programs(self):
        made = json.loads(self.run_shell("create", "--json", "debian", "vm1"))
        self.assertEqual(("vm1", "debian"), (made["vm"], made["image"]))
        self.assertEqual([made], json.loads(self.run_shell("list", "--json")))
        (image,) = json.loads(self.run_shell("image", "list", "--json"))
        self.assertEqual(["source", "source"], image["parents"])

    def test_an_error_is_one_line_and_status_1(self):
        done = self.run_process("create", "nope", "vm1")
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        self.assertEqual(1, done.stderr.count("\n"), done.stderr)
        self.assertTrue(done.stderr.startswith("virtman: image nope"), done.stderr)
        self.assertTrue(done.stderr.endswith("[virtman.image.unknown]\n"), done.stderr)

    def test_the_program_prints_the_device(self):
        done = self.run_process("create", "debian", "vm1")
        self.assertEqual(
            (0, "/dev/mapper/virtman_debian_vm_vm1\n", ""),
            (done.returncode, done.stdout, done.stderr),
        )

    def test_help_needs_no_agent(self):
        for arguments, words in (
            (["--help"], ["create", "destroy", "list", "vm", "image", "source"]),
            (["vm", "--help"], ["create", "destroy", "list", "show", "limit", "clone", "migrate"]),
            (["create", "--help"], ["IMAGE", "VM", "--json"]),
            (["image", "-h"], ["drop", "list"]),
            (["source", "add", "--help"], ["--stripes", "--fanout", "can only read"]),
        ):
            done = CliRunner().invoke(shell, arguments)
            self.assertEqual(0, done.exit_code)
            for word in words:
                self.assertIn(word, done.output)

    def test_a_wrong_command_line_says_what_is_missing(self):
        done = self.run_process("create", "debian")
        self.assertEqual(2, done.returncode)
        self.assertIn("Missing argument 'VM'", done.stderr)


class MoveTest(ServedCase):
    def setUp(self):
        super().setUp()
        self.other = self.bed.node("b")
        for node in (self.node, self.other):
            node.serve()

    def run_shell(self, *arguments):
        done = CliRunner().invoke(shell, ["--socket", self.socket, *arguments])
        return done.output or done.exception

    def await_end(self):
        """Wait for what is left of a move when its command ends, as the VM is there."""
        self.await_(lambda: self.client.move("vm1")["state"] != "handed")

    def test_a_vm_is_copied_and_moved(self):
        self.client.create("vm1", "debian")
        self.node.kernel.write("virtman_debian_vm_vm1", 3, "a")
        self.assertRegex(
            self.run_shell("clone", "vm1", "--to", "b", "--as", "copy"),
            r"^copy is on b: 65536 bytes, \d+ on the way\n$",
        )
        self.assertRegex(
            self.run_shell("migrate", "vm1", "--to", "b"),
            r"^vm1 is on b: 65536 bytes, \d+ on the way; it was held for 0\.\d+ s\n$",
        )
        self.await_end()
        self.assertEqual([], self.client.list())
        (ended,) = json.loads(self.run_shell("move", "list", "--json"))
        self.assert_is(answers.MoveAnswer, ended)
        self.assertEqual(ended, self.client.move("vm1"))
        self.assertEqual(("migrate", "done", ""), (ended["kind"], ended["state"], ended["note"]))
        self.assertIn("vm1  migrate  b   vm1  done", self.run_shell("move", "list"))
        self.assertEqual(["copy", "vm1"], [one.vm for one in self.other.records.all()])

    def test_a_vm_moves_live_until_it_is_told_to_end(self):
        self.client.create("vm1", "debian")
        self.assertEqual(
            "vm1 can go to b: end that with 'virtman move finish vm1'\n",
            self.run_shell("migrate", "vm1", "--to", "b", "--live"),
        )
        self.assertTrue(self.client.move("vm1")["live"])
        self.node.kernel.write("virtman_debian_vm_vm1", 3, "a")
        self.assertRegex(
            self.run_shell("move", "finish", "vm1"),
            r"^vm1 is on b: 65536 bytes, \d+ on the way; it was held for 0\.\d+ s\n$",
        )
        self.await_end()
        self.assertEqual([], self.client.list())

    def test_errors_arrive_as_they_were_raised(self):
        self.client.create("vm1", "debian")
        for kind, call, *arguments in (
            (errors.PeerUnknown, self.client.migrate, "vm1", "nope"),
            (errors.InstanceUnknown, self.client.clone, "vm2", "b"),
            (errors.InvalidName, self.client.clone, "vm1", "b", "A"),
            (errors.MoveUnknown, self.client.move, "vm1"),
            (errors.MoveUnknown, self.client.cancel_move, "vm1"),
            (errors.MoveUnknown, self.client.finish_move, "vm1"),
        ):
            error = self.assertRaises(errors.VirtmanError, call, *arguments)
            self.assertIs(kind, type(error), arguments)
        self.other.create("vm1")
        self.assertIsInstance(self.run_shell("migrate", "vm1", "--to", "b"), errors.InstanceExists)


class CheckCommandTest(ServedCase):
    def setUp(self):
        super().setUp()
        self.client.create("vm1", "debian")
        self.node.settle()
        del self.node.kernel.mappings["virtman_debian_vm_vm1"]

    def check(self, *words):
        return CliRunner().invoke(shell, ["--socket", self.socket, "node", "check", *words])

    def test_differences_are_told_and_mended(self):
        (difference,) = self.client.check()["found"]
        self.assert_is(answers.DifferenceAnswer, difference)
        told = self.check()
        self.assertEqual(3, told.exit_code, told.output)
        self.assertIn("vm.absent: vm1\n  a VM has no device; repair: the", told.output)
        mended = self.check("--repair")
        self.assertEqual(0, mended.exit_code, mended.output)
        self.assertIn("vm.absent: vm1 [repaired]", mended.output)
        self.assert_is(answers.CheckAnswer, self.client.check())
        self.assertEqual({"found": [], "left": []}, json.loads(self.check("--json").output))
        self.assertEqual({"found": [], "left": []}, self.client.check(repair=True))


class CacheCommandTest(ServedCase):
    VOLUME = "/dev/cinder/volume-1"

    def cache(self, *words):
        done = CliRunner().invoke(shell, ["--socket", self.socket, "cache", *words])
        self.assertEqual(0, done.exit_code, (done.output, done.exception))
        return done.output

    def test_a_volume_is_attached_listed_and_detached(self):
        self.node.kernel.lvm.create("cinder", "volume-1", 64 << 20)
        device = self.cache("attach", "--mode", "writeback", self.VOLUME).strip()
        (one,) = json.loads(self.cache("list", "--json"))
        self.assertEqual(
            (self.VOLUME, device, "writeback", "ready"),
            (one["volume"], one["device"], one["mode"], one["state"]),
        )
        self.assert_is(answers.VolumeAnswer, one)
        self.assertIn(self.VOLUME, self.cache("list"))
        (member,) = self.node.kernel.members.values()
        member.dirty = 2 << 20
        self.assertIn("1048576 bytes to go", self.cache("detach", self.VOLUME))
        self.assertEqual([], self.client.cached())
        self.assertRaises(errors.VolumeUnknown, self.client.detach, self.VOLUME)
