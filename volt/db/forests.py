"""Which rows of an image's trees a change reads, and which it rewrites."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from sqlalchemy import (
    Select,
    bindparam,
    delete,
    false,
    insert,
    literal,
    or_,
    select,
    true,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.orm import Session, aliased

from volt.db.models import ImageRow, NodeRow, PlacementRow
from volt.topology import Census, Forest, Node, Reach, Rules, Shape

_NODE = (
    NodeRow.stripe,
    NodeRow.host,
    NodeRow.rack,
    NodeRow.parent,
    NodeRow.level,
    NodeRow.inner,
    NodeRow.fed,
    NodeRow.strangers,
    NodeRow.accepting,
)
_TABLE: Any = NodeRow.__table__
_KEY = (
    _TABLE.c.image == bindparam("in_image"),
    _TABLE.c.stripe == bindparam("in_stripe"),
    _TABLE.c.host == bindparam("in_host"),
)
_COUNTS = (
    update(_TABLE)
    .where(*_KEY)
    .values({name: bindparam(f"to_{name}") for name in ("level", "inner", "fed", "strangers")})
    .values(accepting=bindparam("to_accepting"), open=bindparam("to_open"))
)
_PLACE = _COUNTS.values(parent=bindparam("to_parent"), standby=bindparam("to_standby"))
_STANDBY_BELOW = (
    update(_TABLE)
    .where(*_KEY[:2], _TABLE.c.parent == bindparam("in_host"))
    .values(standby=bindparam("to_parent"))
)


def rules(image: ImageRow) -> Rules:
    """Return what holds for the image's trees."""
    return Rules(Shape(image.shape), image.stripes, image.fanout, image.foreign_children)


def whole(session: Session, image: ImageRow) -> Forest:
    """Return the forest of all hosts that hold a place in it."""
    forest = _empty(image)
    _take_in(forest, session.execute(select(*_NODE).where(NodeRow.image == image.name)))
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
    forest = _empty(image)
    reach = forest.rules.reach(joins, others, forest.census)
    found = session.execute(union_all(*_candidates(image, racks, reach))).all()
    _take_in(forest, found)
    named = {*hosts, *(row.host for row in found if row.with_children)}
    here = select(*_NODE).where(
        NodeRow.image == image.name, NodeRow.stripe.in_(range(image.stripes))
    )
    if named:
        places, children = NodeRow.host.in_(named), NodeRow.parent.in_(named)
        _take_in(forest, session.execute(union_all(here.where(places), here.where(children))))
    missing = _missing_parents(forest)
    if missing:
        places = tuple_(NodeRow.stripe, NodeRow.host).in_(missing)
        hosts = {host for _, host in missing}
        _take_in(forest, session.execute(here.where(places, NodeRow.host.in_(hosts))))
    return forest


def save(session: Session, image: ImageRow, forest: Forest) -> set[str]:
    """Write what a change of the forest changed; return whose parent or standby it was.

    The rows of the hosts that left are gone already, those of placed hosts are there.
    """
    image.inner = [tree.inner for tree in forest.census]
    image.at_source = [tree.at_source for tree in forest.census]
    session.flush()
    new, counted, placed, feeding, told = [], [], [], [], set[str]()
    for stripe in range(image.stripes):
        moved = forest.moved(stripe)
        told |= moved
        for node in forest.dirty(stripe):
            key = {"in_image": image.name, "in_stripe": stripe, "in_host": node.host}
            if not forest.is_stored(node.host, stripe):
                new.append(_row(image, forest, stripe, node))
                continue
            counts = _counts(forest.rules, node)
            if node.host not in moved:
                counted.append(key | counts)
                continue
            edge = forest.edge(node.host, stripe)
            feed = key | {"to_parent": edge.parent, "to_standby": edge.standby}
            placed.append(feed | counts)
            if node.fed:
                feeding.append(feed)
    connection = session.connection()
    for statement, rows in (
        (insert(_TABLE), new),
        (_COUNTS, counted),
        (_PLACE, placed),
        (_STANDBY_BELOW, feeding),
    ):
        if rows:
            connection.execute(statement, rows)
    return told | _below(session, image, feeding)


def remove(session: Session, image: str, hosts: Collection[str]) -> None:
    """Delete the places of hosts that left, before ``save`` writes those of the others."""
    if hosts:
        session.execute(
            delete(NodeRow).where(NodeRow.image == image, NodeRow.host.in_(sorted(hosts)))
        )


def renew(session: Session, image: ImageRow, hosts: Collection[str]) -> None:
    """Give these hosts' placements the image's present generation."""
    if hosts:
        session.execute(
            update(PlacementRow)
            .where(PlacementRow.image == image.name, PlacementRow.host.in_(sorted(hosts)))
            .values(generation=image.generation)
        )


def readers(session: Session, image: ImageRow, host: str) -> set[str]:
    """Return whose parents or standbys in the trees include the host."""
    child, below = aliased(NodeRow), aliased(NodeRow)
    same_tree = (below.image == child.image) & (below.stripe == child.stripe)
    fed = select(child.host, below.host).outerjoin(below, same_tree & (below.parent == child.host))
    tree = child.image == image.name, child.stripe.in_(range(image.stripes))
    rows = session.execute(fed.where(*tree, child.parent == host))
    return {name for row in rows for name in row if name is not None}


def _empty(image: ImageRow) -> Forest:
    counts = zip(image.inner, image.at_source, strict=True)
    return Forest(rules(image), [Census(inner, fed) for inner, fed in counts])


def _take_in(forest: Forest, rows: Iterable[Any]) -> None:
    for row in rows:
        stripe, *node = row[: len(_NODE)]
        forest.restore(stripe, Node(*node))


def _candidates(image: ImageRow, racks: Collection[str], reach: Reach) -> Iterator[Select[Any]]:
    nearest, lowest = (NodeRow.level, NodeRow.host), (NodeRow.level.desc(), NodeRow.host.desc())
    leaf, inner, room = NodeRow.inner == false(), NodeRow.inner == true(), NodeRow.open == true()
    for stripe in range(image.stripes):
        tree = NodeRow.image == image.name, NodeRow.stripe == stripe
        yield _first(reach.leaves, nearest, *tree, leaf)
        yield _first(reach.rooms, nearest, *tree, room)
        yield _first(reach.lowest, lowest, *tree, inner, with_children=True)
        for rack in sorted(racks):
            native = NodeRow.rack == rack
            yield _first(reach.rooms, nearest, *tree, native, room)
            hosting = native, inner, NodeRow.strangers > 0
            yield _first(reach.leaves, nearest, *tree, *hosting, with_children=True)


def _first(count: int, order: Any, *where: Any, with_children: bool = False) -> Select[Any]:
    query = select(*_NODE, literal(with_children).label("with_children"))
    return select(query.where(*where).order_by(*order).limit(count).subquery())


def _missing_parents(forest: Forest) -> list[tuple[int, str]]:
    missing = set()
    for stripe in range(forest.rules.stripes):
        here = {node.host for node in forest.nodes(stripe)}
        parents = {node.parent for node in forest.nodes(stripe)} - here - {None}
        missing |= {(stripe, parent) for parent in parents if parent is not None}
    return sorted(missing)


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


def _below(session: Session, image: ImageRow, feeding: Collection[dict[str, Any]]) -> set[str]:
    """Return the children of hosts that moved: their standby is another now."""
    if not feeding:
        return set()
    places = [
        (NodeRow.stripe == key["in_stripe"]) & (NodeRow.parent == key["in_host"]) for key in feeding
    ]
    return set(
        session.scalars(select(NodeRow.host).where(NodeRow.image == image.name, or_(*places)))
    )
