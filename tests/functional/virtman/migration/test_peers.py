"""Who may speak to whom: agents with certificates of their own Volt, and nobody else."""

import contextlib
import http.client
import socket
import ssl
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import fixtures

from tests.functional.virtman.base import FOREVER, TestCase
from virtman.errors import (
    MoveUnknown,
    PeersOff,
    PeerUnknown,
    PeerUnreachable,
    PeerUntrusted,
)
from virtman.migration import certificates, tls
from virtman.model.handover import Arrival
from volt import ca
from volt.model.hosts import Listener


class PeersTest(TestCase):
    def setUp(self):
        super().setUp()
        self.a, self.b = (self.bed.node(name, keep=FOREVER) for name in "ab")
        self.b.serve()
        with self.a.process.here():
            self.context = self.a.credentials.client()

    def ask(self, context=None):
        """Ask b something with other credentials than a's own."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.b.port, context=context or self.context, timeout=5
        )
        self.addCleanup(connection.close)
        connection.request("GET", "/v1/moves/none")
        return connection.getresponse()

    def plain(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context

    def peer(self, node, host):
        with node.process.here():
            peer = node.moves.peers.peer(host)
        self.addCleanup(peer.close)
        return peer

    def test_a_host_that_volt_knows_is_answered(self):
        self.assertEqual(200, self.ask().status)
        with self.a.process.here():
            self.assertFalse(self.peer(self.a, "b").sends("none"))

    def test_without_a_certificate_there_is_no_answer(self):
        self.assertRaises((OSError, http.client.HTTPException), self.ask, self.plain())
        with socket.create_connection(("127.0.0.1", self.b.port), 5) as connection:
            connection.sendall(b"GET /v1/moves/none HTTP/1.1\r\nHost: b\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                self.assertNotIn(b"known", connection.recv(4096))
        self.assertEqual(200, self.ask().status)

    def test_nor_with_one_of_another_volt(self):
        now = datetime.now(UTC)
        other = ca.found(now)
        key, request = certificates.request()
        signed = ca.sign(other, request, "a", now, now + timedelta(hours=1))
        file = self.bed.folder / "forged.pem"
        file.write_text(key + signed)
        context = self.plain()
        context.load_cert_chain(file)
        self.assertRaises((OSError, http.client.HTTPException), self.ask, context)

    def test_nor_with_one_that_has_expired(self):
        now = datetime.now(UTC)
        mine = self.bed.volt.ground.peers._rows.authority()
        key, request = certificates.request()
        past = now - timedelta(minutes=1)
        file = self.bed.folder / "old.pem"
        file.write_text(key + ca.sign(mine, request, "a", now, past))
        context = self.plain()
        context.load_cert_chain(file)
        self.assertRaises((OSError, http.client.HTTPException), self.ask, context)

    def test_who_answers_must_be_the_host_that_was_meant(self):
        """Volt says where b listens; there is another host with a certificate of its own."""
        c = self.bed.node("c")
        c.serve()
        c.credentials.port = self.b.port
        self.b.listener.stop()
        port = c.listener.port
        listens = Listener("b", "127.0.0.1", port)
        self.bed.volt.ground.peers.certify("b", certificates.request()[1], listens)
        error = self.assertRaises(PeerUntrusted, self.send_nothing)
        self.assertIn("should be host b, but there is c", str(error))

    def send_nothing(self):
        with self.a.process.here():
            self.peer(self.a, "b").sends("none")

    def test_a_host_has_no_say_in_what_others_send(self):
        self.b.records.put(Arrival("vm1", "x" * 32, "c"))
        with self.a.process.here():
            peer = self.peer(self.a, "b")
            self.assertRaises(PeerUntrusted, peer.activate, "vm1", "x" * 32)
            self.assertRaises(MoveUnknown, peer.activate, "vm1", "y" * 32)
            peer.drop("vm1", "x" * 32)
        self.assertIsNotNone(self.b.records.arrival("vm1"))

    def test_a_revoked_host_sends_nothing_any_more(self):
        self.a.create("vm1")
        self.a.serve()
        self.bed.volt.ground.peers.revoke("a")
        self.assertRaises(PeerUnknown, self.a.migrate, "vm1", "b")
        self.assertEqual(["vm1"], [one.vm for one in self.a.records.all()])
        self.assertEqual([], self.b.records.all())

    def test_an_agent_that_does_not_listen_sends_nothing(self):
        self.a.create("vm1")
        self.a.credentials.ip = ""
        self.assertRaises(PeersOff, self.a.migrate, "vm1", "b")

    def test_a_host_that_is_away_is_named(self):
        self.b.listener.stop()
        error = self.assertRaises(PeerUnreachable, self.send_nothing)
        self.assertIn("host b", str(error))

    def test_certificates_are_renewed_in_time_and_used_at_once(self):
        own = self.b.folder / "peer.pem"
        before = own.read_bytes()
        with self.b.process.here():
            self.b.credentials.renew()
            self.assertEqual(before, own.read_bytes())
            later = datetime.now(UTC) + timedelta(hours=17)
            clock = fixtures.MockPatchObject(tls, "datetime", _Clock(later))
            with clock:
                self.b.credentials.renew()
        self.assertNotEqual(before, own.read_bytes())
        self.assertEqual(0o600, own.stat().st_mode & 0o777)
        connection = http.client.HTTPSConnection("127.0.0.1", self.b.port, context=self.context)
        self.addCleanup(connection.close)
        connection.connect()
        shown = ssl.DER_cert_to_PEM_cert(connection.sock.getpeercert(binary_form=True))
        self.assertIn(shown.strip(), own.read_text())

    def test_what_is_no_request_is_refused(self):
        for method, path, body, status in (
            ("GET", "/v1/instances", None, 404),
            ("DELETE", "/v1/moves/none", None, 405),
            ("PUT", "/v1/arrivals/vm1", "{}", 400),
            ("PUT", "/v1/arrivals/vm1", "[", 400),
            ("POST", "/v1/arrivals/vm1/pieces?runs=x", b"", 400),
            ("POST", "/v1/arrivals/vm1/complete", "{}", 400),
            ("POST", "/v1/arrivals/vm1/activate", '{"id": "none"}', 404),
        ):
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.b.port, context=self.context, timeout=5
            )
            with ExitStack() as cleanups:
                cleanups.callback(connection.close)
                connection.request(method, path, body)
                self.assertEqual(status, connection.getresponse().status, path)
        self.assertEqual([], self.b.records.all())


class _Clock:
    def __init__(self, now):
        self._now = now

    def now(self, zone):
        return self._now
