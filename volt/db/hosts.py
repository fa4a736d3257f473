"""How hosts, Volt's clock and events are kept."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Text,
    bindparam,
    case,
    delete,
    exists,
    false,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import Session

from volt.db.any_of import among
from volt.db.lines import add, adding, lines, said, takes_lines
from volt.db.models import (
    AccusationRow,
    ClockRow,
    EventRow,
    HoldRow,
    HostRow,
    NodeRow,
    PlacementRow,
)
from volt.model.hosts import Report, Wiring
from volt.model.placements import State

UNKNOWN = "?"
"""What stands for disks of which it is not known whether they are those of a host's holds."""

_TABLE: Any = HostRow.__table__
_ENCODER = json.JSONEncoder(default=vars)
_NOW = select(ClockRow.tick).scalar_subquery()


def _new(name: ColumnElement[str], of_host: ColumnElement[str]) -> dict[str, Any]:
    """Return what a host's row has when nothing is known but its name."""
    return {
        "name": name,
        "seen": _NOW,
        "draining": false(),
        "overloaded": false(),
        "taking": false(),
        "demanding": false(),
        "needs": case((exists().where(HoldRow.host == of_host), UNKNOWN), else_=""),
        "report": literal("{}"),
    }


_WIRING = ("rack", "speed")
_SEEN = ("seen", *_WIRING)
_NEW = _new(bindparam("name"), bindparam("of_host"))
_NEW_WIRED = _NEW | {name: bindparam(name) for name in _WIRING}
_NAMED = lines({"name": Text, "rack": Text, "speed": BigInteger}).c
_NEW_AT_ONCE = _new(_NAMED.name, _NAMED.name)
_NEW_WIRED_AT_ONCE = _NEW_AT_ONCE | {name: _NAMED[name] for name in _WIRING}


def _inserting(new: Mapping[str, Any]) -> Any:
    return postgresql.insert(_TABLE).from_select(list(new), select(*new.values()))


def _updating(insert: Any) -> Any:
    """Return that insert, which changes rows that are there; not MariaDB's."""
    news = {name: insert.excluded[name] for name in _SEEN}
    return insert.on_conflict_do_update(index_elements=[_TABLE.c.name], set_=news)


def _updating_mariadb(insert: Any) -> Any:
    return insert.on_duplicate_key_update({name: insert.inserted[name] for name in _SEEN})


_ADD_AT_ONCE = _inserting(_NEW_AT_ONCE).on_conflict_do_nothing()
_ADD: Mapping[str, Any] = {
    "sqlite": sqlite.insert(_TABLE).values(_NEW).on_conflict_do_nothing(),
    "mysql": mysql.insert(_TABLE).values(_NEW).prefix_with("IGNORE"),
    "mariadb": mysql.insert(_TABLE).values(_NEW).prefix_with("IGNORE"),
}
_ARRIVE_AT_ONCE = _updating(_inserting(_NEW_WIRED_AT_ONCE))
_ARRIVE: Mapping[str, Any] = {
    "sqlite": _updating(sqlite.insert(_TABLE).values(_NEW_WIRED)),
    "mysql": _updating_mariadb(mysql.insert(_TABLE).values(_NEW_WIRED)),
    "mariadb": _updating_mariadb(mysql.insert(_TABLE).values(_NEW_WIRED)),
}
_HELD = ("name", "rack", "speed", "draining", "overloaded", "taking", "demanding", "needs")
_LOCKED = (
    select(*(_TABLE.c[name] for name in _HELD))
    .where(among(_TABLE.c.name, "names"))
    .order_by(_TABLE.c.name)
    .with_for_update()
)
_TAKING = update(_TABLE).where(among(_TABLE.c.name, "names")).values(taking=bindparam("now"))
_DEMANDING = update(_TABLE).where(among(_TABLE.c.name, "names")).values(demanding=bindparam("now"))
_NEEDING = (
    update(_TABLE).where(_TABLE.c.name == bindparam("in_name")).values(needs=bindparam("to_needs"))
)
_PLACES: Any = PlacementRow.__table__
_CONFIRMED = (
    update(_PLACES)
    .where(
        _PLACES.c.image == bindparam("in_image"),
        _PLACES.c.host == bindparam("in_host"),
        _PLACES.c.generation == bindparam("in_generation"),
        _PLACES.c.state != State.LEAVING,
    )
    .values(state=State.READY, confirmed=_PLACES.c.generation)
)
_WHOLE = (
    update(_PLACES)
    .where(_PLACES.c.image == bindparam("in_image"), _PLACES.c.host == bindparam("in_host"))
    .values(whole=bindparam("to_whole"), complete=bindparam("to_complete"))
)
_NODES: Any = NodeRow.__table__
_SETTLED = (
    update(_NODES)
    .where(
        _NODES.c.image == bindparam("in_image"),
        _NODES.c.host == bindparam("in_host"),
        _NODES.c.stripe.in_(bindparam("stripes", expanding=True)),
        select(_PLACES.c.host)
        .where(
            _PLACES.c.image == _NODES.c.image,
            _PLACES.c.host == _NODES.c.host,
            _PLACES.c.generation == bindparam("in_generation"),
        )
        .exists(),
    )
    .values(moved=0)
)
_ROOTS = (
    update(_NODES)
    .where(_NODES.c.image == bindparam("in_image"), _NODES.c.host == bindparam("in_host"))
    .values(whole=bindparam("to_whole"))
)
_HEARD = (
    update(_TABLE)
    .where(_TABLE.c.name == bindparam("in_name"))
    .values(seen=_NOW, overloaded=bindparam("to_overloaded"), report=bindparam("to_report"))
)
_SAID = lines({"name": Text, "overloaded": Boolean, "report": Text})
_HEARD_AT_ONCE = (
    update(_TABLE)
    # Without the names PostgreSQL would read all hosts to find these.
    .where(_TABLE.c.name == _SAID.c.name, among(_TABLE.c.name, "names"))
    .values(seen=_NOW, overloaded=_SAID.c.overloaded, report=_SAID.c.report)
)


NOTE_AT_ONCE = adding(EventRow.__table__, ("at", "kind", "detail", "image", "host"), "events")
"""What keeps events, beside other changes of one statement."""


def tick(session: Session) -> int:
    """Return the present time of Volt's clock."""
    return session.scalars(select(ClockRow.tick)).one()


@dataclass(frozen=True)
class Held:
    """A host whose row is locked until the commit."""

    name: str
    rack: str | None
    speed: int | None
    draining: bool
    overloaded: bool
    taking: bool
    demanding: bool
    needs: str

    @property
    def feeds(self) -> bool:
        """Whether it may be given children."""
        return not (self.draining or self.overloaded)

    @property
    def wiring(self) -> Wiring:
        """How it is connected."""
        return Wiring(self.rack, self.speed)


def hold(session: Session, names: Iterable[str]) -> dict[str, Held]:
    """Lock these hosts' rows, which are made where missing; return them by name."""
    wanted = sorted(set(names))
    session.flush()
    held = _lock(session, wanted)
    missing = [name for name in wanted if name not in held]
    if missing:
        _add(session, missing)
        held |= _lock(session, missing)
    return held


def traffic(session: Session, image: str) -> dict[str, float]:
    """Return what the links of an image's hosts carry, in bytes/s, as they said last."""
    rows = session.execute(
        select(HostRow.name, HostRow.report)
        .join(PlacementRow, PlacementRow.host == HostRow.name)
        .where(PlacementRow.image == image)
    )
    reports = {name: json.loads(report) for name, report in rows}
    return {
        name: float(report["received_rate"] + report["sent_rate"])
        for name, report in reports.items()
        if report
    }


def loads(session: Session) -> list[float]:
    """Return what the hosts of each rack receive or send, whichever is more, in bytes/s.

    As they said last; those of unknown racks are left out.
    """
    received, sent = Counter[str | None](), Counter[str | None]()
    rows = session.execute(select(HostRow.rack, HostRow.report).where(HostRow.rack.is_not(None)))
    for rack, stored in rows:
        report = json.loads(stored)
        received[rack] += report.get("received_rate", 0)
        sent[rack] += report.get("sent_rate", 0)
    return [float(max(received[rack], sent[rack])) for rack in received]


def _lock(session: Session, names: Collection[str]) -> dict[str, Held]:
    rows = session.connection().execute(_LOCKED, {"names": names})
    return {row.name: Held(*row) for row in rows}


def arrive(session: Session, wirings: Mapping[str, Wiring]) -> None:
    """Note that these hosts were heard of just now, and how they are connected.

    Their rows are locked then, and made where missing.
    """
    if not wirings:
        return
    rows = [
        {"name": name, "of_host": name, "rack": wirings[name].rack, "speed": wirings[name].speed}
        for name in sorted(wirings)
    ]
    connection = session.connection()
    if takes_lines(connection):
        connection.execute(_ARRIVE_AT_ONCE, said(rows))
    else:
        connection.execute(_ARRIVE[connection.dialect.name], rows)


def heard(session: Session, reports: Mapping[str, Report]) -> None:
    """Store what these hosts, whose rows are held, said just now."""
    connection = session.connection()
    if takes_lines(connection):
        rows = [
            {"name": name, "overloaded": report.overloaded, "report": report}
            for name, report in reports.items()
        ]
        connection.execute(_HEARD_AT_ONCE, {"names": sorted(reports)} | said(rows))
    else:
        rows = [
            {
                "in_name": name,
                "to_overloaded": report.overloaded,
                "to_report": _ENCODER.encode(report),
            }
            for name, report in sorted(reports.items())
        ]
        connection.execute(_HEARD, rows)


def take(session: Session, names: Collection[str], taking: bool) -> None:
    """Note whether these hosts, whose rows are held, have shares of caps."""
    if names:
        session.connection().execute(_TAKING, {"names": sorted(names), "now": taking})


def demand(session: Session, names: Collection[str], demanding: bool) -> None:
    """Note whether VMs of these hosts, whose rows are held, wait for what they read."""
    if names:
        session.connection().execute(_DEMANDING, {"names": sorted(names), "now": demanding})


def need(session: Session, needs: Mapping[str, str]) -> None:
    """Note what stands for the disks of these hosts, whose rows are held."""
    rows = [{"in_name": name, "to_needs": one} for name, one in sorted(needs.items())]
    session.connection().execute(_NEEDING, rows)


def note(
    session: Session,
    kind: str,
    hosts: Collection[str | None],
    image: str | None = None,
    detail: str = "",
) -> None:
    """Keep an event for each of the hosts."""
    _note(session, kind, [(image, host) for host in hosts], detail)


def note_joins(session: Session, joins: Collection[tuple[str, str]]) -> None:
    """Keep an event for each of these images and hosts."""
    _note(session, "join", joins, "")


def joins(about: Collection[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the lines that ``NOTE_AT_ONCE`` makes such events of."""
    return _events("join", about, "")


def _note(
    session: Session, kind: str, about: Collection[tuple[str | None, str | None]], detail: str
) -> None:
    add(session.connection(), EventRow.__table__, _events(kind, about, detail))


def _events(
    kind: str, about: Iterable[tuple[str | None, str | None]], detail: str
) -> list[dict[str, Any]]:
    said = {"at": datetime.now(UTC), "kind": kind, "detail": detail}
    return [said | {"image": image, "host": host} for image, host in about]


def silent_of(session: Session, names: Collection[str], before: int | None) -> list[str]:
    """Return those of the hosts that were last seen before that tick (None: all), locked."""
    query = select(HostRow.name).where(HostRow.name.in_(sorted(names)))
    if before is not None:
        query = query.where(HostRow.seen < before)
    return list(session.scalars(query.order_by(HostRow.name).with_for_update()))


def confirm(session: Session, used: Iterable[tuple[str, str, int]]) -> None:
    """Note which hosts read as their placements say: image, host and generation of each.

    Nothing happens where the placement is another by now.
    """
    rows = [
        {"in_image": image, "in_host": host, "in_generation": generation}
        for image, host, generation in sorted(used)
    ]
    session.connection().execute(_CONFIRMED, rows)


def settle(
    session: Session, image: str, host: str, generation: int, stripes: Collection[int]
) -> None:
    """Note in which stripes a host reads as its placement of that generation says.

    Nothing happens if the placement is another by now.
    """
    about = {"in_image": image, "in_host": host, "in_generation": generation}
    session.connection().execute(_SETTLED, about | {"stripes": sorted(stripes)})


@dataclass(frozen=True, order=True)
class Had:
    """Whether a host has all of an image, of which stripes it has all, and if the former is new.

    ``complete`` has a bit for each such stripe, the lowest for stripe 0.
    """

    image: str
    host: str
    whole: bool
    complete: int
    is_new: bool


def have(session: Session, said: Iterable[Had]) -> None:
    """Note which hosts have all of an image, or not any more."""
    rows = [
        {
            "in_image": one.image,
            "in_host": one.host,
            "to_whole": one.whole,
            "to_complete": one.complete,
        }
        for one in sorted(said)
    ]
    session.connection().execute(_WHOLE, rows)
    session.connection().execute(
        _ROOTS, [{name: row[name] for name in ("in_image", "in_host", "to_whole")} for row in rows]
    )


def accuse(session: Session, host: str, reporter: str, memory: int) -> int:
    """Keep who says that this host, whose row is held, sent wrong bytes.

    Returns how many have said so in the last ticks.
    """
    now = tick(session)
    session.merge(AccusationRow(host=host, reporter=reporter, tick=now))
    session.flush()
    of_late = AccusationRow.host == host, AccusationRow.tick >= now - memory
    return session.scalars(select(func.count()).select_from(AccusationRow).where(*of_late)).one()


def acquit(session: Session, names: Collection[str]) -> None:
    """Drop what was said against these hosts."""
    session.execute(delete(AccusationRow).where(AccusationRow.host.in_(sorted(names))))


def forget(session: Session, names: Collection[str]) -> None:
    """Delete these hosts' rows."""
    acquit(session, names)
    session.execute(delete(HostRow).where(HostRow.name.in_(sorted(names))))


def _add(session: Session, names: Collection[str]) -> None:
    """Insert rows unless somebody else does at the same moment."""
    connection = session.connection()
    if takes_lines(connection):
        connection.execute(_ADD_AT_ONCE, said([{"name": name} for name in sorted(names)]))
    else:
        rows = [{"name": name, "of_host": name} for name in names]
        connection.execute(_ADD[connection.dialect.name], rows)
