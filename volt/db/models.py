"""Which rows hold Volt's state."""

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    TypeDecorator,
    text,
)
from sqlalchemy.dialects.mysql import MEDIUMBLOB, MEDIUMTEXT
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from volt.transport.columns import Served, Sourced

Name = String(48)

WAITING = 0
"""Generation of a placement whose host waits for a place in the trees."""
# MariaDB's ordinary BLOB and TEXT end at 64 KiB.
Blob = LargeBinary().with_variant(MEDIUMBLOB(), "mysql", "mariadb")
LongText = Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")


class UtcTime(TypeDecorator[datetime]):
    """A time in UTC, also where the database drops the zone or has its own."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Store the time as UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give the time its zone back: SQLite and MariaDB keep none, PostgreSQL has its own."""
        if value is None or value.tzinfo is None:
            return value and value.replace(tzinfo=UTC)
        return value.astimezone(UTC)


class Base(DeclarativeBase):
    """What all tables share: constraints with predictable names."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar = {datetime: UtcTime}


class ImageRow(Sourced, Base):
    """An image; ``generation`` counts what its hosts have to hear of and only rises.

    ``inner`` and ``at_source`` are totals of the trees, a number a stripe. ``profiles`` has the
    newest revision of each workload's profile, for placements to tell without another query.
    ``revisions`` has the last that each workload ever had: no other profile gets its number.
    ``home`` is the host that stands for the source; null if that serves itself, or nobody if the
    ``source_gone`` is: it was removed, and has not been added again. Hosts copy all of
    it ``hydrate_after`` seconds after it came, at ``hydrate_rate`` bytes/s; null for not at all.
    So many are chosen for this that there are ``hydrate_copies``; null is all hosts.
    ``based_on`` are the images with which it has ``shared`` bytes in common, as ``basis`` says;
    null for none.
    ``suspended`` says how a VM goes on from it; null for an image that has no VM's memory.
    A layer has a ``parent``, a ``disk_size`` and perhaps a ``maker``: see ``images.Layer``.
    """

    __tablename__ = "images"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    shape: Mapped[str] = mapped_column(String(16))
    stripes: Mapped[int]
    fanout: Mapped[int]
    foreign_children: Mapped[int | None]
    inner: Mapped[list[int]] = mapped_column(JSON)
    at_source: Mapped[list[int]] = mapped_column(JSON)
    generation: Mapped[int] = mapped_column(BigInteger, default=0)
    created_at: Mapped[datetime]
    root_hash: Mapped[str | None] = mapped_column(String(64))
    salt: Mapped[str | None] = mapped_column(String(64))
    home: Mapped[str | None] = mapped_column(Name)
    source_gone: Mapped[bool] = mapped_column(default=False)
    hydrate_after: Mapped[int | None]
    hydrate_rate: Mapped[int | None] = mapped_column(BigInteger)
    hydrate_copies: Mapped[int | None]
    parent: Mapped[str | None] = mapped_column(Name)
    disk_size: Mapped[int | None] = mapped_column(BigInteger)
    maker: Mapped[str | None] = mapped_column(Name)
    suspended: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    based_on: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    shared: Mapped[int | None] = mapped_column(BigInteger)
    profiles: Mapped[dict[str, int]] = mapped_column(JSON, default=dict)
    revisions: Mapped[dict[str, int]] = mapped_column(JSON, default=dict)
    # larger than all the rest, and seldom wanted
    upper_hashes: Mapped[bytes | None] = mapped_column(Blob, deferred=True)
    basis: Mapped[bytes | None] = mapped_column(Blob, deferred=True)

    __table_args__ = (Index(None, "parent"),)


class HostRow(Base):
    """What a host says of itself and an operator of it.

    ``rack`` and ``speed`` are those of its wiring, see ``hosts.Wiring``.
    ``seen`` is the tick of Volt's clock at the last heartbeat, ``report`` its body as JSON.
    ``taking`` tells whether the host has shares of caps, ``demanding`` whether its VMs wait for
    what they read. ``needs`` stands for the disks for which it has holds; it is empty if there are
    none.
    """

    __tablename__ = "hosts"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    rack: Mapped[str | None] = mapped_column(Name)
    speed: Mapped[int | None] = mapped_column(BigInteger)
    draining: Mapped[bool] = mapped_column(default=False)
    overloaded: Mapped[bool] = mapped_column(default=False)
    taking: Mapped[bool] = mapped_column(default=False)
    demanding: Mapped[bool] = mapped_column(default=False)
    needs: Mapped[str] = mapped_column(String(32), default="")
    seen: Mapped[int] = mapped_column(BigInteger)
    report: Mapped[str] = mapped_column(LongText, default="{}")

    __table_args__ = (Index(None, "seen"),)


class HoldRow(Base):
    """How many disks a host has of an image, by its last word.

    It refers to neither. It stays when the host has expired, and the host may need an image that
    Volt does not know yet, or does not know any more. Nor could a heartbeat wait for the image's
    row: it holds hosts, and joins hold these the other way round.
    """

    __tablename__ = "holds"

    image: Mapped[str] = mapped_column(Name, primary_key=True)
    host: Mapped[str] = mapped_column(Name, primary_key=True)
    disks: Mapped[int]
    since: Mapped[datetime]

    __table_args__ = (Index(None, "host"),)


class ClockRow(Base):
    """Volt's own time, which no wall clock can turn: ticks, and which worker counts them."""

    __tablename__ = "clock"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    holder: Mapped[str] = mapped_column(String(64))
    tick: Mapped[int] = mapped_column(BigInteger)


class TurnRow(Base):
    """What one transaction at a time does, of whichever worker: it locks this meanwhile."""

    __tablename__ = "turns"

    name: Mapped[str] = mapped_column(Name, primary_key=True)


class AccusationRow(Base):
    """A host that another says sent it wrong bytes, and the tick of Volt's clock then."""

    __tablename__ = "accusations"

    host: Mapped[str] = mapped_column(Name, primary_key=True)
    reporter: Mapped[str] = mapped_column(Name, primary_key=True)
    tick: Mapped[int] = mapped_column(BigInteger)


class EventRow(Base):
    """Something that an operator may want to know happened."""

    __tablename__ = "events"

    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    )
    at: Mapped[datetime]
    kind: Mapped[str] = mapped_column(String(32))
    image: Mapped[str | None] = mapped_column(Name)
    host: Mapped[str | None] = mapped_column(Name)
    detail: Mapped[str] = mapped_column(String(255), default="")


class PlacementRow(Served, Base):
    """A host's place in an image's trees.

    ``generation`` is ``WAITING`` until there is a place; ``confirmed`` is the last one that
    the host said it uses; ``left`` is the image's generation when it left, and ``told`` whom
    it read from then: pairs of parent and standby by stripe. ``whole`` tells whether the host
    said that it has all of the image, and needs no parents; ``complete`` has a bit for each stripe
    of which it has all, the lowest for stripe 0. ``chosen`` tells whether it is one of those hosts
    that shall have all, where not all shall.
    """

    __tablename__ = "placements"

    image: Mapped[str] = mapped_column(Name, ForeignKey("images.name"), primary_key=True)
    host: Mapped[str] = mapped_column(Name, primary_key=True)
    state: Mapped[str] = mapped_column(String(16))
    generation: Mapped[int] = mapped_column(BigInteger)
    confirmed: Mapped[int] = mapped_column(BigInteger, default=0)
    whole: Mapped[bool] = mapped_column(default=False)
    complete: Mapped[int] = mapped_column(BigInteger, default=0)
    chosen: Mapped[bool] = mapped_column(default=False)
    left: Mapped[int | None] = mapped_column(BigInteger)
    told: Mapped[list[list[str | None]] | None] = mapped_column(JSON(none_as_null=True))

    __table_args__ = (
        Index(None, "host"),
        Index(None, "image", "generation"),
        Index(None, "generation", postgresql_where=text(f"generation = {WAITING}")),
        Index(None, "image", "whole", "host", postgresql_where=text("whole")),
    )

    @property
    def in_trees(self) -> bool:
        """Whether the host holds a place, neither waiting for one nor leaving."""
        return self.left is None and self.generation != WAITING


class NodeRow(Base):
    """A host's place in one tree; parent null is the source.

    Standby null is the source below a host, and nobody below the source. The others are
    those of ``volt.placement.links.Node``; ``open`` is whether the host may be given a child.
    ``moved`` is the image's generation when the parent took the place of another one; 0 if it is
    the host's first one, or if the host said that it reads from it.
    """

    __tablename__ = "nodes"

    image: Mapped[str] = mapped_column(Name, primary_key=True)
    host: Mapped[str] = mapped_column(Name, primary_key=True)
    stripe: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    rack: Mapped[str | None] = mapped_column(Name)
    speed: Mapped[int | None] = mapped_column(BigInteger)
    parent: Mapped[str | None] = mapped_column(Name)
    standby: Mapped[str | None] = mapped_column(Name)
    level: Mapped[int]
    inner: Mapped[bool]
    fed: Mapped[int]
    foreign: Mapped[int]
    accepting: Mapped[bool]
    whole: Mapped[bool] = mapped_column(default=False)
    stray: Mapped[bool] = mapped_column(default=False)
    open: Mapped[bool]
    moved: Mapped[int] = mapped_column(BigInteger, default=0)

    __table_args__ = (
        ForeignKeyConstraint(
            ["image", "host"], ["placements.image", "placements.host"], ondelete="CASCADE"
        ),
        Index(None, "image", "stripe", "parent"),
        Index(None, "image", "stripe", "inner", "level", "host"),
        Index(None, "image", "stripe", "open", "level", "host", postgresql_where=text("open")),
        Index(
            None, "image", "stripe", "rack", "open", "level", "host", postgresql_where=text("open")
        ),
        Index(None, "image", "stripe", "rack", "inner", "stray", "level", "host"),
    )
