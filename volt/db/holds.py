"""Which hosts need which images for the disks that they have."""

from collections.abc import Collection, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import bindparam, case, delete, func, insert, select, update
from sqlalchemy.orm import Session

from volt.db import hosts
from volt.db.any_of import among
from volt.db.hosts import Held
from volt.db.models import HoldRow, HostRow, ImageRow
from volt.model.hosts import Report
from volt.model.images import Hold

_HOLDS: Any = HoldRow.__table__
_OF_HOSTS = select(_HOLDS.c.host, _HOLDS.c.image, _HOLDS.c.disks).where(
    among(_HOLDS.c.host, "hosts")
)
_THIS = _HOLDS.c.host == bindparam("in_host"), _HOLDS.c.image == bindparam("in_image")
_ADD = insert(_HOLDS)
_CHANGE = update(_HOLDS).where(*_THIS).values(disks=bindparam("to_disks"))
_REMOVE = delete(_HOLDS).where(*_THIS)


def hear(
    session: Session, held: Mapping[str, Held], reports: Mapping[str, Report], now: datetime
) -> None:
    """Keep what these hosts, whose rows are held, say that they need.

    While that does not change, nothing more is asked than their rows say.
    """
    needs = {host: _digest(report.disks) for host, report in reports.items()}
    news = {host: one for host, one in needs.items() if one != held[host].needs}
    if not news:
        return
    connection = session.connection()
    rows = connection.execute(_OF_HOSTS, {"hosts": sorted(news)})
    kept = {(host, image): disks for host, image, disks in rows}
    said = {(host, image): disks for host in news for image, disks in reports[host].disks.items()}
    new = sorted(said.keys() - kept.keys())
    changed = sorted(key for key in said.keys() & kept.keys() if said[key] != kept[key])
    gone = sorted(kept.keys() - said.keys())
    if new:
        about = {"since": now}
        connection.execute(
            _ADD, [about | {"host": one[0], "image": one[1], "disks": said[one]} for one in new]
        )
    if changed:
        connection.execute(_CHANGE, [_key(*one) | {"to_disks": said[one]} for one in changed])
    if gone:
        connection.execute(_REMOVE, [_key(*one) for one in gone])
    hosts.need(session, news)


def index(session: Session, image: str | None, host: str | None) -> list[Hold]:
    """Return all holds, or those of an image, of a host; by image and host."""
    now = hosts.tick(session)
    query = (
        select(HoldRow, HostRow.seen, ImageRow.name)
        .outerjoin(HostRow, HostRow.name == HoldRow.host)
        .outerjoin(ImageRow, ImageRow.name == HoldRow.image)
        .order_by(HoldRow.image, HoldRow.host)
    )
    if image is not None:
        query = query.where(HoldRow.image == image)
    if host is not None:
        query = query.where(HoldRow.host == host)
    return [
        Hold(
            row.image,
            row.host,
            row.disks,
            row.since,
            None if seen is None else now - seen,
            known is not None,
        )
        for row, seen, known in session.execute(query)
    ]


def holders(session: Session, image: str) -> list[str]:
    """Return the hosts that need the image, by name."""
    query = select(HoldRow.host).where(HoldRow.image == image).order_by(HoldRow.host)
    return list(session.scalars(query))


def count(session: Session) -> dict[str, tuple[int, int]]:
    """Return, by image, how many hosts need it, and how many of them have expired."""
    # MariaDB has no FILTER for aggregates
    gone = func.count(case((HostRow.name.is_(None), 1)))
    query = (
        select(HoldRow.image, func.count(), gone)
        .outerjoin(HostRow, HostRow.name == HoldRow.host)
        .group_by(HoldRow.image)
    )
    return {image: (number, lost) for image, number, lost in session.execute(query)}


def find(session: Session, image: str, host: str) -> HoldRow | None:
    """Return a hold, locked until the commit."""
    return session.get(HoldRow, (image, host), with_for_update=True)


def forget_wishes(session: Session, names: Collection[str]) -> None:
    """Forget for which images these hosts waited, of which they have no disk yet."""
    session.execute(delete(HoldRow).where(HoldRow.host.in_(sorted(names)), HoldRow.disks == 0))


def _digest(disks: Mapping[str, int]) -> str:
    """Return what stands for these disks, and no others; empty for none."""
    return sha256(repr(sorted(disks.items())).encode()).hexdigest()[:32] if disks else ""


def _key(host: str, image: str) -> dict[str, Any]:
    return {"in_host": host, "in_image": image}
