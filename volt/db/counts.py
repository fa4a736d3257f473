"""How much there is of everything: one query for each kind of number."""

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from volt.db import caps, copies, holds
from volt.db.models import HostRow, ImageRow, NodeRow, PlacementRow
from volt.model.objects import Figures


def count(session: Session) -> Figures:
    """Return all numbers."""
    of_hosts = session.execute(
        select(
            func.count(),
            # MariaDB has no FILTER for aggregates
            func.count(case((HostRow.draining, 1))),
            func.count(case((HostRow.overloaded, 1))),
        ).select_from(HostRow)
    )
    hosts, draining, overloaded = of_hosts.one()
    places = session.execute(
        select(PlacementRow.image, PlacementRow.state, func.count()).group_by(
            PlacementRow.image, PlacementRow.state
        )
    )
    depths = session.execute(
        select(NodeRow.image, NodeRow.stripe, func.max(NodeRow.level)).group_by(
            NodeRow.image, NodeRow.stripe
        )
    )
    images = session.execute(select(ImageRow.name, ImageRow.generation, ImageRow.stripes)).all()
    return Figures(
        hosts,
        draining,
        overloaded,
        {(image, state): number for image, state, number in places},
        {(image, stripe): depth for image, stripe, depth in depths},
        {name: generation for name, generation, _ in images},
        caps.index(session),
        holds.count(session),
        copies.count(session, {name: stripes for name, _, stripes in images}),
        copies.wanted(session),
    )
