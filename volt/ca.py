"""Which certificates prove agents to each other: Volt is the authority that signs them.

Pure but for the random numbers in keys. A certificate names one host (common name) and holds
for hours: an agent has it renewed long before, for as long as its token is good.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from volt.errors import CertificateRequestInvalid

NAME = "Volt, authority of agents"
_CURVES = (ec.SECP256R1, ec.SECP384R1)
_LIFETIME = timedelta(days=3650)
_SKEW = timedelta(minutes=10)  # clocks of hosts may be behind Volt's


@dataclass(frozen=True)
class Authority:
    """A certificate that vouches for others, and its key; both PEM."""

    certificate: str
    key: str = field(repr=False)


def found(now: datetime) -> Authority:
    """Make a new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(NAME)
    certificate = (
        _begun(name, name, key.public_key(), now, now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain
    ).decode()
    return Authority(_pem(certificate), pem)


def sign(authority: Authority, request: str, host: str, now: datetime, expires: datetime) -> str:
    """Return a host's certificate (PEM) for the key in its request.

    Nothing but the key is taken from the request. Raises CertificateRequestInvalid.
    """
    key = serialization.load_pem_private_key(authority.key.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    certificate = (
        _begun(_name(host), issuer.subject, _key_of(request), now, expires)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem(certificate)


def _key_of(request: str) -> ec.EllipticCurvePublicKey:
    try:
        parsed = x509.load_pem_x509_csr(request.encode())
        key = parsed.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, _CURVES):
            raise ValueError("its key is of another kind")
        if not parsed.is_signature_valid:
            raise ValueError("it is not signed with its own key")
    except Exception as err:  # the library raises kinds of its own for some keys
        raise CertificateRequestInvalid(
            f"request: {str(err)[:200]}; send a PKCS #10 request in PEM for a key on curve P-256 "
            "or P-384"
        ) from err
    return key


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    expires: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(expires)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
