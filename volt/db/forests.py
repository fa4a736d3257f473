"""Which rows of an image's trees a change reads, and which it rewrites."""

from collections.abc import Collection, Iterable
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
from volt.placement.topology import Census, Forest, Node, Rules, Shape

# Statements are made once: making one anew takes longer than running it.
_TABLE: Any = NodeRow.__table__
_PLACEMENTS: Any = PlacementRow.__table__
_NODE = tuple(
    _TABLE.c[name]
    for name in (
        "stripe", "host", "rack", "parent", "level", "inner", "fed", "strangers", "accepting",
    )
)  # fmt: skip
_IN_IMAGE = _TABLE.c.image == bindparam("image")
_IN_TREES = _TABLE.c.stripe.in_(bindparam("stripes", expanding=True))
_WHOLE = select(*_NODE).where(_IN_IMAGE)
_NAMED = _WHOLE.where(among(_TABLE.c.host, "hosts"))
_CHILDREN = _WHOLE.where(_IN_TREES, among(_TABLE.c.parent, "hosts"))
_NEAR = union_all(_NAMED, _CHILDREN)
_KEY = (
    _TABLE.c.image == bindparam("in_image"),
    _TABLE.c.stripe == bindparam("in_stripe"),
    _TABLE.c.host == bindparam("in_host"),
)
_COUNTS = ("level", "inner", "fed", "strangers", "accepting", "open")
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
_RENEW = (
    update(_PLACEMENTS)
    .where(_PLACEMENTS.c.image == bindparam("in_image"), among(_PLACEMENTS.c.host, "hosts"))
    .values(generation=bindparam("to_generation"))
)


def rules(image: ImageRow) -> Rules:
    """Return what holds for the image's trees."""
    return Rules(Shape(image.shape), image.stripes, image.fanout, image.foreign_children)


def whole(session: Session, image: ImageRow) -> Forest:
    """Return the forest of all hosts that hold a place in it."""
    forest = _empty(image)
    _take_in(forest, session.connection().execute(_WHOLE, {"image": image.name}))
    return forest


def part(
    session: Session,
    image: ImageRow,
    hosts: Collection[str],
    racks: Collection[str],
    joins: int,
    others: int,
) -> Forest:
    """Return what decides about so many joins and other changes; see ``Forest.part``."""
    forest, connection = _empty(image), session.connection()
    reach = forest.rules.reach(joins, others, forest.census)
    asked = {"image": image.name, "leaves": reach.leaves, "rooms": reach.rooms}
    asked |= {f"rack{number}": rack for number, rack in enumerate(sorted(racks))}
    nearest = _candidates(image.stripes, len(racks))
    found = connection.execute(nearest, asked | {"lowest": reach.lowest}).all()
    _take_in(forest, found)
    trees = {"image": image.name, "stripes": list(range(image.stripes))}
    named = {*hosts, *(row.host for row in found if row.with_children)}
    if named:
        _take_in(forest, connection.execute(_NEAR, trees | {"hosts": sorted(named)}))
    missing = _missing_parents(forest)
    if missing:
        above = sorted({host for _, host in missing})
        rows = connection.execute(_NAMED, {"image": image.name, "hosts": above})
        _take_in(forest, (row for row in rows if (row.stripe, row.host) in missing))
    return forest


def save(session: Session, image: ImageRow, forest: Forest) -> set[str]:
    """Write what a change of the forest changed; return whose parent or standby it was.

    The rows of the hosts that left are gone already, those of placed hosts are there.
    """
    image.inner = [tree.inner for tree in forest.census]
    image.at_source = [tree.at_source for tree in forest.census]
    session.flush()
    told: set[str] = set()
    new: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    feeding: list[dict[str, Any]] = []
    for stripe in range(image.stripes):
        moved = forest.moved(stripe)
        told |= moved
        for node in forest.dirty(stripe):
            key = {"in_image": image.name, "in_stripe": stripe, "in_host": node.host}
            if not forest.is_stored(node.host, stripe):
                new.append(_row(image, forest, stripe, node))
                continue
            feed = key | {"to_parent": None, "to_standby": None}
            if node.host in moved:
                edge = forest.edge(node.host, stripe)
                feed |= {"to_parent": edge.parent, "to_standby": edge.standby}
                if node.fed:
                    feeding.append(feed)
            changed.append(feed | _counts(forest.rules, node) | {"moved": node.host in moved})
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


def _empty(image: ImageRow) -> Forest:
    counts = zip(image.inner, image.at_source, strict=True)
    return Forest(rules(image), [Census(inner, fed) for inner, fed in counts])


def _take_in(forest: Forest, rows: Iterable[Any]) -> None:
    for row in rows:
        stripe, *node = row[: len(_NODE)]
        forest.restore(stripe, Node(*node))


@cache
def _candidates(stripes: int, racks: int) -> CompoundSelect[Any]:
    """Return the query of those among whom a change chooses; see ``Forest.part``."""
    here = _TABLE.c
    nearest, lowest = (here.level, here.host), (here.level.desc(), here.host.desc())
    leaf, inner, room = here.inner == false(), here.inner == true(), here.open == true()
    parts = []
    for stripe in range(stripes):
        tree = _IN_IMAGE, here.stripe == stripe
        parts += [
            _first("leaves", nearest, *tree, leaf),
            _first("rooms", nearest, *tree, room),
            _first("lowest", lowest, *tree, inner, with_children=True),
        ]
        for number in range(racks):
            native = (*tree, here.rack == bindparam(f"rack{number}"))
            hosting = inner, here.strangers > 0
            parts += [
                _first("rooms", nearest, *native, room),
                _first("leaves", nearest, *native, *hosting, with_children=True),
            ]
    return union_all(*parts)


def _first(count: str, order: Any, *where: Any, with_children: bool = False) -> Select[Any]:
    query = select(*_NODE, literal(with_children).label("with_children"))
    return select(query.where(*where).order_by(*order).limit(bindparam(count)).subquery())


def _missing_parents(forest: Forest) -> set[tuple[int, str]]:
    missing = set()
    for stripe in range(forest.rules.stripes):
        here = {node.host for node in forest.nodes(stripe)}
        parents = {node.parent for node in forest.nodes(stripe)} - here - {None}
        missing |= {(stripe, parent) for parent in parents if parent is not None}
    return missing


def _row(image: ImageRow, forest: Forest, stripe: int, node: Node) -> dict[str, Any]:
    edge = forest.edge(node.host, stripe)
    counts = {name.removeprefix("to_"): one for name, one in _counts(forest.rules, node).items()}
    return counts | {
        "image": image.name,
        "stripe": stripe,
        "host": node.host,
        "rack": node.rack,
        "parent": edge.parent,
        "standby": edge.standby,
    }


def _counts(rules: Rules, node: Node) -> dict[str, Any]:
    return {
        "to_level": node.level,
        "to_inner": node.inner,
        "to_fed": node.fed,
        "to_strangers": node.foreign,
        "to_accepting": node.accepting,
        "to_open": node.has_room(rules.fanout),
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
