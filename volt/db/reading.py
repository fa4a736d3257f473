"""What changes of trees read of the places that the database has.

PostgreSQL looks up what changes of several images want in one statement, as planning one takes
longer than running it. Other databases have no lateral joins: there it is one for each image.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    false,
    literal,
    literal_column,
    select,
    true,
    union_all,
)

from volt.db.any_of import among
from volt.db.lines import lines, said, takes_lines
from volt.db.models import ImageRow, NodeRow
from volt.placement.levels import INSIDE, ROOTS
from volt.placement.links import Node
from volt.placement.part import Ask, Change, Found, Kind, Pick, Place, read_all
from volt.placement.places import Places

# Statements are made once: making one anew takes longer than running it.
_TABLE: Any = NodeRow.__table__
_NODE = tuple(
    _TABLE.c[name]
    for name in (
        "stripe", "host", "rack", "parent", "level", "inner", "fed", "foreign", "accepting",
        "whole", "stray", "speed",
    )
)  # fmt: skip
_IN_IMAGE = _TABLE.c.image == bindparam("image")
_IN_TREES = _TABLE.c.stripe.in_(bindparam("stripes", expanding=True))
WHOLE = select(*_NODE).where(_IN_IMAGE)
"""All places of an image."""
_NAMED = WHOLE.where(among(_TABLE.c.host, "hosts"))
_CHILDREN = WHOLE.where(_IN_TREES, among(_TABLE.c.parent, "hosts"))
_CHILD = _TABLE.alias("child")
_PARENTS = (
    select(*_NODE)
    .join(
        _CHILD,
        (_CHILD.c.image == _TABLE.c.image)
        & (_CHILD.c.stripe == _TABLE.c.stripe)
        & (_CHILD.c.parent == _TABLE.c.host),
    )
    .where(_CHILD.c.image == bindparam("image"), among(_CHILD.c.host, "hosts"))
)
_AROUND = union_all(_NAMED, _CHILDREN, _PARENTS)
_PARENT = _TABLE.alias("parent")
_OF_NODE = tuple(_PARENT.c[column.name].label(f"parent_{column.name}") for column in _NODE)
_OF_PARENT = slice(len(_NODE) + 1, 2 * len(_NODE) + 1)

_Kinds = tuple[tuple[Kind, bool], ...]
"""Kinds of hosts, and whether they are those of a rack that is known."""

_Read = tuple[ImageRow, Found]


def take(connection: Connection, changes: Mapping[ImageRow, tuple[Places, Change]]) -> None:
    """Let the places of each image take in what decides about its change."""
    readings = {
        image: places.taking(_Stored(connection, image), change)
        for image, (places, change) in changes.items()
    }
    read_all(readings, partial(_answer, connection))


def place(row: Any) -> Place:
    """Return the place that a row of ``WHOLE`` has."""
    stripe, *node = row[: len(_NODE)]
    return stripe, Node(*node)


class _Stored:
    """The places of an image as the database has them: ``volt.placement.part.Stored``."""

    def __init__(self, connection: Connection, image: ImageRow) -> None:
        self._connection = connection
        self._image = image

    def read(self, ask: Ask) -> Iterable[Found]:
        """Return what is asked for."""
        return _answer(self._connection, {self._image: ask})[self._image]


def _answer(connection: Connection, asks: Mapping[ImageRow, Ask]) -> dict[ImageRow, list[Found]]:
    together = takes_lines(connection)
    picked = _picked_together if together else _picked
    near = _near_together if together else _near
    found: dict[ImageRow, list[Found]] = {image: [] for image in asks}
    for image, one in chain(picked(connection, asks), near(connection, asks)):
        found[image].append(one)
    return found


def _wanted(asks: Mapping[ImageRow, Ask]) -> Iterator[tuple[ImageRow, str | None, list[Pick]]]:
    """Return picks by images and racks: a statement for many racks would be another each time."""
    for image, ask in asks.items():
        racks = sorted({pick.rack for pick in ask.picks if pick.rack is not None})
        first = racks[0] if racks else None
        if ask.picks:
            yield image, first, [pick for pick in ask.picks if pick.rack in (None, first)]
        for rack in racks[1:]:
            yield image, rack, [pick for pick in ask.picks if pick.rack == rack]


def _kinds(picks: Iterable[Pick]) -> _Kinds:
    return tuple((pick.kind, pick.rack is not None) for pick in picks)


def _counts(picks: Iterable[Pick]) -> dict[str, int]:
    return {
        name: value
        for number, pick in enumerate(picks)
        for name, value in ((f"count{number}", pick.count), (f"speed{number}", pick.speed))
    }


def _picked(connection: Connection, asks: Mapping[ImageRow, Ask]) -> Iterator[_Read]:
    for image, rack, picks in _wanted(asks):
        asked = {"image": image.name, **_counts(picks)} | ({} if rack is None else {"rack": rack})
        for row in connection.execute(_picking(_kinds(picks), image.stripes), asked):
            yield from _with_parent(image, row, picks)


def _near(connection: Connection, asks: Mapping[ImageRow, Ask]) -> Iterator[_Read]:
    for image, ask in asks.items():
        for query, hosts in (_AROUND, ask.around), (_NAMED, ask.of):
            if hosts:
                asked: dict[str, Any] = {"image": image.name, "hosts": sorted(hosts)}
                if query is _AROUND:
                    asked["stripes"] = list(range(image.stripes))
                for row in connection.execute(query, asked):
                    yield image, (place(row), None)


def _picked_together(connection: Connection, asks: Mapping[ImageRow, Ask]) -> Iterator[_Read]:
    alike: dict[_Kinds, list[tuple[ImageRow, str | None, list[Pick]]]] = defaultdict(list)
    for image, rack, picks in _wanted(asks):
        alike[_kinds(picks)].append((image, rack, picks))
    for kinds, wanted in alike.items():
        rows = [
            {"number": number, "image": image.name, "stripe": stripe, "rack": rack} | _counts(picks)
            for number, (image, rack, picks) in enumerate(wanted)
            for stripe in range(image.stripes)
        ]
        for row in connection.execute(_picking_together(kinds), said(rows)):
            image, _, picks = wanted[row.number]
            yield from _with_parent(image, row, picks)


def _with_parent(image: ImageRow, row: Any, picks: Sequence[Pick]) -> Iterator[_Read]:
    """Return the host of a row, and who feeds it."""
    yield image, (place(row), picks[row.pick].kind)
    if row.parent_host is not None:
        yield image, (place(row[_OF_PARENT]), None)


def _near_together(connection: Connection, asks: Mapping[ImageRow, Ask]) -> Iterator[_Read]:
    images = list(asks)
    rows = [
        {"number": number, "image": image.name, "stripe": stripe, "host": host, "around": around}
        for number, image in enumerate(images)
        for around, hosts in ((True, asks[image].around), (False, asks[image].of))
        for host in sorted(hosts)
        for stripe in range(image.stripes)
    ]
    if rows:
        for row in connection.execute(_NEAR_TOGETHER, said(rows)):
            yield images[row.number], (place(row), None)


@cache
def _picking(kinds: _Kinds, stripes: int) -> Select[Any]:
    """Return the query of so many hosts of each kind, of a rack that is known or not."""
    found = union_all(
        *(
            _first(kind, is_known, number, bindparam, literal(stripe))
            for stripe in range(stripes)
            for number, (kind, is_known) in enumerate(kinds)
        )
    ).subquery("found")
    of_image = _PARENT.c.image == bindparam("image")
    return select(*found.c, *_OF_NODE).outerjoin_from(found, _PARENT, of_image & _feeds(found))


@cache
def _picking_together(kinds: _Kinds) -> Select[Any]:
    """Return the query of the same in several images and stripes."""
    counts = (f"{name}{number}" for number in range(len(kinds)) for name in ("count", "speed"))
    table, found = _together(
        union_all(
            *(
                _first(kind, is_known, number, _said, _said("stripe"))
                for number, (kind, is_known) in enumerate(kinds)
            )
        ),
        "rack",
        *counts,
    )
    of_image = _PARENT.c.image == table.c.image
    # The limit has it looked up row by row.
    parent = select(*_OF_NODE).where(of_image & _feeds(found)).limit(1).lateral()
    return (
        select(*found.c, *parent.c, table.c.number)
        .join_from(table, found, true())
        .outerjoin(parent, true())
    )


def _feeds(found: FromClause) -> ColumnElement[bool]:
    return and_(_PARENT.c.stripe == found.c.stripe, _PARENT.c.host == found.c.parent)


def _said(name: str) -> ColumnElement[Any]:
    """Return what the lines of the statement say under that name."""
    if name in ("image", "host", "rack"):
        return literal_column(f"said.{name}", Text)
    if name == "around":
        return literal_column(f"said.{name}", Boolean)
    return literal_column(f"said.{name}", BigInteger if name.startswith("speed") else Integer)


def _together(query: Any, *names: str) -> tuple[FromClause, FromClause]:
    """Return lines of these columns with numbers, and what a query gives for each."""
    of_line = ("number", "image", "stripe", *names)
    return lines({name: _said(name).type for name in of_line}), query.lateral("found")


_THERE = _TABLE.c.image == _said("image"), _TABLE.c.stripe == _said("stripe")
_CHILD_THERE = (
    _CHILD.c.image == _said("image"),
    _CHILD.c.stripe == _said("stripe"),
    _CHILD.c.host == _said("host"),
)
_PARENT_THERE = select(_CHILD.c.parent).where(*_CHILD_THERE).scalar_subquery()
# A union is looked up line by line. Of a plain select PostgreSQL makes a join, and may read all
# places for it.
_LINES, _FOUND = _together(
    union_all(
        select(*_NODE).where(*_THERE, _TABLE.c.host == _said("host")),
        select(*_NODE).where(_said("around"), *_THERE, _TABLE.c.parent == _said("host")),
        select(*_NODE).where(_said("around"), *_THERE, _TABLE.c.host == _PARENT_THERE),
    ),
    "host",
    "around",
)
_NEAR_TOGETHER = select(*_FOUND.c, _LINES.c.number).join_from(_LINES, _FOUND, true())


def _first(
    kind: Kind,
    is_known: bool,
    number: int,
    told: Callable[[str], ColumnElement[Any]],
    stripe: ColumnElement[int],
) -> Select[Any]:
    here = _TABLE.c
    where = [here.image == told("image"), here.stripe == stripe]
    if kind.of_rack:
        where.append(here.rack == told("rack") if is_known else here.rack.is_(None))
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
    if kind.fast:
        where.append(here.speed >= told(f"speed{number}"))
    if kind.mixed:
        where.append(here.foreign > 0)
    order = (here.level, here.host) if not kind.lowest else (here.level.desc(), here.host.desc())
    query = select(*_NODE, literal(number).label("pick")).where(*where).order_by(*order)
    # SQLite takes no limit there but in brackets
    return select(query.limit(told(f"count{number}")).subquery())
