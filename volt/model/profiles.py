"""Which bytes are a boot profile, and under which condition one takes the place of another.

Agents write and read profiles. Volt reads the head alone:

    0    4       5          37         69
    +----+-------+----------+----------+----------------------
    |VMBP|version| root hash| checksum | what the agents read
    +----+-------+----------+----------+----------------------

The root hash is that of the image's hash tree, the checksum the SHA-256 of what follows it.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from volt.errors import ProfileInvalid

MAGIC: Final = b"VMBP"
VERSION: Final = 2
HEAD: Final = 69  # bytes
BOOT: Final = "boot"
"""The workload that agents record and help by themselves."""

LARGEST: Final = 1024 * 1024  # bytes, with the head

_ROOT_HASH: Final = slice(5, 37)
_CHECKSUM: Final = slice(37, HEAD)


@dataclass(frozen=True)
class Profiled:
    """A workload, and the newest revision of its profile."""

    workload: str
    revision: int


@dataclass(frozen=True)
class Profile:
    """The newest profile of a workload, and how many bytes it has."""

    workload: str
    revision: int
    bytes: int
    stored_at: datetime


@dataclass(frozen=True)
class Revision:
    """A profile as it was once stored; ``host`` is who did, null if that was no host."""

    revision: int
    bytes: int
    stored_at: datetime
    host: str | None


@dataclass(frozen=True)
class NewProfile:
    """A profile whose head is right; root hash and tag are in hexadecimal digits.

    The tag is the checksum. Profiles of one image that have the same tag are the same bytes.
    """

    root_hash: str
    tag: str
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class Condition:
    """Which profile must be there before another is stored: tags, or ``*`` for any.

    ``match`` has what HTTP's If-Match names, ``none_match`` what If-None-Match does; None is no
    condition.
    """

    match: frozenset[str] | None = None
    none_match: frozenset[str] | None = None

    def holds(self, present: str | None, wanted: str) -> bool:
        """Tell whether the wanted tag may follow the present one; None is no profile.

        What is wanted may be there already: somebody asks again who missed the answer (RFC 9110,
        section 13.1.1).
        """
        if self.none_match is not None and _is_among(present, self.none_match):
            return False
        return self.match is None or _is_among(present, self.match | {wanted})


def parse(content: bytes) -> NewProfile:
    """Read the head of a profile; raises ProfileInvalid."""
    if len(content) > LARGEST:
        raise ProfileInvalid(f"a profile has at most {LARGEST} bytes, this one has more")
    if len(content) < HEAD or not content.startswith(MAGIC):
        raise ProfileInvalid(
            f"this is no profile: it does not begin with {MAGIC.decode()} and a head of {HEAD} "
            "bytes; send what an agent wrote"
        )
    version = content[len(MAGIC)]
    if version != VERSION:
        raise ProfileInvalid(
            f"the profile is of version {version}, but Volt knows version {VERSION} only: "
            "upgrade Volt, or let an agent of Volt's own release write it"
        )
    checksum = content[_CHECKSUM]
    if hashlib.sha256(content[HEAD:]).digest() != checksum:
        raise ProfileInvalid(
            "the profile does not have the checksum that its head names: it was damaged or cut "
            "off, send it again"
        )
    return NewProfile(content[_ROOT_HASH].hex(), checksum.hex(), content)


def _is_among(tag: str | None, tags: frozenset[str]) -> bool:
    return tag is not None and ("*" in tags or tag in tags)
