"""Where an image is served, and what to prove there: what iSCSI is without I/O.

A target serves disks, and stripe by stripe an image has one each. Its name says whose it is::

    iqn.2026-11.org.virtman:<host>:<image>          what a host in the trees serves
    iqn.2026-11.org.virtman:source:<host>:<image>   what a storage node serves: their root

One node may be both. No host is called ``source:<host>``, as no name has a colon.

Others hand a ``Portal`` and a ``Proof`` on as they are, between Volt, whose JSON is made and read
here, and ``virtman.stack.transport``. Of their parts they use those that any network has: ``ip``,
``port`` and ``offset``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from virtman.model.naming import NAME

AUTHORITY = "iqn.2026-11.org.virtman"
_SOURCE = "source"


@dataclass(frozen=True)
class Portal:
    """Where an image is served: an iSCSI portal, target and LUN.

    :ivar offset: bytes on the LUN before the image's first byte
    """

    ip: str
    port: int
    iqn: str
    lun: int = 0
    offset: int = 0

    @property
    def name(self) -> str:
        """What users see of it: the name of what serves the image."""
        return self.iqn

    @property
    def host(self) -> str:
        """Who serves there, ``source:<host>`` for a source; empty if it is none of ours."""
        return (parse_iqn(self.iqn) or ("", ""))[0]

    @property
    def image(self) -> str:
        """What is served there; empty if it is none of ours."""
        return (parse_iqn(self.iqn) or ("", ""))[1]

    def disk(self, number: int) -> Portal:
        """Return where a disk that is served beside this one is, counted from this one on."""
        return replace(self, lun=self.lun + number)


@dataclass(frozen=True)
class Proof:
    """What an initiator proves to a target that it knows, by CHAP."""

    user: str
    secret: str = field(repr=False)


def served_by(host: str, image: str, ip: str, port: int, offset: int = 0) -> Portal:
    """Return where a host serves the first disk of an image."""
    return Portal(ip, port, iqn(host, image), 0, offset)


def source_at(host: str, image: str, ip: str, port: int) -> Portal:
    """Return where a storage node serves an image: its leaves are the next disk."""
    return served_by(f"{_SOURCE}:{host}", image, ip, port)


def iqn(host: str, image: str) -> str:
    """Name of the iSCSI target by which ``host`` serves ``image``."""
    return f"{AUTHORITY}:{host}:{image}"


def parse_iqn(name: str) -> tuple[str, str] | None:
    """Return who serves a target of ours, as ``Portal.host`` has it, and the image; else None."""
    authority, *rest = name.split(":")
    names = rest[1:] if len(rest) == 3 and rest[0] == _SOURCE else rest
    if authority != AUTHORITY or len(names) != 2 or not all(map(NAME.fullmatch, names)):
        return None
    return ":".join(rest[:-1]), rest[-1]


def parse(said: Mapping[str, Any]) -> tuple[Portal, Proof | None]:
    """Return where somebody serves, and what that asks for: None is nothing."""
    return Portal(**said["portal"]), parse_proof(said) if said["chap"] else None


def parse_proof(said: Mapping[str, Any]) -> Proof:
    """Return what is asked of children."""
    return Proof(**said["chap"])


def form(portal: Portal, proof: Proof | None) -> dict[str, Any]:
    """Return what ``parse`` reads."""
    return {"portal": asdict(portal), "chap": proof and asdict(proof)}


def proof_form(proof: Proof) -> dict[str, Any]:
    """Return what ``parse_proof`` reads."""
    return {"chap": asdict(proof)}


def source_form(portal: Portal, proof: Proof | None) -> dict[str, Any]:
    """Return how Volt is told where an image's source is, and what that asks for."""
    asked = {"source_chap": asdict(proof)} if proof else {}
    return {"source": asdict(portal), **asked}
