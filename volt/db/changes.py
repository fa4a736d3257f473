"""Which placements changed since one last asked."""

from dataclasses import dataclass

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session, sessionmaker

from volt.db.models import ImageRow, PlacementRow


@dataclass(frozen=True)
class Change:
    """A placement that has a new generation."""

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
    rows = session.execute(
        select(PlacementRow.host, PlacementRow.generation).where(
            PlacementRow.image == image, PlacementRow.generation > since
        )
    )
    return [Change(image, host, generation) for host, generation in rows]
