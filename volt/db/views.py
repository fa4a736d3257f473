"""How rows become the objects that callers see."""

import json
import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Select, bindparam, false, func, select, true, union, union_all
from sqlalchemy.orm import Session

from volt.db import caps, copies, forests, hosts
from volt.db.any_of import among
from volt.db.models import WAITING, HoldRow, HostRow, ImageRow, NodeRow, PlacementRow
from volt.model.objects import (
    Candidate,
    CopyPolicy,
    Feed,
    Host,
    Hydration,
    Image,
    ImageReport,
    Layer,
    NewImage,
    Node,
    Peer,
    Placement,
    Profiled,
    Report,
    State,
    Tree,
    Trees,
)
from volt.placement.places import Places
from volt.placement.rules import Shape
from volt.transport import Portal, columns

# Statements are made once: making one anew takes longer than running it.
_NODES: Any = NodeRow.__table__
_PLACES: Any = PlacementRow.__table__


def _of(table: Any, *columns: str) -> Select[Any]:
    return select(*(table.c[name] for name in columns)).where(
        table.c.image == bindparam("image"), among(table.c.host, "hosts")
    )


_PLACED = (
    _of(_PLACES, "host", "state", "generation", "left", "told", "chosen")
    .add_columns(caps.applies(_PLACES).label("capped"))
    .where(_PLACES.c.generation != WAITING)
    .order_by(_PLACES.c.host)
)
_PAIRS = _of(_NODES, "host", "parent", "standby").order_by(_NODES.c.stripe)
_STANDING = ("host", "generation", "left", *columns.PORTAL)
_STANDINGS = _of(_PLACES, *_STANDING)
_WAITING = select(*(_PLACES.c[name] for name in _STANDING)).where(
    _PLACES.c.image == bindparam("image"), _PLACES.c.generation == WAITING
)
_STANDINGS_AND_WAITING = union(_STANDINGS, _WAITING)
_PORTAL = ("host", *columns.PORTAL)
_PORTALS = _of(_PLACES, *_PORTAL)
# SQLite takes no limit there but in brackets
_STANDING_BY = select(copies.standing_by(*_PORTAL).subquery()).add_columns(true().label("whole"))
_AND_STANDING_BY = union_all(_PORTALS.add_columns(false().label("whole")), _STANDING_BY)
_Key = tuple[str, str]
_Told = list[list[str | None]]


def without_secret(row: ImageRow) -> NewImage:
    """Return what a caller once said about the image, but for the source's secret."""
    shape = Shape(row.shape)
    return NewImage(
        row.name,
        row.size,
        shape,
        row.stripes,
        row.fanout,
        columns.portal(row),
        None,
        row.foreign_children,
        row.root_hash,
        row.salt,
        _layer(row),
    )


def host(row: HostRow, now: int) -> Host:
    """Return a host as of that tick."""
    content = json.loads(row.report)
    reports = {name: ImageReport.of(one) for name, one in content.pop("images", {}).items()}
    report = replace(Report(reports, **content), overloaded=row.overloaded)
    return Host(row.name, row.rack, row.draining, now - row.seen, report)


def images(
    session: Session, name: str | None = None, after: str = "", limit: int | None = None
) -> list[Image]:
    """Return the one image of that name, or up to ``limit`` after a name, by name."""
    count = select(func.count()).select_from(PlacementRow)
    count = count.where(PlacementRow.image == ImageRow.name)
    needing = select(func.count()).select_from(HoldRow).where(HoldRow.image == ImageRow.name)
    subqueries = (one.scalar_subquery() for one in (count, needing))
    query = select(ImageRow, *subqueries)
    query = query.order_by(ImageRow.name).limit(limit)
    query = query.where(ImageRow.name > after if name is None else ImageRow.name == name)
    rows = session.execute(query).all()
    kept = copies.count(session, {row.name: row.stripes for row, *_ in rows})
    return [
        Image(
            row.name,
            row.size,
            Shape(row.shape),
            row.stripes,
            row.fanout,
            row.foreign_children,
            columns.portal(row),
            number,
            held,
            row.generation,
            row.created_at,
            row.root_hash,
            row.salt,
            kept[row.name].whole,
            kept[row.name].stripes,
            row.home,
            _policy(row),
            _layer(row),
        )
        for row, number, held in rows
    ]


def children(session: Session, image: str) -> list[str]:
    """Return the names of the layers that lie on an image."""
    query = select(ImageRow.name).where(ImageRow.parent == image).order_by(ImageRow.name)
    return list(session.scalars(query))


def _layer(image: ImageRow) -> Layer | None:
    if image.parent is None:
        return None
    return Layer(image.parent, image.disk_size or 0, image.maker)


def _policy(image: ImageRow) -> CopyPolicy | None:
    after = image.hydrate_after
    if after is None:
        return None
    return CopyPolicy(after, image.hydrate_rate or 0, image.hydrate_copies)


def _hydration(image: ImageRow, chosen: bool) -> Hydration | None:
    """Return when a host copies all of an image."""
    how = _policy(image)
    if how is None or not (chosen or how.copies is None):
        return None
    return Hydration(how.after, how.rate)


def trees(session: Session, image: ImageRow) -> Trees:
    """Return all stripe trees of the image."""
    places = forests.whole(session, image)
    now = hosts.tick(session)
    rows = session.execute(
        select(PlacementRow.state, PlacementRow.whole, HostRow)
        .join(HostRow, HostRow.name == PlacementRow.host)
        .where(PlacementRow.image == image.name)
    )
    members = {row.name: (State(state), whole, host(row, now)) for state, whole, row in rows}
    drawn = tuple(
        Tree(
            stripe,
            tuple(
                _node(image.name, places, stripe, depth, *members[name])
                for name, depth in places.breadth_first(stripe)
            ),
        )
        for stripe in range(image.stripes)
    )
    shape = Shape(image.shape)
    return Trees(
        image.name, image.size, shape, image.stripes, image.fanout, image.generation, drawn
    )


def _node(
    image: str,
    places: Places,
    stripe: int,
    depth: int,
    state: State,
    whole: bool,
    about: Host,
) -> Node:
    place = places.node(about.host, stripe)
    report = about.report.images.get(image, ImageReport(generation=0))
    return Node(
        about.host,
        place.parent,
        depth,
        place.inner,
        state,
        about.rack,
        report.sent,
        report.hits,
        report.misses,
        about.draining,
        about.report.overloaded,
        about.silent,
        whole,
    )


def candidates(
    session: Session, image: ImageRow, places: Places, asker: str, rack: str | None, limit: int
) -> list[Candidate]:
    """Return up to ``limit`` of those who could feed the asker, best first in each stripe."""
    found = [
        (stripe, node)
        for stripe in range(image.stripes)
        for node in places.parents_for(asker, rack, stripe)[:limit]
    ]
    names = {node.host for _, node in found}
    portals = _portals(session, image.name, names)
    depths = forests.depths(session, image, names) if names else {}
    return [
        Candidate(
            node.host,
            stripe,
            depths[stripe, node.host],
            image.fanout - node.fed,
            node.rack,
            portals[node.host],
        )
        for stripe, node in found
    ]


@dataclass(frozen=True)
class Standing:
    """How a host that joined stands: where it serves, and whether it has a place."""

    portal: Portal
    is_waiting: bool
    is_leaving: bool


def standings(
    session: Session, image: str, hosts: Collection[str], with_waiting: bool = False
) -> dict[str, Standing]:
    """Return how those of the hosts stand that joined, and perhaps all others who wait."""
    query = _STANDINGS_AND_WAITING if with_waiting else _STANDINGS
    rows = session.connection().execute(query, {"image": image, "hosts": sorted(hosts)})
    return {
        row.host: Standing(columns.portal(row), row.generation == WAITING, row.left is not None)
        for row in rows
    }


def placements(session: Session, keys: Collection[_Key]) -> list[Placement]:
    """Return the placements of these images and hosts, sorted by them."""
    hosts: dict[str, set[str]] = defaultdict(set)
    for image, name in keys:
        hosts[image].add(name)
    session.flush()
    return [
        placement
        for image in sorted(hosts)
        for placement in _placements(session, image, sorted(hosts[image]))
    ]


def _placements(session: Session, name: str, hosts: Sequence[str]) -> list[Placement]:
    image = session.get(ImageRow, name)
    if image is None:
        return []
    rows = session.connection().execute(_PLACED, {"image": name, "hosts": hosts}).all()
    pairs = _pairs(session, name, [row.host for row in rows if row.told is None])
    pairs |= {row.host: row.told for row in rows if row.told is not None}
    peers = {peer for told in pairs.values() for pair in told for peer in pair}
    named = {peer for peer in (*peers, image.home) if peer is not None}
    if None in peers:
        portals, standing_by = _portals_near_source(session, name, named)
    else:
        portals, standing_by = _portals(session, name, named), []
    profiles = tuple(Profiled(*each) for each in sorted(image.profiles.items()))
    return [
        Placement(
            name,
            row.host,
            image.size,
            State(row.state),
            row.generation,
            row.left is None or _waited_for(session, name),
            image.peers_proof,
            _feeds(image, row.host, pairs[row.host], portals, standing_by),
            profiles,
            row.capped,
            _hydration(image, row.chosen),
        )
        for row in rows
    ]


def told(session: Session, image: ImageRow, name: str) -> _Told:
    """Return parent and standby of the host in each stripe."""
    return _pairs(session, image.name, [name])[name]


def forget_told(session: Session, image: str, gone: Collection[str]) -> set[str]:
    """Let hosts that left and were told of these turn to the source; return their names."""
    changed = set()
    leaving = PlacementRow.image == image, PlacementRow.left.is_not(None)
    for row in session.scalars(select(PlacementRow).where(*leaving)):
        known: _Told = [
            [None, None] if parent in gone else [parent, None if standby in gone else standby]
            for parent, standby in row.told or []
        ]
        if known != row.told and row.host not in gone:
            row.told = known
            changed.add(row.host)
    return changed


def _pairs(session: Session, image: str, hosts: Sequence[str]) -> dict[str, _Told]:
    """Return parent and standby of these hosts, by stripe."""
    pairs: dict[str, _Told] = defaultdict(list)
    if not hosts:
        return pairs
    rows = session.connection().execute(_PAIRS, {"image": image, "hosts": hosts})
    for name, parent, standby in rows:
        pairs[name].append([parent, standby])
    return pairs


def _portals(session: Session, image: str, hosts: Collection[str]) -> dict[str, Portal]:
    if not hosts:
        return {}
    rows = session.connection().execute(_PORTALS, {"image": image, "hosts": sorted(hosts)})
    return {row.host: columns.portal(row) for row in rows}


def _portals_near_source(
    session: Session, image: str, hosts: Collection[str]
) -> tuple[dict[str, Portal], list[str]]:
    """Return where these hosts serve, and those who stand by for the source; and who these are."""
    asked = {"image": image, "hosts": sorted(hosts)}
    rows = session.connection().execute(_AND_STANDING_BY, asked).all()
    standing_by = sorted(row.host for row in rows if row.whole)
    return {row.host: columns.portal(row) for row in rows}, standing_by


def _feeds(
    image: ImageRow,
    host: str,
    told: _Told,
    portals: Mapping[str, Portal],
    standing_by: Sequence[str],
) -> tuple[Feed, ...]:
    """Return who feeds a host; in place of the source that is the image's home, if it has one.

    The home has all of the image. Should that turn out wrong, it must not wait for those who read
    from it: so the source alone feeds it. Where only the source feeds any other, or would stand by,
    a host stands by that has all of the image.
    """

    def peer(name: str | None) -> Peer:
        if name is None:
            return Peer(None, columns.portal(image), image.source_proof)
        return Peer(name, portals[name], image.peers_proof)

    if host == image.home:
        return tuple(Feed(stripe, peer(None), None) for stripe in range(len(told)))
    feeds = []
    for stripe, (parent, standby) in enumerate(told):
        first, second = parent or image.home, standby or image.home
        others = [one for one in standing_by if one not in (host, first)]
        if second in (None, first) and others:
            second = others[zlib.crc32(host.encode()) % len(others)]
        feeds.append(Feed(stripe, peer(first), None if first == second else peer(second)))
    return tuple(feeds)


def _waited_for(session: Session, image: str) -> bool:
    """Tell whether somebody in the trees may still read from a host that has left them.

    All leaving hosts are waited for together: one that nobody reads from may yet lie
    between another and those who do.
    """
    last = select(func.max(PlacementRow.left)).where(PlacementRow.image == image)
    behind = select(PlacementRow.host).where(
        PlacementRow.image == image,
        PlacementRow.left.is_(None),
        PlacementRow.confirmed < PlacementRow.generation,
        PlacementRow.confirmed < last.scalar_subquery(),
    )
    return session.scalars(behind.limit(1)).first() is not None
