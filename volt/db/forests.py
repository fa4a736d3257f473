"""How the places of an image's hosts lie in rows: what a change reads, and what it rewrites."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    ColumnElement,
    Integer,
    Text,
    Update,
    bindparam,
    case,
    delete,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from volt.db import hosts, reading
from volt.db.any_of import among
from volt.db.lines import add, adding, lines, said, takes_lines, together
from volt.db.models import ImageRow, NodeRow, PlacementRow
from volt.placement import shapes
from volt.placement.links import Node, Totals
from volt.placement.part import Change
from volt.placement.places import Places
from volt.placement.rules import Rules, Shape

# Statements are made once: making one anew takes longer than running it.
_TABLE: Any = NodeRow.__table__
_PLACEMENTS: Any = PlacementRow.__table__
_IMAGES: Any = ImageRow.__table__
_IN_IMAGE = _TABLE.c.image == bindparam("image")
_IN_TREES = _TABLE.c.stripe.in_(bindparam("stripes", expanding=True))
_KEY = (
    _TABLE.c.image == bindparam("in_image"),
    _TABLE.c.stripe == bindparam("in_stripe"),
    _TABLE.c.host == bindparam("in_host"),
)
_STANDBY_BELOW = (
    update(_TABLE)
    .where(*_KEY[:2], _TABLE.c.parent == bindparam("in_host"))
    .values(standby=bindparam("to_parent"))
)


def _changing(said: Callable[[str], ColumnElement[Any]]) -> Update:
    """Return the statement that gives a place what is said of it, and if it moved its parents."""
    is_there = (_TABLE.c[name] == said(f"in_{name}") for name in ("image", "stripe", "host"))
    kept = {
        name: case((said("moved"), said(f"to_{name}")), else_=_TABLE.c[name])
        for name in ("parent", "standby", "moved")
    }
    counts = ("level", "inner", "fed", "foreign", "accepting", "stray", "open")
    return (
        update(_TABLE).where(*is_there).values({name: said(f"to_{name}") for name in counts} | kept)
    )


def _bound(name: str) -> ColumnElement[Any]:
    return bindparam(name, type_=Boolean if name == "moved" else None)


_CHANGED = _changing(_bound)
_CHANGES = lines(
    {"in_image": Text, "in_stripe": Integer, "in_host": Text, "moved": Boolean}
    | {"to_parent": Text, "to_standby": Text, "to_moved": BigInteger}
    | {"to_level": Integer, "to_inner": Boolean}
    | {"to_fed": Integer, "to_foreign": Integer, "to_accepting": Boolean}
    | {"to_stray": Boolean, "to_open": Boolean},
    "changed",
).c
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
_NEWS = lines({"image": Text, "host": Text, "generation": BigInteger}, "news").c
_RENEW_AT_ONCE = (
    update(_PLACEMENTS)
    .where(_PLACEMENTS.c.image == _NEWS.image, _PLACEMENTS.c.host == _NEWS.host)
    .values(generation=_NEWS.generation)
)
_TOTALS = ("inner", "at_source", "generation")
_OF_IMAGES = lines(
    {"name": Text, "inner": JSON, "at_source": JSON, "generation": BigInteger}, "totals"
).c
_TOTALS_AT_ONCE = (
    update(_IMAGES)
    .where(_IMAGES.c.name == _OF_IMAGES.name)
    .values({name: _OF_IMAGES[name] for name in _TOTALS})
)
_SAVE_AT_ONCE = together(
    _TOTALS_AT_ONCE,
    adding(_TABLE, tuple(_TABLE.c.keys()), "new"),
    _changing(_CHANGES.__getitem__),
    _RENEW_AT_ONCE,
    hosts.NOTE_AT_ONCE,
)


def whole(session: Session, image: ImageRow) -> Places:
    """Return the places of all hosts."""
    places = _empty(image)
    for row in session.connection().execute(reading.WHOLE, {"image": image.name}):
        places.restore(*reading.place(row))
    return places


def part(session: Session, image: ImageRow, change: Change) -> Places:
    """Return what decides about a change."""
    return parts(session, {image: change})[image]


def parts(session: Session, changes: Mapping[ImageRow, Change]) -> dict[ImageRow, Places]:
    """Return what decides about changes, of each of these images."""
    found = {image: _empty(image) for image in changes}
    reading.take(
        session.connection(), {image: (found[image], change) for image, change in changes.items()}
    )
    return found


def save(
    session: Session,
    changed: Mapping[ImageRow, Places],
    joined: Collection[tuple[str, str]] = (),
) -> dict[ImageRow, set[str]]:
    """Write what changes of places changed, with an event for each image and host that ``joined``.

    Return whose parent or standby changed. Their placements get their images' present generations.
    The rows of the hosts that left are gone already, those of placed hosts are there.
    """
    for image, places in changed.items():
        image.inner = [one.inner for one in places.totals]
        image.at_source = [one.at_source for one in places.totals]
    written = _Written()
    for image, places in changed.items():
        for stripe in range(image.stripes):
            written.add(image, places, stripe)
        written.told[image] |= {host for _, host in _below(session, image, written.moved(image))}
    if takes_lines(session.connection()):
        _save_at_once(session, written, joined)
    else:
        _save_each(session, written, joined)
    if written.feeding:
        session.connection().execute(_STANDBY_BELOW, written.feeding)
    return written.told


def _save_at_once(
    session: Session, written: "_Written", joined: Collection[tuple[str, str]]
) -> None:
    images = written.told
    totals = [{name: getattr(image, name) for name in ("name", *_TOTALS)} for image in images]
    session.connection().execute(
        _SAVE_AT_ONCE,
        said(totals, "totals")
        | said(written.new, "new")
        | said(written.changed, "changed")
        | said(_news(written.told), "news")
        | said(hosts.joins(joined), "events"),
    )
    for image in images:  # else the session writes them too, by a statement for each
        for name in _TOTALS:
            set_committed_value(image, name, getattr(image, name))


def _save_each(session: Session, written: "_Written", joined: Collection[tuple[str, str]]) -> None:
    session.flush()
    connection = session.connection()
    add(connection, _TABLE, written.new)
    if written.changed:
        connection.execute(_CHANGED, written.changed)
    renew(session, written.told)
    hosts.note_joins(session, joined)


def remove(session: Session, image: str, gone: Collection[str]) -> None:
    """Delete the places of hosts that left, before ``save`` writes those of the others."""
    if gone:
        session.connection().execute(
            delete(_TABLE).where(_IN_IMAGE, among(_TABLE.c.host, "hosts")),
            {"image": image, "hosts": sorted(gone)},
        )


def renew(session: Session, told: Mapping[ImageRow, Collection[str]]) -> None:
    """Give these hosts' placements their images' present generations."""
    session.flush()
    connection = session.connection()
    if takes_lines(connection):
        if any(told.values()):
            connection.execute(_RENEW_AT_ONCE, said(_news(told), "news"))
        return
    for image, names in told.items():
        if names:
            values = {"in_image": image.name, "to_generation": image.generation}
            connection.execute(_RENEW, values | {"hosts": sorted(names)})


def _news(told: Mapping[ImageRow, Collection[str]]) -> list[dict[str, Any]]:
    return [
        {"image": image.name, "host": host, "generation": image.generation}
        for image, names in told.items()
        for host in sorted(names)
    ]


def readers(session: Session, image: ImageRow, host: str) -> set[str]:
    """Return whose parents or standbys in the trees include the host."""
    children = _below(session, image, {(stripe, host) for stripe in range(image.stripes)})
    grandchildren = _below(session, image, children)
    return {name for _, name in children | grandchildren}


def near_source(session: Session, image: str) -> set[str]:
    """Return whom the source feeds in the trees, or would."""
    rows = session.connection().execute(_NEAR_SOURCE, {"image": image})
    return set(rows.scalars())


def depths(session: Session, image: ImageRow, names: Collection[str]) -> dict[tuple[int, str], int]:
    """Return how far from the source hosts are, by stripe and host."""
    rows = session.connection().execute(_DEPTHS, {"image": image.name, "hosts": sorted(names)})
    return {(row.stripe, row.host): row.depth for row in rows}


class _Written:
    """The rows of places that changes of trees write, and whose parent or standby they change."""

    def __init__(self) -> None:
        self.new: list[dict[str, Any]] = []
        self.changed: list[dict[str, Any]] = []
        self.feeding: list[dict[str, Any]] = []
        """Hosts that have children and got another parent: the standby of these."""
        self.told: dict[ImageRow, set[str]] = defaultdict(set)

    def moved(self, image: ImageRow) -> set[tuple[int, str]]:
        """Return stripes and hosts that have children and got another parent."""
        return {
            (feed["in_stripe"], feed["in_host"])
            for feed in self.feeding
            if feed["in_image"] == image.name
        }

    def add(self, image: ImageRow, places: Places, stripe: int) -> None:
        """Take in what changed in a stripe."""
        moved = places.moved(stripe)
        self.told[image] |= moved
        for node in places.changed(stripe):
            if not places.is_stored(node.host, stripe):
                self.new.append(_row(image, places, stripe, node))
                continue
            key = {"in_image": image.name, "in_stripe": stripe, "in_host": node.host}
            feed = key | {"to_parent": None, "to_standby": None, "to_moved": image.generation}
            if node.host in moved:
                edge = places.edge(node.host, stripe)
                feed |= {"to_parent": edge.parent, "to_standby": edge.standby}
                if node.fed:
                    self.feeding.append(feed)
            self.changed.append(feed | _counts(image, node) | {"moved": node.host in moved})


def _empty(image: ImageRow) -> Places:
    counts = zip(image.inner, image.at_source, strict=True)
    rules = Rules(Shape(image.shape), image.stripes, image.fanout, image.foreign_children)
    return shapes.empty(rules, [Totals(inner, fed) for inner, fed in counts])


def _row(image: ImageRow, places: Places, stripe: int, node: Node) -> dict[str, Any]:
    edge = places.edge(node.host, stripe)
    counts = {name.removeprefix("to_"): one for name, one in _counts(image, node).items()}
    return counts | {
        "image": image.name,
        "stripe": stripe,
        "host": node.host,
        "rack": node.rack,
        "speed": node.speed,
        "parent": edge.parent,
        "standby": edge.standby,
        "whole": node.whole,
        "moved": 0,
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
