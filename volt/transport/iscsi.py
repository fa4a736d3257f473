"""What an iSCSI portal is, what it asks for, and how both look in the REST API."""

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from volt.errors import RequestInvalid

SECTOR = 512
LARGEST = 2**60  # 1 EiB: far beyond any image, well inside a 64-bit column


@dataclass(frozen=True)
class Portal:
    """Where an image can be read: an iSCSI LUN, and the byte of it where the image starts."""

    ip: str
    port: int
    iqn: str
    lun: int
    offset: int = 0


@dataclass(frozen=True)
class Chap:
    """What an initiator proves to a target that it knows."""

    user: str
    secret: str = field(repr=False)


Proof = Chap

IP = {"type": "string", "maxLength": 45, "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}

PORTAL = {
    "type": "object",
    "properties": {
        "ip": IP,
        "port": PORT,
        "iqn": {
            "type": "string",
            "maxLength": 223,
            "pattern": r"^(iqn\.[0-9]{4}-[0-9]{2}\.[A-Za-z0-9._:-]+|(eui|naa)\.[0-9A-Fa-f]+)$",
        },
        "lun": {"type": "integer", "minimum": 0, "maximum": 65535},
        "offset": {"type": "integer", "minimum": 0, "maximum": LARGEST, "multipleOf": SECTOR},
    },
    "required": ["ip", "port", "iqn", "lun"],
    "additionalProperties": False,
}

_CHAP = {
    "type": ["object", "null"],
    "properties": {
        "user": {"type": "string", "pattern": r"^[A-Za-z0-9._:@-]{1,64}$"},
        "secret": {"type": "string", "pattern": r"^[A-Za-z0-9._:@-]{12,255}$"},
    },
    "required": ["user", "secret"],
    "additionalProperties": False,
}

SOURCE = {"source": PORTAL, "source_chap": _CHAP}
"""Where an image's source is, and what that asks for, if anything: fields of an image."""

SECRET = "source_chap"  # noqa: S105
"""Which field no message may show."""

RENEWED = "chap"
"""Kind of the event that somebody asks for another secret than before."""


def parse(form: Mapping[str, Any]) -> Portal:
    """Take over what ``PORTAL`` lets pass."""
    return Portal(
        ip(form["ip"]), int(form["port"]), form["iqn"], int(form["lun"]), int(form.get("offset", 0))
    )


def parse_source(form: Mapping[str, Any]) -> tuple[Portal, Proof | None]:
    """Take over what ``SOURCE`` lets pass."""
    chap = form.get("source_chap")
    return parse(form["source"]), Chap(**chap) if chap else None


def ip(text: str) -> str:
    """Return an address in its usual form; raises RequestInvalid."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as err:
        raise RequestInvalid(
            f"ip {text!r} is no address: give an IPv4 or IPv6 address, not a host name"
        ) from err


def new_secret() -> str:
    """Return what hosts shall prove to each other that they know."""
    return secrets.token_hex(16)
