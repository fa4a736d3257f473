"""How rows become the objects that callers see."""

import json
from dataclasses import replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from volt.db import copies, forests, hosts, placements
from volt.db.models import HoldRow, HostRow, ImageRow, PlacementRow
from volt.model import suspended
from volt.model.hosts import Host, ImageReport, Report
from volt.model.images import Basis, Image, Layer, NewImage
from volt.model.placements import Candidate, Node, State, Tree, Trees
from volt.placement.places import Places
from volt.placement.rules import Shape
from volt.transport import columns


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
    return Host(row.name, row.rack, row.speed, row.draining, now - row.seen, report)


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
            placements.policy(row),
            _layer(row),
            Basis(tuple(row.based_on), row.shared or 0) if row.based_on else None,
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
    saved = suspended.parse(image.suspended) if image.suspended else None
    return Layer(image.parent, image.disk_size or 0, image.maker, saved)


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
    portals = placements.portals_of(session, {(image.name, one) for one in names})
    depths = forests.depths(session, image, names) if names else {}
    return [
        Candidate(
            node.host,
            stripe,
            depths[stripe, node.host],
            max(0, image.fanout - node.fed),
            node.rack,
            portals[image.name, node.host],
        )
        for stripe, node in found
    ]
