"""Which hosts are asked to warm which images, and how far they are."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, String, and_, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from volt.db.models import Base, Name, PlacementRow
from volt.model.placements import State
from volt.model.warmups import Warming, Warmup, Wish

_UNDER_WAY = [state.value for state in Warming if not state.is_end]


class WarmupRow(Base):
    """What one host was asked, and what it says since; ``wanted`` and ``there`` in bytes.

    ``generation`` is the image's when the host was asked: by it, who waits for news finds it.
    """

    __tablename__ = "warmups"

    image: Mapped[str] = mapped_column(
        Name, ForeignKey("images.name", ondelete="CASCADE"), primary_key=True
    )
    host: Mapped[str] = mapped_column(
        Name, ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True
    )
    workload: Mapped[str] = mapped_column(Name)
    generation: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(16))
    wanted: Mapped[int] = mapped_column(BigInteger)
    there: Mapped[int] = mapped_column(BigInteger)
    detail: Mapped[str] = mapped_column(String(255))
    asked_at: Mapped[datetime]

    __table_args__ = (Index(None, "host"),)


def ask(
    session: Session,
    image: str,
    workload: str,
    names: Collection[str],
    generation: int,
    now: datetime,
) -> None:
    """Ask these hosts; those that are about it already go on."""
    rows = session.scalars(select(WarmupRow).where(WarmupRow.image == image))
    present = {row.host: row for row in rows}
    for host in sorted(names):
        row = present.get(host)
        if row is None:
            row = WarmupRow(image=image, host=host)
            session.add(row)
        elif row.workload == workload and not Warming(row.state).is_end:
            continue
        row.workload, row.generation, row.asked_at = workload, generation, now
        row.state, row.wanted, row.there, row.detail = Warming.ASKED, 0, 0, ""
    session.flush()


def find(session: Session, image: str, host: str) -> WarmupRow | None:
    """Return what a host was asked, locked until the commit."""
    return session.get(WarmupRow, (image, host), with_for_update=True)


def of_image(session: Session, image: str) -> list[Warmup]:
    """Return all that were asked of an image, by host."""
    has_place = and_(
        PlacementRow.image == WarmupRow.image,
        PlacementRow.host == WarmupRow.host,
        PlacementRow.state != State.LEAVING,
    )
    rows = session.execute(
        select(WarmupRow, PlacementRow.host)
        .outerjoin(PlacementRow, has_place)
        .where(WarmupRow.image == image)
        .order_by(WarmupRow.host)
    )
    return [
        Warmup(
            row.host,
            row.workload,
            Warming(row.state),
            row.wanted,
            row.there,
            row.detail,
            row.asked_at,
            place is not None,
        )
        for row, place in rows
    ]


def of_host(session: Session, host: str) -> list[Wish]:
    """Return what the host shall warm, or warms, by image."""
    rows = session.execute(
        select(WarmupRow.image, WarmupRow.workload, WarmupRow.generation)
        .where(WarmupRow.host == host, WarmupRow.state.in_(_UNDER_WAY))
        .order_by(WarmupRow.image)
    )
    return [Wish(*row) for row in rows]
