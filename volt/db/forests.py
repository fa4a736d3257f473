"""How the places of an image's hosts lie in rows: what a change reads, and what it rewrites."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    Boolean,
    CompoundSelect,
    Select,
    bindparam,
    case,
    delete,
    false,
    func,
    insert,
    literal,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.orm import Session

from volt.db.any_of import among
from volt.db.models import ImageRow, NodeRow, PlacementRow
from volt.placement import shapes
from volt.placement.levels import INSIDE, ROOTS
from volt.placement.links import Node, Totals
from volt.placement.part import Change, Kind, Pick, Place
from volt.placement.places import Places
from volt.placement.rules import Rules, Shape

# Statements are made once: making one anew takes longer than running it.
_TABLE: Any = NodeRow.__table__
_PLACEMENTS: Any = PlacementRow.__table__
_NODE = tuple(
    _TABLE.c[name]
    for name in (
        "stripe", "host", "rack", "parent", "level", "inner", "fed", "foreign", "accepting",
        "whole", "stray",
    )
)  # fmt: skip
_IN_IMAGE = _TABLE.c.image == bindparam("image")
_IN_TREES = _TABLE.c.stripe.in_(bindparam("stripes", expanding=True))
_WHOLE = select(*_NODE).where(_IN_IMAGE)
_NAMED = _WHOLE.where(among(_TABLE.c.host, "hosts"))
_CHILDREN = _WHOLE.where(_IN_TREES, among(_TABLE.c.parent, "hosts"))
_AROUND = union_all(_NAMED, _CHILDREN)
_KEY = (
    _TABLE.c.image == bindparam("in_image"),
    _TABLE.c.stripe == bindparam("in_stripe"),
    _TABLE.c.host == bindparam("in_host"),
)
_COUNTS = ("level", "inner", "fed", "foreign", "accepting", "stray", "open")
_CHANGED = (
    update(_TABLE)
    .where(*_KEY)
    .values({name: bindparam(f"to_{name}") for name in _COUNTS})
    .values(
        {
            name: case(
                (bindparam("moved", type_=Boolean), bindparam(f"to_{name}")), else_=_TABLE.c[name]
            )
            for name in ("parent", "standby")
        }
    )
)
_STANDBY_BELOW = (
    update(_TABLE)
    .where(*_KEY[:2], _TABLE.c.parent == bindparam("in_host"))
    .values(standby=bindparam("to_parent"))
)
_BELOW = select(_TABLE.c.stripe, _TABLE.c.host, _TABLE.c.parent).where(
    _IN_IMAGE, _IN_TREES, among(_TABLE.c.parent, "hosts")
)
_NEAR_SOURCE = select(_TABLE.c.host).where(
    _IN_IMAGE, _TABLE.c.parent.is_(None) | _TABLE.c.standby.is_(None)
)
_UP = (
    select(_TABLE.c.stripe, _TABLE.c.host, _TABLE.c.parent, literal(1).label("depth"))
    .where(_IN_IMAGE, among(_TABLE.c.host, "hosts"))
    .cte(recursive=True)
)
_UP = _UP.union_all(
    select(_UP.c.stripe, _UP.c.host, _TABLE.c.parent, _UP.c.depth + 1).where(
        _IN_IMAGE, _TABLE.c.stripe == _UP.c.stripe, _TABLE.c.host == _UP.c.parent
    )
)
_DEPTHS = select(_UP.c.stripe, _UP.c.host, func.max(_UP.c.depth).label("depth")).group_by(
    _UP.c.stripe, _UP.c.host
)
_RENEW = (
    update(_PLACEMENTS)
    .where(_PLACEMENTS.c.image == bindparam("in_image"), among(_PLACEMENTS.c.host, "hosts"))
    .values(generation=bindparam("to_generation"))
)


def whole(session: Session, image: ImageRow) -> Places:
    """Return the places of all hosts."""
    places = _empty(image)
    for stripe, node in _places(session.connection().execute(_WHOLE, {"image": image.name})):
        places.restore(stripe, node)
    return places


def part(session: Session, image: ImageRow, change: Change) -> Places:
    """Return what decides about a change."""
    places = _empty(image)
    places.take(_Stored(session, image), change)
    return places


class _Stored:
    """The places of an image as the database has them: ``volt.placement.part.Stored``."""

    def __init__(self, session: Session, image: ImageRow) -> None:
        self._connection = session.connection()
        self._image = image

    def picked(self, picks: Sequence[Pick]) -> Iterator[tuple[Place, Kind]]:
        """Return those that are picked, in each stripe."""
        racks = sorted({pick.rack for pick in picks if pick.rack is not None})
        first = racks[0] if racks else None
        yield from self._picked(first, [pick for pick in picks if pick.rack in (None, first)])
        for rack in racks[1:]:
            yield from self._picked(rack, [pick for pick in picks if pick.rack == rack])

    def _picked(self, rack: str | None, picks: list[Pick]) -> Iterator[tuple[Place, Kind]]:
        """Return them for one rack: a statement for many would be another one each time."""
        kinds = tuple((pick.kind, pick.rack is not None) for pick in picks)
        asked: dict[str, Any] = {"image": self._image.name}
        if rack is not None:
            asked["rack"] = rack
        asked |= {f"count{number}": pick.count for number, pick in enumerate(picks)}
        for row in self._connection.execute(_picking(kinds, self._image.stripes), asked):
            yield _place(row), picks[row.pick].kind

    def of(self, hosts: Collection[str]) -> Iterator[Place]:
        """Return the places of these hosts, in all stripes."""
        asked = {"image": self._image.name, "hosts": sorted(hosts)}
        return _places(self._connection.execute(_NAMED, asked))

    def around(self, hosts: Collection[str]) -> Iterator[Place]:
        """Return the places of these hosts, in all stripes, and those of their children."""
        stripes = list(range(self._image.stripes))
        asked = {"image": self._image.name, "stripes": stripes, "hosts": sorted(hosts)}
        return _places(self._connection.execute(_AROUND, asked))


def save(session: Session, image: ImageRow, places: Places) -> set[str]:
    """Write what a change of the places changed; return whose parent or standby it was.

    The rows of the hosts that left are gone already, those of placed hosts are there.
    """
    image.inner = [one.inner for one in places.totals]
    image.at_source = [one.at_source for one in places.totals]
    session.flush()
    told: set[str] = set()
    new: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    feeding: list[dict[str, Any]] = []
    for stripe in range(image.stripes):
        moved = places.moved(stripe)
        told |= moved
        for node in places.changed(stripe):
            key = {"in_image": image.name, "in_stripe": stripe, "in_host": node.host}
            if not places.is_stored(node.host, stripe):
                new.append(_row(image, places, stripe, node))
                continue
            feed = key | {"to_parent": None, "to_standby": None}
            if node.host in moved:
                edge = places.edge(node.host, stripe)
                feed |= {"to_parent": edge.parent, "to_standby": edge.standby}
                if node.fed:
                    feeding.append(feed)
            changed.append(feed | _counts(image, node) | {"moved": node.host in moved})
    connection = session.connection()
    for statement, rows in (
        (insert(_TABLE), new),
        (_CHANGED, changed),
        (_STANDBY_BELOW, feeding),
    ):
        if rows:
            connection.execute(statement, rows)
    moved_above = {(feed["in_stripe"], feed["in_host"]) for feed in feeding}
    return told | {host for _, host in _below(session, image, moved_above)}


def remove(session: Session, image: str, hosts: Collection[str]) -> None:
    """Delete the places of hosts that left, before ``save`` writes those of the others."""
    if hosts:
        session.connection().execute(
            delete(_TABLE).where(_IN_IMAGE, among(_TABLE.c.host, "hosts")),
            {"image": image, "hosts": sorted(hosts)},
        )


def renew(session: Session, image: ImageRow, hosts: Collection[str]) -> None:
    """Give these hosts' placements the image's present generation."""
    if hosts:
        session.flush()
        values = {"in_image": image.name, "to_generation": image.generation}
        session.connection().execute(_RENEW, values | {"hosts": sorted(hosts)})


def readers(session: Session, image: ImageRow, host: str) -> set[str]:
    """Return whose parents or standbys in the trees include the host."""
    children = _below(session, image, {(stripe, host) for stripe in range(image.stripes)})
    grandchildren = _below(session, image, children)
    return {name for _, name in children | grandchildren}


def near_source(session: Session, image: str) -> set[str]:
    """Return whom the source feeds in the trees, or would."""
    rows = session.connection().execute(_NEAR_SOURCE, {"image": image})
    return set(rows.scalars())


def depths(session: Session, image: ImageRow, hosts: Collection[str]) -> dict[tuple[int, str], int]:
    """Return how far from the source hosts are, by stripe and host."""
    rows = session.connection().execute(_DEPTHS, {"image": image.name, "hosts": sorted(hosts)})
    return {(row.stripe, row.host): row.depth for row in rows}


def _empty(image: ImageRow) -> Places:
    counts = zip(image.inner, image.at_source, strict=True)
    rules = Rules(Shape(image.shape), image.stripes, image.fanout, image.foreign_children)
    return shapes.empty(rules, [Totals(inner, fed) for inner, fed in counts])


def _place(row: Any) -> Place:
    stripe, *node = row[: len(_NODE)]
    return stripe, Node(*node)


def _places(rows: Iterable[Any]) -> Iterator[Place]:
    return map(_place, rows)


@cache
def _picking(kinds: tuple[tuple[Kind, bool], ...], stripes: int) -> CompoundSelect[Any]:
    """Return the query of so many hosts of each kind, of a rack that is known or not."""
    return union_all(
        *(
            _first(kind, is_known, number, stripe)
            for stripe in range(stripes)
            for number, (kind, is_known) in enumerate(kinds)
        )
    )


def _first(kind: Kind, is_known: bool, number: int, stripe: int) -> Select[Any]:
    here = _TABLE.c
    where = [_IN_IMAGE, here.stripe == stripe]
    if kind.of_rack:
        where.append(here.rack == bindparam("rack") if is_known else here.rack.is_(None))
    if kind.inner is not None:
        where.append(here.inner == (true() if kind.inner else false()))
    if kind.stray is not None:
        where.append(here.stray == (true() if kind.stray else false()))
    if kind.entry:
        where.append(here.level < ROOTS)
    if kind.root:
        where.append(here.level.between(ROOTS, INSIDE))
    if kind.open:
        where.append(here.open == true())
    if kind.mixed:
        where.append(here.foreign > 0)
    order = (here.level, here.host) if not kind.lowest else (here.level.desc(), here.host.desc())
    query = select(*_NODE, literal(number).label("pick")).where(*where).order_by(*order)
    return select(query.limit(bindparam(f"count{number}")).subquery())


def _row(image: ImageRow, places: Places, stripe: int, node: Node) -> dict[str, Any]:
    edge = places.edge(node.host, stripe)
    counts = {name.removeprefix("to_"): one for name, one in _counts(image, node).items()}
    return counts | {
        "image": image.name,
        "stripe": stripe,
        "host": node.host,
        "rack": node.rack,
        "parent": edge.parent,
        "standby": edge.standby,
        "whole": node.whole,
    }


def _counts(image: ImageRow, node: Node) -> dict[str, Any]:
    return {
        "to_level": node.level,
        "to_inner": node.inner,
        "to_fed": node.fed,
        "to_foreign": node.foreign,
        "to_accepting": node.accepting,
        "to_stray": node.stray,
        "to_open": node.has_room(image.fanout),
    }


def _below(
    session: Session, image: ImageRow, parents: Collection[tuple[int, str]]
) -> set[tuple[int, str]]:
    """Return stripes and hosts that are fed by these hosts in these stripes."""
    if not parents:
        return set()
    names = sorted({host for _, host in parents})
    asked = {"image": image.name, "stripes": list(range(image.stripes)), "hosts": names}
    rows = session.connection().execute(_BELOW, asked)
    return {(row.stripe, row.host) for row in rows if (row.stripe, row.parent) in parents}
