"""What is known of the copies of all of an image, that hosts have or shall make."""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Select, bindparam, func, select, true, update
from sqlalchemy.orm import Session

from volt.db.models import WAITING, HostRow, ImageRow, PlacementRow
from volt.model.copies import Copies, Copy, Keeper
from volt.model.hosts import ImageReport

_LEAVES = 128
"""Bytes of an image for each of the lowest level of its hash tree, which a copy has too."""

_FEW = 4
"""Hosts that stand by for a source."""

_PLACES: Any = PlacementRow.__table__


def standing_by(*columns: str) -> Select[Any]:
    """Return the query of some hosts that have all of an image: they stand by for its source."""
    return (
        select(*(_PLACES.c[name] for name in columns))
        .where(_PLACES.c.image == bindparam("image"), _PLACES.c.whole == true())
        .where(_PLACES.c.left.is_(None), _PLACES.c.generation != WAITING)
        .order_by(_PLACES.c.host)
        .limit(_FEW)
    )


_UNDERSTUDIES = standing_by("host")
_IN_TREES = PlacementRow.left.is_(None) & (PlacementRow.generation != WAITING)


def count(session: Session, images: Mapping[str, int]) -> dict[str, Copies]:
    """Return how many hosts have all of these images, and of each stripe.

    :param images: the number of stripes of each
    """
    query = (
        select(PlacementRow.image, PlacementRow.whole, PlacementRow.complete, func.count())
        .where(PlacementRow.image.in_(sorted(images)), PlacementRow.left.is_(None))
        .where(PlacementRow.whole | (PlacementRow.complete != 0))
        .group_by(PlacementRow.image, PlacementRow.whole, PlacementRow.complete)
    )
    whole: Counter[str] = Counter()
    of_stripe: Counter[tuple[str, int]] = Counter()
    for image, is_whole, complete, number in session.execute(query):
        whole[image] += number if is_whole else 0
        for stripe in range(images[image]):
            of_stripe[image, stripe] += number if is_whole or complete >> stripe & 1 else 0
    return {
        image: Copies(whole[image], tuple(of_stripe[image, stripe] for stripe in range(stripes)))
        for image, stripes in images.items()
    }


def wanted(session: Session) -> dict[str, int]:
    """Return of which images so many copies are wanted."""
    query = select(ImageRow.name, ImageRow.hydrate_copies)
    rows = session.execute(query.where(ImageRow.hydrate_copies.is_not(None)))
    return {name: copies or 0 for name, copies in rows}


def sources_gone(session: Session) -> dict[str, bool]:
    """Return of which images the source was removed, and whether a host stands for it."""
    query = select(ImageRow.name, ImageRow.home).where(ImageRow.source_gone)
    return {name: home is not None for name, home in session.execute(query)}


def keepers(session: Session, image: str) -> list[Keeper]:
    """Return the hosts that have a copy, or were chosen."""
    return _keepers(session, image, PlacementRow.whole | PlacementRow.chosen)


def hosts(session: Session, image: str) -> list[Keeper]:
    """Return all hosts that have a place in the image's trees."""
    return _keepers(session, image)


def understudies(session: Session, image: str) -> list[str]:
    """Return those who stand by for an image's source."""
    return list(session.connection().execute(_UNDERSTUDIES, {"image": image}).scalars())


def of_image(session: Session, image: str) -> list[Copy]:
    """Return the copies of an image, and those that shall be or have begun, by host."""
    found = []
    for place, row, _ in session.execute(_rows(image).order_by(PlacementRow.host)):
        said = _of(json.loads(row.report), image)
        if place.whole or place.chosen or said.copied:
            about = row.name, row.rack, place.whole, place.chosen
            found.append(Copy(*about, said.copied, said.declines))
    return found


def mark(session: Session, image: str, chosen: Collection[str]) -> None:
    """Note who is chosen, and that nobody else is."""
    of_image = PlacementRow.image == image
    others = PlacementRow.host.not_in(sorted(chosen))
    session.execute(
        update(PlacementRow).where(of_image, PlacementRow.chosen, others).values(chosen=False)
    )
    session.execute(
        update(PlacementRow)
        .where(of_image, PlacementRow.host.in_(sorted(chosen)))
        .values(chosen=True)
    )


def _keepers(session: Session, image: str, *which: Any) -> list[Keeper]:
    return [
        _keeper(place, row, image, size)
        for place, row, size in session.execute(_rows(image).where(*which))
    ]


def _rows(image: str) -> Select[PlacementRow, HostRow, int]:
    return (
        select(PlacementRow, HostRow, ImageRow.size)
        .join(HostRow, HostRow.name == PlacementRow.host)
        .join(ImageRow, ImageRow.name == PlacementRow.image)
        .where(PlacementRow.image == image, _IN_TREES)
    )


def _keeper(place: PlacementRow, host: HostRow, image: str, size: int) -> Keeper:
    report = json.loads(host.report)
    said = _of(report, image)
    return Keeper(
        host.name,
        host.rack,
        place.whole,
        place.chosen,
        said.declines,
        said.copied > 0,
        report.get("room", 0) >= size + size // _LEAVES,
        not (host.draining or host.overloaded),
        report.get("received_rate", 0) + report.get("sent_rate", 0),
    )


def _of(report: dict[str, Any], image: str) -> ImageReport:
    """Return what a host said of an image, if anything."""
    return ImageReport.of(report.get("images", {}).get(image, {"generation": 0}))
