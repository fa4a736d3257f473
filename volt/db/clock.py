"""The row of Volt's clock: who counts its ticks, and how many there were."""

from dataclasses import dataclass

from sqlalchemy import Engine, select, update
from sqlalchemy.orm import sessionmaker

from volt.db.engine import for_writing
from volt.db.models import ClockRow


@dataclass(frozen=True)
class Reading:
    """The worker that counts (empty: nobody) and the ticks so far."""

    holder: str
    tick: int


class ClockTable:
    """The clock as the database has it, one for all workers."""

    def __init__(self, engine: Engine) -> None:
        self._reading = sessionmaker(engine)
        self._writing = sessionmaker(for_writing(engine))

    def read(self) -> Reading:
        """Return what it shows now."""
        with self._reading.begin() as session:
            row = session.scalars(select(ClockRow)).one()
            return Reading(row.holder, row.tick)

    def move(self, seen: Reading, to: Reading) -> bool:
        """Set it from what was seen to something else; do nothing if it moved meanwhile."""
        with self._writing.begin() as session:
            moved = session.execute(
                update(ClockRow)
                .where(ClockRow.holder == seen.holder, ClockRow.tick == seen.tick)
                .values(holder=to.holder, tick=to.tick),
                execution_options={"synchronize_session": False},
            )
            return bool(moved.rowcount)  # type: ignore[attr-defined]
