"""How the profiles of images are kept: the last revisions of each workload."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import CursorResult, ForeignKey, String, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column, undefer

from volt.db.models import Base, Blob, Name

KEPT: Final = 8
"""Revisions of a workload that are kept."""


class ProfileRow(Base):
    """A revision of a workload's profile: ``size`` bytes, for which ``tag`` stands.

    ``host`` is who stored it, None if that was no host.
    """

    __tablename__ = "profiles"

    image: Mapped[str] = mapped_column(
        Name, ForeignKey("images.name", ondelete="CASCADE"), primary_key=True
    )
    workload: Mapped[str] = mapped_column(Name, primary_key=True)
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tag: Mapped[str] = mapped_column(String(64))
    size: Mapped[int]
    content: Mapped[bytes] = mapped_column(Blob, deferred=True)
    stored_at: Mapped[datetime]
    host: Mapped[str | None] = mapped_column(Name)


def newest(session: Session, image: str) -> list[ProfileRow]:
    """Return the newest revision of each of the image's workloads, by workload."""
    rows = session.scalars(
        select(ProfileRow)
        .where(ProfileRow.image == image)
        .order_by(ProfileRow.workload, ProfileRow.revision)
    )
    return list({row.workload: row for row in rows}.values())


def history(session: Session, image: str, workload: str) -> Sequence[ProfileRow]:
    """Return all revisions of the workload that are kept, the newest first."""
    return session.scalars(
        select(ProfileRow)
        .where(ProfileRow.image == image, ProfileRow.workload == workload)
        .order_by(ProfileRow.revision.desc())
    ).all()


def find(
    session: Session, image: str, workload: str, revision: int | None = None
) -> ProfileRow | None:
    """Return a revision with its bytes, the newest unless told which."""
    query = select(ProfileRow).options(undefer(ProfileRow.content))
    query = query.where(ProfileRow.image == image, ProfileRow.workload == workload)
    if revision is not None:
        query = query.where(ProfileRow.revision == revision)
    return session.scalars(query.order_by(ProfileRow.revision.desc()).limit(1)).first()


def add(session: Session, row: ProfileRow) -> None:
    """Store a revision, and forget those that are no longer kept."""
    session.add(row)
    session.execute(
        delete(ProfileRow).where(
            ProfileRow.image == row.image,
            ProfileRow.workload == row.workload,
            ProfileRow.revision <= row.revision - KEPT,
        )
    )


def remove(session: Session, image: str, workload: str) -> int:
    """Forget all revisions of the workload; return how many there were."""
    found: CursorResult[Any] = session.execute(  # type: ignore[assignment]
        delete(ProfileRow).where(ProfileRow.image == image, ProfileRow.workload == workload)
    )
    return found.rowcount
