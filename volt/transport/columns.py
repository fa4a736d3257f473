"""How portals and proofs lie in the database."""

from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import BigInteger, String
from sqlalchemy.orm import Mapped, mapped_column

from volt.transport.iscsi import Chap, Portal, Proof

PORTAL = tuple(each.name for each in fields(Portal))
"""Columns of a portal."""

_PEERS_USER = "virtman"


def values(portal: Portal) -> dict[str, Any]:
    """Return what stands for a portal in its columns."""
    return asdict(portal)


def portal(row: Any) -> Portal:
    """Return the portal that a row has in its columns."""
    return Portal(row.ip, row.port, row.iqn, row.lun, row.offset)


class Served:
    """Of what is served: where."""

    ip: Mapped[str] = mapped_column(String(45))
    port: Mapped[int]
    iqn: Mapped[str] = mapped_column(String(223))
    lun: Mapped[int]
    offset: Mapped[int] = mapped_column(BigInteger)


class Sourced(Served):
    """Of an image: where its source is, what that asks for, and hosts of each other."""

    source_user: Mapped[str | None] = mapped_column(String(64))
    source_secret: Mapped[str | None] = mapped_column(String(255))
    secret: Mapped[str] = mapped_column(String(255))

    @property
    def source_proof(self) -> Proof | None:
        """What the source asks of those whom it feeds."""
        if self.source_user is None or self.source_secret is None:
            return None
        return Chap(self.source_user, self.source_secret)

    @source_proof.setter
    def source_proof(self, proof: Proof | None) -> None:
        self.source_user, self.source_secret = (proof.user, proof.secret) if proof else (None, None)

    @property
    def peers_proof(self) -> Proof:
        """What hosts ask of each other."""
        return Chap(_PEERS_USER, self.secret)
