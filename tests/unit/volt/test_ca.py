"""What Volt signs: a host's name, a while, and no more than that."""

from datetime import UTC, datetime, timedelta

import testtools
from cryptography import x509

from virtman.migration import certificates
from volt.ca import found, sign

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class AuthorityTest(testtools.TestCase):
    def test_a_certificate_serves_its_host_for_two_thirds_of_its_time(self):
        authority = found(NOW)
        _, request = certificates.request()
        pem = sign(authority, request, "node1", NOW, NOW + timedelta(hours=24)).encode()
        self.assertTrue(certificates.serves(pem, "node1", NOW + timedelta(hours=15)))
        self.assertFalse(certificates.serves(pem, "node1", NOW + timedelta(hours=17)))
        self.assertFalse(certificates.serves(pem, "node2", NOW))
        self.assertFalse(certificates.serves(b"nothing", "node1", NOW))

    def test_it_can_sign_nothing_itself(self):
        authority = found(NOW)
        pem = sign(authority, certificates.request()[1], "node1", NOW, NOW + timedelta(hours=1))
        made = x509.load_pem_x509_certificate(pem.encode())
        issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
        made.verify_directly_issued_by(issuer)
        usage = made.extensions.get_extension_for_class(x509.KeyUsage).value
        self.assertFalse(usage.key_cert_sign)
        self.assertNotIn("PRIVATE", repr(authority))
