"""How rows become the objects that callers see."""

import json
from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from volt.db import forests
from volt.db.models import EdgeRow, HostRow, ImageRow, PlacementRow
from volt.objects import (
    Chap,
    Feed,
    Host,
    Image,
    ImageReport,
    Node,
    Peer,
    Placement,
    Portal,
    Report,
    State,
    Tree,
    Trees,
)
from volt.topology import Shape


def portal(row: ImageRow | PlacementRow) -> Portal:
    """Return the portal of an image's source or of a host's export."""
    return Portal(row.ip, row.port, row.iqn, row.lun, row.offset)


def host(row: HostRow, now: int) -> Host:
    """Return a host as of that tick."""
    content = json.loads(row.report)
    reports = {name: ImageReport(**one) for name, one in content.pop("images", {}).items()}
    report = Report(reports, **content)
    return Host(row.name, row.rack, row.draining, now - row.seen, report)


def images(session: Session, name: str | None = None) -> list[Image]:
    """Return all images, or the one of that name, by name."""
    query = (
        select(ImageRow, func.count(PlacementRow.host))
        .outerjoin(PlacementRow, PlacementRow.image == ImageRow.name)
        .group_by(ImageRow.name)
        .order_by(ImageRow.name)
    )
    if name is not None:
        query = query.where(ImageRow.name == name)
    return [
        Image(
            row.name,
            row.size,
            Shape(row.shape),
            row.stripes,
            row.fanout,
            row.foreign_children,
            portal(row),
            hosts,
            row.generation,
            row.created_at,
        )
        for row, hosts in session.execute(query)
    ]


def trees(session: Session, image: ImageRow) -> Trees:
    """Return all stripe trees of the image."""
    forest = forests.load(session, image)
    states: dict[str, str] = {
        host: state
        for host, state in session.execute(
            select(PlacementRow.host, PlacementRow.state).where(PlacementRow.image == image.name)
        )
    }
    racks = dict(session.execute(select(HostRow.name, HostRow.rack)).tuples().all())
    drawn = tuple(
        Tree(
            stripe,
            tuple(
                Node(
                    host,
                    forest.parent(host, stripe),
                    depth,
                    forest.colour(host) == stripe,
                    State(states[host]),
                    racks.get(host),
                )
                for host, depth in forest.breadth_first(stripe)
            ),
        )
        for stripe in range(image.stripes)
    )
    return Trees(
        image.name,
        image.size,
        Shape(image.shape),
        image.stripes,
        image.fanout,
        image.generation,
        drawn,
    )


def placements(session: Session, host: str, names: Collection[str]) -> list[Placement]:
    """Return the host's placements in the images of these names, by name."""
    parent, standby = aliased(PlacementRow), aliased(PlacementRow)
    edges = session.execute(
        select(EdgeRow, parent, standby)
        .outerjoin(parent, (parent.image == EdgeRow.image) & (parent.host == EdgeRow.parent))
        .outerjoin(standby, (standby.image == EdgeRow.image) & (standby.host == EdgeRow.standby))
        .where(EdgeRow.host == host, EdgeRow.image.in_(names))
        .order_by(EdgeRow.image, EdgeRow.stripe)
        .execution_options(populate_existing=True)
    )
    images = {
        row.name: row for row in session.scalars(select(ImageRow).where(ImageRow.name.in_(names)))
    }
    feeds: dict[str, list[Feed]] = defaultdict(list)
    for edge, above, spare in edges:
        source = images[edge.image]
        second = None if above is None else _peer(spare, source)
        feeds[edge.image].append(Feed(edge.stripe, _peer(above, source), second))
    rows = session.scalars(
        select(PlacementRow)
        .where(PlacementRow.host == host, PlacementRow.image.in_(names))
        .order_by(PlacementRow.image)
    )
    return [
        Placement(
            row.image,
            row.host,
            images[row.image].size,
            State(row.state),
            row.generation,
            row.left is None or _waited_for(session, row.image),
            _peers_chap(images[row.image]),
            tuple(feeds[row.image]),
        )
        for row in rows
    ]


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


def _peer(row: PlacementRow | None, source: ImageRow) -> Peer:
    if row is not None:
        return Peer(row.host, portal(row), _peers_chap(source))
    user, secret = source.source_user, source.source_secret
    return Peer(None, portal(source), Chap(user, secret) if user and secret else None)


def _peers_chap(image: ImageRow) -> Chap:
    """Return what hosts ask of each other; the source has its own."""
    return Chap("virtman", image.secret)
