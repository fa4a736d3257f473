"""How caps are kept, and what each taker was granted of them."""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    ForeignKey,
    Index,
    String,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from volt.db.any_of import among
from volt.db.models import Base, HostRow, Name
from volt.model.caps import Cap, CapKind, Key

Taker = tuple[str, str]
"""A host, and the image in which it fetches ahead."""


class CapRow(Base):
    """How many bytes a second may be fetched ahead in an image, by a rack's hosts, or by a host."""

    __tablename__ = "caps"

    kind: Mapped[str] = mapped_column(String(8), primary_key=True)
    name: Mapped[str] = mapped_column(Name, primary_key=True)
    rate: Mapped[int] = mapped_column(BigInteger)


class TakerRow(Base):
    """What a host was granted for an image, in bytes a second.

    It does not refer to the image: a heartbeat would wait for its row while it holds hosts, and
    joins hold these the other way round. If the image goes, so does the row once the host reports.
    """

    __tablename__ = "takers"

    host: Mapped[str] = mapped_column(
        Name, ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True
    )
    image: Mapped[str] = mapped_column(Name, primary_key=True)
    granted: Mapped[int] = mapped_column(BigInteger)

    __table_args__ = (Index(None, "image"),)


# Statements are made once: making one anew takes longer than running it.
_CAPS: Any = CapRow.__table__
_TAKERS: Any = TakerRow.__table__
_HOSTS: Any = HostRow.__table__
_OF_IMAGE = _CAPS.c.kind == CapKind.IMAGE
_OF_RACK = _CAPS.c.kind == CapKind.RACK
_OF_HOST = _CAPS.c.kind == CapKind.HOST
_LOCKED = (
    select(_CAPS.c.kind, _CAPS.c.name, _CAPS.c.rate)
    .where(
        or_(
            and_(_OF_IMAGE, among(_CAPS.c.name, "images")),
            and_(_OF_RACK, among(_CAPS.c.name, "racks")),
            and_(_OF_HOST, among(_CAPS.c.name, "hosts")),
        )
    )
    .order_by(_CAPS.c.kind, _CAPS.c.name)
    .with_for_update()
)
_SUMS = func.count(), func.sum(_TAKERS.c.granted)
_IN_IMAGES = (
    select(literal(CapKind.IMAGE.value), _TAKERS.c.image, *_SUMS)
    .where(among(_TAKERS.c.image, "images"))
    .group_by(_TAKERS.c.image)
)
_IN_RACKS = (
    select(literal(CapKind.RACK.value), _CAPS.c.name, *_SUMS)
    .join_from(_CAPS, _HOSTS, and_(_OF_RACK, _CAPS.c.name == _HOSTS.c.rack))
    .join(_TAKERS, _TAKERS.c.host == _HOSTS.c.name)
    .where(among(_CAPS.c.name, "racks"))
    .group_by(_CAPS.c.name)
)
_ON_HOSTS = (
    select(literal(CapKind.HOST.value), _TAKERS.c.host, *_SUMS)
    .where(among(_TAKERS.c.host, "hosts"))
    .group_by(_TAKERS.c.host)
)
_TOTALS = union_all(_IN_IMAGES, _IN_RACKS, _ON_HOSTS)
_GRANTED = select(_TAKERS.c.host, _TAKERS.c.image, _TAKERS.c.granted).where(
    among(_TAKERS.c.host, "hosts")
)
_ADD = insert(_TAKERS)
_THIS = _TAKERS.c.host == bindparam("in_host"), _TAKERS.c.image == bindparam("in_image")
_GRANT = update(_TAKERS).where(*_THIS).values(granted=bindparam("to_granted"))
_FORGET = delete(_TAKERS).where(*_THIS)


def applies(places: Any) -> ColumnElement[bool]:
    """Return what tells, in a query of this table of images and hosts, whether a cap applies."""
    rack = select(_HOSTS.c.rack).where(_HOSTS.c.name == places.c.host).correlate(places)
    return exists().where(
        or_(
            and_(_OF_IMAGE, _CAPS.c.name == places.c.image),
            and_(_OF_RACK, _CAPS.c.name == rack.scalar_subquery()),
            and_(_OF_HOST, _CAPS.c.name == places.c.host),
        )
    )


def index(session: Session) -> list[Cap]:
    """Return all caps, by kind and name."""
    rows = session.execute(select(_CAPS).order_by(_CAPS.c.kind, _CAPS.c.name))
    return totals(session, {(CapKind(row.kind), row.name): row.rate for row in rows})


def find(session: Session, kind: CapKind, name: str) -> CapRow | None:
    """Return a cap's row, locked; None if there is none."""
    return session.get(CapRow, (kind, name), with_for_update=True)


def remove(session: Session, kind: CapKind, name: str) -> bool:
    """Forget a cap; return whether there was one."""
    query = delete(_CAPS).where(_CAPS.c.kind == kind, _CAPS.c.name == name)
    return session.connection().execute(query).rowcount > 0


def hold(session: Session, keys: Collection[Key]) -> dict[Key, int]:
    """Lock those of these caps that there are; return their rates."""
    rows = session.connection().execute(_LOCKED, _names(keys))
    return {(CapKind(kind), name): rate for kind, name, rate in rows}


def totals(session: Session, rates: Mapping[Key, int]) -> list[Cap]:
    """Return caps of these rates, with what their takers were granted."""
    if not rates:
        return []
    session.flush()
    rows = session.connection().execute(_TOTALS, _names(rates))
    found = {(kind, name): (takers, int(granted)) for kind, name, takers, granted in rows}
    return [Cap(*key, rate, *found.get(key, (0, 0))) for key, rate in rates.items()]


def granted(session: Session, hosts: Collection[str]) -> dict[Taker, int]:
    """Return what these hosts were granted."""
    rows = session.connection().execute(_GRANTED, {"hosts": sorted(hosts)})
    return {(host, image): share for host, image, share in rows}


def add(session: Session, takers: Collection[Taker]) -> None:
    """Let these hosts, whose rows are held, take; they are granted nothing yet."""
    if takers:
        rows = [{"host": host, "image": image, "granted": 0} for host, image in sorted(takers)]
        session.connection().execute(_ADD, rows)


def grant(session: Session, shares: Collection[tuple[Taker, int]]) -> None:
    """Keep what these takers are granted now."""
    if shares:
        rows = [_key(taker) | {"to_granted": share} for taker, share in sorted(shares)]
        session.connection().execute(_GRANT, rows)


def forget(session: Session, takers: Collection[Taker]) -> None:
    """Let these take no more."""
    if takers:
        session.connection().execute(_FORGET, [_key(taker) for taker in sorted(takers)])


def _names(keys: Collection[Key]) -> dict[str, list[str]]:
    """Return what the statements above ask for, a parameter for each kind."""
    return {f"{kind}s": sorted(name for of, name in keys if of == kind) for kind in CapKind}


def _key(taker: Taker) -> dict[str, Any]:
    host, image = taker
    return {"in_host": host, "in_image": image}
