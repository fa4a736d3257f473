"""Which hosts have VMs that wait for what they read, and of which images."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import ForeignKey, Index, bindparam, delete, insert, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from volt.db.any_of import among
from volt.db.models import Base, Name

Demand = tuple[str, str]
"""A host, and the image of which its VMs wait for reads."""


class DemandRow(Base):
    """VMs of a host wait for what they read of an image, as it said last.

    It does not refer to the image, for the reason that takers do not.
    """

    __tablename__ = "demands"

    host: Mapped[str] = mapped_column(
        Name, ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True
    )
    image: Mapped[str] = mapped_column(Name, primary_key=True)

    __table_args__ = (Index(None, "image"),)


# Statements are made once: making one anew takes longer than running it.
_TABLE: Any = DemandRow.__table__
_OF_HOSTS = select(_TABLE.c.host, _TABLE.c.image).where(among(_TABLE.c.host, "hosts"))
_IMAGES = select(_TABLE.c.image).where(among(_TABLE.c.image, "images")).distinct()
_ADD = insert(_TABLE)
_FORGET = delete(_TABLE).where(
    _TABLE.c.host == bindparam("in_host"), _TABLE.c.image == bindparam("in_image")
)


def of(session: Session, hosts: Collection[str]) -> set[Demand]:
    """Return the demands of these hosts."""
    rows = session.connection().execute(_OF_HOSTS, {"hosts": sorted(hosts)})
    return {(host, image) for host, image in rows}


def images(session: Session, names: Collection[str]) -> set[str]:
    """Return those of these images of which VMs of any host wait for reads."""
    return set(session.connection().execute(_IMAGES, {"images": sorted(names)}).scalars())


def add(session: Session, demands: Collection[Demand]) -> None:
    """Note demands of hosts whose rows are held."""
    if demands:
        rows = [{"host": host, "image": image} for host, image in sorted(demands)]
        session.connection().execute(_ADD, rows)


def forget(session: Session, demands: Collection[Demand]) -> None:
    """Forget demands of hosts whose rows are held."""
    if demands:
        rows = [{"in_host": host, "in_image": image} for host, image in sorted(demands)]
        session.connection().execute(_FORGET, rows)
