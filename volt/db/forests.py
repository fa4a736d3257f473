"""How an image's trees are read from rows, and which rows a change of them rewrites."""

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import delete, insert, or_, select, update
from sqlalchemy.orm import Session

from volt.db.models import EdgeRow, ImageRow, PlacementRow
from volt.objects import State
from volt.topology import Forest, Member


def load(session: Session, image: ImageRow) -> Forest:
    """Return the forest of all hosts that hold a place in it."""
    edges = session.execute(
        select(EdgeRow.host, EdgeRow.parent)
        .where(EdgeRow.image == image.name)
        .order_by(EdgeRow.stripe)
    )
    parents: dict[str, list[str | None]] = defaultdict(list)
    for host, parent in edges:
        parents[host].append(parent)
    members = [
        Member(host, colour, tuple(parents[host])) for host, colour in _placed(session, image)
    ]
    return Forest.restore(image.stripes, image.fanout, members)


def save(session: Session, image: ImageRow, forest: Forest, changed: Collection[str]) -> None:
    """Write the edges of the changed hosts, and every colour that is new.

    The rows of all placed hosts exist already.
    """
    session.flush()
    session.execute(
        delete(EdgeRow).where(EdgeRow.image == image.name, EdgeRow.host.in_(changed)),
        execution_options={"synchronize_session": False},
    )
    rows = [
        {
            "image": image.name,
            "host": host,
            "stripe": stripe,
            "parent": edge.parent,
            "standby": edge.standby,
        }
        for host in sorted(changed)
        for stripe in range(image.stripes)
        for edge in [forest.edge(host, stripe)]
    ]
    if rows:
        session.execute(insert(EdgeRow), rows)
    for host, colour in _placed(session, image):
        if forest.colour(host) != colour:
            session.execute(
                update(PlacementRow)
                .where(PlacementRow.image == image.name, PlacementRow.host == host)
                .values(colour=forest.colour(host))
            )


def renew(session: Session, image: ImageRow, hosts: Collection[str]) -> None:
    """Give these hosts' placements the image's present generation."""
    session.execute(
        update(PlacementRow)
        .where(PlacementRow.image == image.name, PlacementRow.host.in_(hosts))
        .values(generation=image.generation)
    )


def told_of(session: Session, image: str, host: str) -> set[str]:
    """Return whose last told parents or standbys include the host."""
    mentions = or_(EdgeRow.parent == host, EdgeRow.standby == host)
    return set(session.scalars(select(EdgeRow.host).where(EdgeRow.image == image, mentions)))


def forget(session: Session, image: str, host: str) -> None:
    """Point the edges that still name the host at the source instead.

    Only hosts that are leaving have such edges: all others were placed again.
    """
    session.execute(
        update(EdgeRow)
        .where(EdgeRow.image == image, EdgeRow.parent == host)
        .values(parent=None, standby=None)
    )
    session.execute(
        update(EdgeRow).where(EdgeRow.image == image, EdgeRow.standby == host).values(standby=None)
    )


def _placed(session: Session, image: ImageRow) -> list[tuple[str, int]]:
    """Return hosts and colours in the order in which they joined."""
    rows = session.execute(
        select(PlacementRow.host, PlacementRow.colour)
        .where(PlacementRow.image == image.name, PlacementRow.state != State.LEAVING)
        .order_by(PlacementRow.joined)
    )
    return [(host, colour) for host, colour in rows]
