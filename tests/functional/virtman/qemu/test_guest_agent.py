"""Who is logged in to a VM, as its guest agent tells; what does not tell is taken for somebody."""

import socket
from pathlib import Path

import fixtures
import testtools

from tests.functional.virtman.doubles.guest_agent import GuestAgent
from virtman.errors import SessionsOpen
from virtman.qemu import guest_agent


class GuestAgentTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.agent = GuestAgent(folder / "agent", ("root", "alice", "root"))
        self.addCleanup(self.agent.stop)

    def refused(self, path):
        return str(self.assertRaises(SessionsOpen, guest_agent.users, path))

    def test_each_user_is_told_once_whatever_it_said_before(self):
        self.assertEqual(["alice", "root"], guest_agent.users(self.agent.path))
        self.agent.users = ()
        self.assertEqual([], guest_agent.users(self.agent.path))

    def test_what_does_not_tell_is_no_proof(self):
        self.agent.refusal = "The command guest-get-users has been disabled"
        self.assertIn("has been disabled", self.refused(self.agent.path))
        self.agent.early = 20 * b"[]\n"
        self.assertIn("something else", self.refused(self.agent.path))
        self.assertIn("No such file", self.refused("/nowhere/agent"))

    def test_nor_is_one_that_says_nothing(self):
        self.useFixture(fixtures.MockPatchObject(guest_agent, "_PATIENCE", 0.1))
        path = f"{self.agent.path}.silent"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()  # somebody else is served
            self.assertIn("timed out", self.refused(path))
