"""How hosts, Volt's clock and events are kept."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import Session

from volt.db.models import ClockRow, EventRow, HostRow, PlacementRow
from volt.objects import Report, State

_INSERT: Mapping[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
_TABLE: Any = HostRow.__table__
_HEARD = (
    update(_TABLE)
    .where(_TABLE.c.name == bindparam("in_name"))
    .values(
        seen=bindparam("to_seen"),
        overloaded=bindparam("to_overloaded"),
        report=bindparam("to_report"),
    )
)


def tick(session: Session) -> int:
    """Return the present time of Volt's clock."""
    return session.scalars(select(ClockRow.tick)).one()


def hold(session: Session, names: Iterable[str]) -> dict[str, HostRow]:
    """Return these hosts' rows by name, made where missing, locked until the commit."""
    wanted = sorted(set(names))
    query = select(HostRow).where(HostRow.name.in_(wanted)).order_by(HostRow.name)
    query = query.with_for_update().execution_options(populate_existing=True)
    found = session.scalars(query).all()
    if len(found) < len(wanted):
        known = {row.name for row in found}
        _add(session, [name for name in wanted if name not in known])
        found = session.scalars(query).all()
    return {row.name: row for row in found}


def heard(session: Session, reports: Mapping[str, Report]) -> None:
    """Store what these hosts, whose rows are held, said just now."""
    now = tick(session)
    rows = [
        {
            "in_name": name,
            "to_seen": now,
            "to_overloaded": report.overloaded,
            "to_report": json.dumps(asdict(report)),
        }
        for name, report in sorted(reports.items())
    ]
    session.connection().execute(_HEARD, rows)


def note(
    session: Session,
    kind: str,
    hosts: Collection[str | None],
    image: str | None = None,
    detail: str = "",
) -> None:
    """Keep an event for each of the hosts."""
    about = {"at": datetime.now(UTC), "kind": kind, "image": image, "detail": detail}
    rows = [about | {"host": host} for host in hosts]
    if rows:
        session.execute(insert(EventRow), rows)


def silent_of(session: Session, names: Collection[str], before: int | None) -> list[str]:
    """Return those of the hosts that were last seen before that tick (None: all), locked."""
    query = select(HostRow.name).where(HostRow.name.in_(sorted(names)))
    if before is not None:
        query = query.where(HostRow.seen < before)
    return list(session.scalars(query.order_by(HostRow.name).with_for_update()))


def confirm(session: Session, image: str, host: str, generation: int) -> bool:
    """Note that the host reads as its placement of that generation says, if it is the last."""
    done = session.execute(
        update(PlacementRow)
        .where(
            PlacementRow.image == image,
            PlacementRow.host == host,
            PlacementRow.generation == generation,
            PlacementRow.state != State.LEAVING,
        )
        .values(state=State.READY, confirmed=generation),
        execution_options={"synchronize_session": False},
    )
    return bool(done.rowcount)  # type: ignore[attr-defined]


def forget(session: Session, names: Collection[str]) -> None:
    """Delete these hosts' rows."""
    session.execute(delete(HostRow).where(HostRow.name.in_(sorted(names))))


def _add(session: Session, names: Collection[str]) -> None:
    """Insert rows unless somebody else does at the same moment."""
    now = tick(session)
    rows = [
        {"name": name, "seen": now, "draining": False, "overloaded": False, "report": "{}"}
        for name in names
    ]
    dialect = session.get_bind().dialect.name
    if dialect in _INSERT:
        statement = _INSERT[dialect](_TABLE).on_conflict_do_nothing()
    else:
        statement = mysql.insert(_TABLE).prefix_with("IGNORE")
    session.connection().execute(statement, rows)
