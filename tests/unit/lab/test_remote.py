"""The client of execd against the other end of a socket pair."""

import os
import socket

import testtools

from lab.remote import Conversation, exchange


class TestConversation(testtools.TestCase):
    def setUp(self):
        super().setUp()
        ours, self.theirs = socket.socketpair()
        self.life, self.death = os.pipe()  # a pipe becomes readable as a pidfd does
        self.addCleanup(ours.close)
        self.addCleanup(self.theirs.close)
        self.addCleanup(os.close, self.life)
        self.addCleanup(os.close, self.death)
        self.talk = Conversation(ours, self.life, timeout=5)
        self.ours = ours

    def test_an_answer_comes_with_its_binary_outputs(self):
        self.theirs.sendall(b'{"status": 0, "stdout": 4, "stderr": 2}\na\n\0bcd')
        header = exchange(self.talk, ["true"], stdin=b"in")
        self.assertEqual(0, header["status"])
        self.assertEqual(b"a\n\0b", self.talk.receive(4))
        self.assertEqual(b"cd", self.talk.receive(2))
        self.assertTrue(self.theirs.recv(4096).endswith(b"\nin"))

    def test_a_closed_connection_is_an_error(self):
        self.theirs.shutdown(socket.SHUT_WR)
        self.assertRaises(ConnectionResetError, self.talk.receive_line)

    def test_the_end_of_the_process_ends_the_wait(self):
        os.write(self.death, b"x")
        self.assertRaises(ProcessLookupError, self.talk.receive_line)

    def test_a_passed_deadline_ends_the_wait(self):
        late = Conversation(self.ours, self.life, timeout=0)
        self.assertRaises(TimeoutError, late.receive_line)
