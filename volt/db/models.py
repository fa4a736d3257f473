"""Which rows hold Volt's state."""

from datetime import UTC, datetime
from typing import ClassVar

from sqlalchemy import (
    BigInteger,
    DateTime,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    MetaData,
    String,
    TypeDecorator,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Name = String(48)


class UtcTime(TypeDecorator[datetime]):
    """A time in UTC, also where the database (SQLite) drops the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Store the time as UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give the time its zone back."""
        return None if value is None else value.replace(tzinfo=UTC)


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


class ImageRow(Base):
    """An image; ``generation`` counts the changes of its trees and only rises."""

    __tablename__ = "images"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    stripes: Mapped[int]
    fanout: Mapped[int]
    ip: Mapped[str] = mapped_column(String(45))
    port: Mapped[int]
    iqn: Mapped[str] = mapped_column(String(223))
    lun: Mapped[int]
    offset: Mapped[int] = mapped_column(BigInteger)
    generation: Mapped[int] = mapped_column(BigInteger, default=0)
    created_at: Mapped[datetime]


class PlacementRow(Base):
    """A host's place in an image's trees.

    ``confirmed`` is the last generation that the host said it uses, ``joined`` and ``left``
    are the image's generation at its join and when it left.
    """

    __tablename__ = "placements"

    image: Mapped[str] = mapped_column(Name, ForeignKey("images.name"), primary_key=True)
    host: Mapped[str] = mapped_column(Name, primary_key=True)
    ip: Mapped[str] = mapped_column(String(45))
    port: Mapped[int]
    iqn: Mapped[str] = mapped_column(String(223))
    lun: Mapped[int]
    offset: Mapped[int] = mapped_column(BigInteger)
    colour: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    generation: Mapped[int] = mapped_column(BigInteger)
    confirmed: Mapped[int] = mapped_column(BigInteger, default=0)
    joined: Mapped[int] = mapped_column(BigInteger)
    left: Mapped[int | None] = mapped_column(BigInteger)

    __table_args__ = (Index(None, "host"),)


class EdgeRow(Base):
    """Who feeds a host in one tree; parent null is the source.

    Standby null is the source below a host, and nobody below the source.
    """

    __tablename__ = "edges"

    image: Mapped[str] = mapped_column(Name, primary_key=True)
    host: Mapped[str] = mapped_column(Name, primary_key=True)
    stripe: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    parent: Mapped[str | None] = mapped_column(Name)
    standby: Mapped[str | None] = mapped_column(Name)

    __table_args__ = (
        ForeignKeyConstraint(
            ["image", "host"], ["placements.image", "placements.host"], ondelete="CASCADE"
        ),
        ForeignKeyConstraint(["image", "parent"], ["placements.image", "placements.host"]),
        ForeignKeyConstraint(["image", "standby"], ["placements.image", "placements.host"]),
        Index(None, "image", "parent"),
        Index(None, "image", "standby"),
    )
