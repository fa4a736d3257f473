"""How far images are that hosts wait for, and who makes them."""

from sqlalchemy import BigInteger, String, delete, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from volt.db.models import Base, HoldRow, ImageRow, Name


class ImportRow(Base):
    """What an importer last said of an image that it makes, at a tick of Volt's clock.

    ``done`` and ``total`` are bytes of the present step.
    """

    __tablename__ = "imports"

    image: Mapped[str] = mapped_column(Name, primary_key=True)
    importer: Mapped[str] = mapped_column(Name)
    state: Mapped[str] = mapped_column(String(16))
    done: Mapped[int] = mapped_column(BigInteger)
    total: Mapped[int] = mapped_column(BigInteger)
    detail: Mapped[str] = mapped_column(String(255))
    seen: Mapped[int] = mapped_column(BigInteger)


def find(session: Session, image: str) -> ImportRow | None:
    """Return what was said of an image, locked until the commit."""
    return session.get(ImportRow, image, with_for_update=True)


def index(session: Session, image: str | None = None) -> list[tuple[str, ImportRow | None, int]]:
    """Return all images, or the one, that hosts wait for or importers make, by name.

    Each comes with what an importer said of it last, and how many hosts wait.
    """
    wanted = (
        select(HoldRow.image, func.count())
        .outerjoin(ImageRow, ImageRow.name == HoldRow.image)
        .where(ImageRow.name.is_(None))
        .group_by(HoldRow.image)
    )
    said = select(ImportRow)
    if image is not None:
        wanted = wanted.where(HoldRow.image == image)
        said = said.where(ImportRow.image == image)
    waiting = dict(session.execute(wanted).tuples().all())
    rows = {row.image: row for row in session.scalars(said)}
    names = sorted(waiting.keys() | rows.keys())
    return [(name, rows.get(name), waiting.get(name, 0)) for name in names]


def forget(session: Session, image: str) -> None:
    """Forget what was said of an image."""
    session.execute(delete(ImportRow).where(ImportRow.image == image))


def prune(session: Session, before: int) -> None:
    """Forget what was said before that tick."""
    session.execute(delete(ImportRow).where(ImportRow.seen < before))
