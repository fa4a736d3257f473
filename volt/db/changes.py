"""For which hosts there is news since one last asked: of placements, or images to warm."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Connection,
    Engine,
    Text,
    bindparam,
    literal_column,
    select,
    true,
    union_all,
)
from sqlalchemy.orm import sessionmaker

from volt.db.lines import lines, said, takes_lines
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
            since = {
                image: _since(known.get(image, 0), generation)
                for image, generation in present.items()
                if generation != known.get(image, 0)
            }
            found = list(_changes(session.connection(), since))
        self._known = present
        return found


def _since(known: int, generation: int) -> int:
    """Return from where on all is new; an image of a lower generation is another one."""
    return known if known < generation else 0


def _told_since(image: ColumnElement[str], since: ColumnElement[int]) -> CompoundSelect[Any]:
    """Return the query of an image's changes after a generation."""
    return union_all(
        *(
            select(row.image, row.host, row.generation).where(
                row.image == image, row.generation > since
            )
            for row in (PlacementRow, WarmupRow)
        )
    )


_TOLD = _told_since(bindparam("image"), bindparam("since"))
_SAID = lines({"image": Text, "since": BigInteger})
_TOLD_OF_LINE = _told_since(
    literal_column("said.image", Text), literal_column("said.since", BigInteger)
).lateral()
_TOLD_OF_EACH = select(*_TOLD_OF_LINE.c).join_from(_SAID, _TOLD_OF_LINE, true())


def _changes(connection: Connection, since: Mapping[str, int]) -> Iterator[Change]:
    """Return the changes of each image after that generation."""
    asked = [{"image": image, "since": generation} for image, generation in since.items()]
    if takes_lines(connection) and asked:
        yield from starmap(Change, connection.execute(_TOLD_OF_EACH, said(asked)))
    else:
        for one in asked:
            yield from starmap(Change, connection.execute(_TOLD, one))
