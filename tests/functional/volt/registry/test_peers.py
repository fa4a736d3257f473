"""Certificates of agents: whom Volt gives one, what is in it, and how long it counts."""

import ssl
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from tests.functional.volt.base import TestCase
from volt.ca import found
from volt.db.peers import PeerRows
from volt.errors import ListenerUnknown
from volt.model.hosts import Listener
from volt.registry.peers import Peers


def request(key=None, name="somebody-else"):
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(
        key, hashes.SHA256()
    )  # fmt: skip
    return signed.public_bytes(serialization.Encoding.PEM).decode()


class PeersTest(TestCase):
    def setUp(self):
        super().setUp()
        self.client = self.ground.client()

    def ask(self, method, path, token=None, **settings):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.client.open(f"/v1/hosts/{path}", method=method, headers=headers, **settings)

    def certify(self, host="a", token=None, **other):
        body = {"request": request(), "ip": "192.0.2.1", "port": 8779, **other}
        return self.ask("PUT", f"{host}/certificate", token, json=body)

    def test_a_certificate_names_the_host_whatever_was_asked_for(self):
        token = self.ground.token("host", "a")
        answer = self.certify("a", token)
        self.assertEqual(200, answer.status_code, answer.text)
        made = x509.load_pem_x509_certificate(answer.json["certificate"].encode())
        authority = x509.load_pem_x509_certificate(answer.json["authority"].encode())
        made.verify_directly_issued_by(authority)
        (name,) = made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        self.assertEqual("a", name.value)
        basic = made.extensions.get_extension_for_class(x509.BasicConstraints).value
        self.assertFalse(basic.ca)
        self.assertEqual(
            made.not_valid_after_utc,
            datetime.fromisoformat(answer.json["expires_at"]).replace(microsecond=0),
        )
        ssl.create_default_context(cadata=answer.json["authority"])

    def test_all_have_one_authority(self):
        answers = [self.certify(host).json["authority"] for host in ("a", "b")]
        rows = PeerRows(self.ground.engine)
        late = rows.found(found(datetime.now(UTC)), datetime.now(UTC))
        self.assertEqual({late.certificate}, set(answers))

    def test_a_host_gets_none_for_another(self):
        token = self.ground.token("host", "a")
        self.assertEqual(403, self.certify("b", token).status_code)
        self.assertEqual(403, self.ask("DELETE", "a/certificate", token).status_code)
        self.assertEqual(404, self.ask("GET", "b/listener", token).status_code)

    def test_hosts_learn_where_others_listen_until_they_are_revoked(self):
        token = self.ground.token("host", "b")
        self.certify("a")
        self.assertEqual(
            {"host": "a", "ip": "192.0.2.1", "port": 8779},
            self.ask("GET", "a/listener", token).json,
        )
        self.assertEqual(204, self.ask("DELETE", "a/certificate").status_code)
        answer = self.ask("GET", "a/listener", token)
        self.assertEqual((404, "volt.peer.unknown"), (answer.status_code, _code(answer)))

    def test_a_host_that_only_asks_others_is_no_listener(self):
        answer = self.ask("PUT", "a/certificate", json={"request": request()})
        self.assertEqual(200, answer.status_code, answer.text)
        self.assertEqual(404, self.ask("GET", "a/listener").status_code)
        for half in ({"ip": "192.0.2.1"}, {"port": 8779}):
            answer = self.ask("PUT", "a/certificate", json={"request": request(), **half})
            self.assertEqual("volt.request.invalid", _code(answer))

    def test_what_has_expired_counts_no_more(self):
        now = datetime.now(UTC)
        rows = PeerRows(self.ground.engine)
        Peers(rows, timedelta(hours=1)).certify("a", request(), Listener("a", "192.0.2.1", 8779))
        later = Peers(rows, timedelta(hours=1), clock=lambda: now + timedelta(hours=2))
        self.assertRaises(ListenerUnknown, later.listener, "a")

    def test_what_is_no_request_is_refused(self):
        for none in ("", "AAAA", "-----BEGIN CERTIFICATE REQUEST-----\n"):
            self.assertEqual("volt.request.invalid", _code(self.certify(request=none)))
        for wrong in (
            "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
            request(rsa.generate_private_key(65537, 2048)),
            request(ec.generate_private_key(ec.SECP192R1())),
        ):
            answer = self.certify(request=wrong)
            self.assertEqual(400, answer.status_code, wrong)
            self.assertEqual("volt.certificate.request", _code(answer))
        self.assertEqual(404, self.ask("GET", "a/listener").status_code)
        for other in ({"ip": "a.example"}, {"port": 0}, {"more": 1}):
            self.assertEqual("volt.request.invalid", _code(self.certify(**other)))


def _code(answer):
    return answer.json["error"]["code"]
