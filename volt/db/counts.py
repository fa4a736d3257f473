"""How much there is of everything: one query for each kind of number."""

import json
from collections.abc import Collection

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from volt.db import caps, copies, holds
from volt.db.models import HostRow, ImageRow, NodeRow, PlacementRow
from volt.model.figures import Figures
from volt.placement.levels import INSIDE, ROOTS


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
    level = NodeRow.level
    depths = session.execute(
        select(
            NodeRow.image,
            NodeRow.stripe,
            func.max(case((level < ROOTS, level))),
            func.max(case((level.between(ROOTS, INSIDE), level - ROOTS), else_=0)),
            func.max(case((level > INSIDE, level - INSIDE), else_=0)),
        ).group_by(NodeRow.image, NodeRow.stripe)
    )
    images = session.execute(select(ImageRow.name, ImageRow.generation, ImageRow.stripes)).all()
    return Figures(
        hosts,
        draining,
        overloaded,
        {(image, state): number for image, state, number in places},
        {
            (image, stripe): max(of_entries, of_roots + below)
            for image, stripe, of_entries, of_roots, below in depths
        },
        {name: generation for name, generation, _ in images},
        caps.index(session),
        holds.count(session),
        copies.count(session, {name: stripes for name, _, stripes in images}),
        copies.wanted(session),
        _reads(session, {name for name, _, _ in images}),
        copies.sources_gone(session),
    )


def _reads(session: Session, images: Collection[str]) -> dict[str, tuple[int, int]]:
    """Return hits and misses of these images, as hosts said last; a host may name others."""
    found = dict.fromkeys(images, (0, 0))
    for text in session.scalars(select(HostRow.report)):
        for name, said in json.loads(text).get("images", {}).items():
            if name in found:
                hits, misses = found[name]
                found[name] = hits + said.get("hits", 0), misses + said.get("misses", 0)
    return found
