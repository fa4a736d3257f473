"""What the agent may ask the QEMU of a libvirt domain, and how whoever asks for it ends."""

import json
import os
import socket
import threading
from pathlib import Path

import fixtures
import testtools

from virtman.errors import InvalidRequest, QemuFailed
from virtman.qemu import guest_agent, relay
from virtman.qemu.qmp import Monitor, listening_at


class Stub:
    """A domain; remembers what it was asked, and reads what it was given."""

    def __init__(self):
        self.asked = []

    def pass_on(self, question, files):
        command = json.loads(question)["execute"]
        self.asked.append((command, [os.read(file, 5) for file in files]))
        if command == "query-chardev":
            path = "/run/libvirt/qemu/channel/1-vm1/org.qemu.guest_agent.0"
            one = {"label": "charchannel0", "filename": f"unix:{path},server=on"}
            return json.dumps({"return": [one]})
        if command == "query-kvm":
            raise QemuFailed("it has ended")
        return json.dumps({"return": {"status": "running"}, "id": "libvirt-7"}) + "\r\n"

    def ask_guest(self, question):
        self.asked.append(question)
        return '{"return": [{"user": "alice", "login-time": 1.0}]}'


class RelayTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.path = str(Path(self.useFixture(fixtures.TempDir()).path, "qmp"))
        self.domain = Stub()
        self.guest = f"{self.path}.guest"
        listening = [
            self.enterContext(listening_at(Path(path), os.getuid()))
            for path in (self.path, self.guest)
        ]
        stdin, command = os.pipe()
        reading = self.enterContext(os.fdopen(stdin, "rb"))
        self.useFixture(fixtures.MockPatchObject(relay.sys, "stdin", reading))
        self.serving = threading.Thread(target=relay._serve, args=(self.domain, *listening))
        self.serving.start()
        self.addCleanup(self.serving.join)
        self.command = self.enterContext(os.fdopen(command, "wb"))

    def has_ended(self):
        self.serving.join(0.2)
        return not self.serving.is_alive()

    def test_what_saves_a_vm_is_passed_on_and_nothing_else(self):
        with Monitor(self.path) as monitor:
            self.assertEqual("running", monitor.status)
            monitor.ask("migrate", uri="fd:memory")
            for command, arguments in (
                ("human-monitor-command", {"command-line": "info"}),
                ("migrate", {"uri": "exec:touch /x"}),
                ("migrate", {"uri": "file:/etc/passwd"}),
                ("migrate", {"uri": "fd:memory", "channels": []}),
                ("migrate", {}),
                ("blockdev-add", {"driver": "file"}),
                ("quit", {}),
            ):
                refused = self.assertRaises(QemuFailed, monitor.ask, command, **arguments)
                self.assertIn(f"{command} is not allowed", str(refused))
            self.assertIn("ended", str(self.assertRaises(QemuFailed, monitor.ask, "query-kvm")))
        self.assertEqual(
            ["query-status", "migrate", "query-kvm"], [command for command, _ in self.domain.asked]
        )

    def test_an_open_file_is_passed_on_too(self):
        ours, its = socket.socketpair()
        with ours, its, Monitor(self.path) as monitor:
            ours.sendall(b"hello")
            monitor.give("memory", its.fileno())
        self.assertEqual([("getfd", [b"hello"])], self.domain.asked)

    def test_the_guest_agent_tells_who_is_logged_in_and_nothing_else(self):
        with Monitor(self.path) as monitor:
            (found,) = monitor.ask("query-chardev")
            self.assertEqual(f"unix:{self.guest},server=on", found["filename"])
            self.assertEqual(["alice"], guest_agent.users(self.guest))
        self.assertEqual('{"execute": "guest-get-users"}', self.domain.asked[-1])
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(self.guest)
            other.sendall(b'{"execute": "guest-shutdown"}\n')
            self.assertIn(b"not allowed", other.recv(100))
        self.assertEqual('{"execute": "guest-get-users"}', self.domain.asked[-1])

    def test_whoever_asks_nonsense_is_cut_off_and_the_next_one_served(self):
        with socket.socket(socket.AF_UNIX) as nonsense:
            nonsense.connect(self.path)
            nonsense.sendall(b"[]\n")
            self.assertIn(b"QMP", nonsense.recv(100))
            self.assertEqual(b"", nonsense.recv(100))
        with Monitor(self.path) as monitor:
            self.assertEqual("running", monitor.status)

    def test_it_ends_once_neither_the_command_nor_the_agent_is_there(self):
        with Monitor(self.path) as monitor:
            self.command.close()
            self.assertFalse(self.has_ended())
            self.assertEqual("running", monitor.status)
        self.assertTrue(self.has_ended())

    def test_only_root_can_ask_for_the_agent(self):
        self.useFixture(fixtures.MockPatchObject(relay.os, "geteuid", lambda: 1000))
        asking = relay.monitor("vm", "qemu:///system", 0)
        refused = self.assertRaises(InvalidRequest, asking.__enter__)
        self.assertIn("needs root", str(refused))
