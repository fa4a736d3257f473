"""Keys and certificates in PEM: what an agent asks Volt to sign, and whether it is time to.

A module of its own, because an agent that does not listen to others need not load its library.
"""

from __future__ import annotations

from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_DUE = 2 / 3
"""Share of a certificate's lifetime after which it is renewed."""


def request() -> tuple[str, str]:
    """Return a new key, and a request for a certificate of it. Volt says whom it names."""
    key = ec.generate_private_key(ec.SECP256R1())
    asked = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(key, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return secret.decode(), asked.public_bytes(serialization.Encoding.PEM).decode()


def serves(pem: bytes, host: str, now: datetime) -> bool:
    """Tell whether a certificate is a host's own and young enough."""
    try:
        mine = x509.load_pem_x509_certificate(pem)
    except ValueError:
        return False
    begin, end = mine.not_valid_before_utc, mine.not_valid_after_utc
    return [one.value for one in mine.subject] == [host] and now <= begin + _DUE * (end - begin)
