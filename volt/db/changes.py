"""For which hosts there is news since one last asked: of placements, or images to warm."""

from dataclasses import dataclass

from sqlalchemy import Engine, select, union_all
from sqlalchemy.orm import Session, sessionmaker

from volt.db.models import ImageRow, PlacementRow
from volt.db.warmups import WarmupRow


@dataclass(frozen=True)
class Change:
    """A placement, or something to warm, that has a new generation."""

    image: str
    host: str
    generation: int


class Changes:
    """A place in the history of all images: it moves on with each question.

    A change may be told twice if it is committed during a question, but is never left out.
    """

    def __init__(self, engine: Engine) -> None:
        self._reading = sessionmaker(engine)
        self._known: dict[str, int] | None = None

    def following(self) -> list[Change]:
        """Return what changed since the last call; nothing at the first."""
        with self._reading.begin() as session:
            present = {
                name: generation
                for name, generation in session.execute(select(ImageRow.name, ImageRow.generation))
            }
            known = present if self._known is None else self._known
            found = [
                change
                for image, generation in present.items()
                if generation != known.get(image, 0)
                for change in _changes(session, image, known.get(image, 0), generation)
            ]
        self._known = present
        return found


def _changes(session: Session, image: str, known: int, generation: int) -> list[Change]:
    """Return the image's changes after a known generation; one of a lower is another image."""
    since = known if known < generation else 0
    told = (
        select(row.host, row.generation).where(row.image == image, row.generation > since)
        for row in (PlacementRow, WarmupRow)
    )
    return [
        Change(image, host, generation) for host, generation in session.execute(union_all(*told))
    ]
