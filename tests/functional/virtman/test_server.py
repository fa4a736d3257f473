"""How a server of the agent begins and ends, on a Unix socket."""

import http.client
import os
import socket
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fixtures
import testtools

from virtman import server
from virtman.api.client import Client
from virtman.errors import AgentUnreachable
from virtman.server import Server


class ServerTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.path = Path(self.useFixture(fixtures.TempDir()).path, "socket")
        self.begun, self.go = threading.Semaphore(0), threading.Event()
        self.addCleanup(self.go.set)
        self.pool = ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown)

    def verb(self, environ, start_response):
        """Answer once it may."""
        self.begun.release()
        self.go.wait(60)
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", "12")])
        return [b'{"space": 1}']

    def serve(self, **options):
        """Serve on a thread, as if that were the agent's first."""
        made = Server(str(self.path), self.verb, **{"threads": 2, "silence": 10} | options)
        made.expiration_interval = 0.02  # seconds until it sees that it is stopped
        made.prepare()
        serving = threading.Thread(target=made.serve)
        serving.start()
        self.addCleanup(serving.join)
        self.addCleanup(made.stop)
        return made

    def ask(self):
        return self.pool.submit(Client(str(self.path), 30).space)

    def test_only_its_account_and_group_may_connect_whatever_the_umask_says(self):
        for mask in (0o077, 0o000):
            before = os.umask(mask)
            try:
                self.serve().stop()
            finally:
                os.umask(before)
            self.assertEqual(0o660, stat.S_IMODE(self.path.stat().st_mode))

    def test_a_socket_that_a_killed_agent_left_is_made_anew(self):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(self.path))
        self.serve()
        self.go.set()
        self.assertEqual({"space": 1}, self.ask().result())

    def test_a_verb_may_take_longer_than_a_silent_connection(self):
        self.serve(silence=1)
        asked = self.ask()
        time.sleep(1.5)
        self.go.set()
        self.assertEqual({"space": 1}, asked.result())

    def test_a_stop_waits_for_a_verb_and_answers_it(self):
        made = self.serve()
        asked = self.ask()
        self.begun.acquire()
        threading.Timer(0.3, self.go.set).start()
        made.stop()
        self.assertTrue(self.go.is_set())
        self.assertEqual({"space": 1}, asked.result())
        self.assertRaises(AgentUnreachable, Client(str(self.path)).space)

    def test_a_stop_waits_for_no_verb_that_hangs_and_begins_none(self):
        made = self.serve()
        hanging = [self.ask() for _ in range(2)]
        for _ in hanging:
            self.begun.acquire()
        late = self.ask()
        began = time.monotonic()
        made.stop()
        self.assertLess(time.monotonic() - began, server._PATIENCE + 2)
        self.assertRaises(AgentUnreachable, late.result)
        threads = [one for one in threading.enumerate() if one.name.startswith("CP Server")]
        self.assertEqual({True}, {one.daemon for one in threads})  # they end with the process
        self.go.set()
        for one in hanging:
            self.assertEqual({"space": 1}, one.result())
        self.assertFalse(self.begun.acquire(timeout=0.5))

    def test_headers_without_end_are_refused(self):
        self.serve()
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(str(self.path))
            end.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nMore: " + b"x" * 100_000 + b"\r\n\r\n")
            answer = http.client.HTTPResponse(end)
            answer.begin()
        self.assertEqual(413, answer.status)
