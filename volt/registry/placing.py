"""How an image's trees change when hosts come, go or feed others, inside a transaction.

The caller holds the image's row, so that no two changes choose the same slot, and then the rows
of the hosts. Joins may be of several images at once.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from volt.db import forests, hosts, placements
from volt.db.hosts import Held
from volt.db.models import WAITING, HostRow, ImageRow, PlacementRow
from volt.placement.links import Newcomer, PartTooSmall
from volt.placement.part import Change
from volt.placement.places import Places

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Act:
    """What is done to the trees of an image, how much that is, and which hosts go for good."""

    do: Callable[[Places], None]
    change: Change
    gone: Collection[str] = ()


def join(session: Session, new: Mapping[ImageRow, Collection[Held]]) -> None:
    """Put hosts that wait into the trees, and tell whose placement changed, theirs included."""
    joined = [(image.name, host.name) for image, hosts in new.items() for host in hosts]
    _change(session, {image: _joining(hosts) for image, hosts in new.items()}, joined)


def _joining(hosts: Collection[Held]) -> _Act:
    newcomers = [Newcomer(host.name, host.rack, host.feeds, host.speed) for host in hosts]

    def do(places: Places) -> None:
        for newcomer in newcomers:
            places.join(newcomer)

    idle = sum(not newcomer.feeds for newcomer in newcomers)
    racks = Counter(newcomer.rack for newcomer in newcomers if newcomer.rack is not None)
    return _Act(do, Change((), racks, len(newcomers), idle))


def leave(session: Session, image: ImageRow, names: Collection[str], had_all: bool) -> None:
    """Take hosts out of the trees and place again whom they fed.

    If one of them ``had_all`` of the image, it may have stood by for the source.

    One that the trees lack is out of them already, whatever its placement says: else it could
    never be forgotten, nor could those that go with it.
    """

    def do(places: Places) -> None:
        for host in filter(places.holds, names):
            places.leave(host)

    act = _Act(do, Change(names, others=len(names)), names)
    told = _change(session, {image: act})[image]
    if image.home in names:
        gone, image.home = image.home, other_home(session, image, names)
        renew_all(session, image)
        if image.home is not None:
            hosts.note(session, "rehome", [image.home], image.name)
        else:
            hosts.note(session, "home_gone", [gone], image.name)
    elif had_all:
        forests.renew(session, {image: forests.near_source(session, image.name)})
    LOG.info("%d hosts leave image %s, %d told", len(names), image.name, len(told))


def forget(session: Session, image: ImageRow, names: Collection[str]) -> Collection[str]:
    """Forget these hosts' places; return those who had one."""
    of_image = PlacementRow.image == image.name
    found = session.scalars(select(PlacementRow).where(of_image, PlacementRow.host.in_(names)))
    rows = {row.host: row for row in found}
    placed = sorted(host for host, row in rows.items() if row.in_trees)
    if placed:
        leave(session, image, placed, any(rows[host].whole for host in placed))
    told = placements.forget_told(session, image.name, rows)
    if told:
        image.generation += 1
        forests.renew(session, {image: told})
    session.execute(delete(PlacementRow).where(of_image, PlacementRow.host.in_(sorted(rows))))
    return rows.keys()


def renew_all(session: Session, image: ImageRow) -> None:
    """Let all hosts with a placement fetch it again; those that wait for one wait on."""
    image.generation += 1
    session.execute(
        update(PlacementRow)
        .where(PlacementRow.image == image.name, PlacementRow.generation != WAITING)
        .values(generation=image.generation)
    )


def other_home(session: Session, image: ImageRow, gone: Collection[str] = ()) -> str | None:
    """Return who can stand for the source once these hosts are gone; None for the source itself.

    Hosts that shall feed no more than now come last.
    """
    whole = (
        select(PlacementRow.host)
        .join(HostRow, HostRow.name == PlacementRow.host)
        .where(
            PlacementRow.image == image.name,
            PlacementRow.whole,
            PlacementRow.left.is_(None),
            PlacementRow.host.not_in(sorted(gone)),
        )
        .order_by(HostRow.draining, HostRow.overloaded, HostRow.name)
    )
    return session.scalars(whole.limit(1)).first()


def house(session: Session, image: ImageRow) -> None:
    """Have a host stand for a source that is gone, if nobody does and one has all of the image."""
    if not image.source_gone or image.home is not None:
        return
    image.home = other_home(session, image)
    if image.home is not None:
        renew_all(session, image)
        hosts.note(session, "rehome", [image.home], image.name)


def adjust(session: Session, image: ImageRow, host: Held) -> None:
    """Make a placed host feed as many others as it may."""

    def do(places: Places) -> None:
        if host.draining:
            places.drain(host.name)
        elif host.overloaded:
            places.overload(host.name)
        else:
            places.relieve(host.name)

    _change(session, {image: _Act(do, Change([host.name], others=1))})


def follow(
    session: Session,
    image: ImageRow,
    host: str,
    traffic: Mapping[str, float],
    uplinks: Sequence[float],
) -> None:
    """Let an overloaded host feed less, where the image's shape can do that."""
    part = forests.part(session, image, Change([host], others=1))
    if part.follow(host, traffic, uplinks):
        image.generation += 1
        forests.save(session, {image: part})
        LOG.info("Host %s is overloaded: it feeds less in image %s", host, image.name)


def _change(
    session: Session, acts: Mapping[ImageRow, _Act], joined: Collection[tuple[str, str]] = ()
) -> dict[ImageRow, set[str]]:
    """Change the trees of images, and tell whose parent or standby changed; return these."""
    parts = forests.parts(session, {image: act.change for image, act in acts.items()})
    changed = {image: _done(session, image, acts[image], part) for image, part in parts.items()}
    for image, act in acts.items():
        forests.remove(session, image.name, act.gone)
        image.generation += 1
    return forests.save(session, changed, joined)


def _done(session: Session, image: ImageRow, act: _Act, part: Places) -> Places:
    """Return the places of an image after an act."""
    try:
        act.do(part)
    except PartTooSmall:
        LOG.debug("A part of the trees of image %s was too small", image.name)
        part = forests.whole(session, image)
        act.do(part)
    return part
