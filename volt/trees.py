"""What each use case of Volt changes: one transaction each.

A writer holds the database (SQLite) or its image's row (others) from its first read to
its commit, so that two joins never get the same slot.
"""

import json
import logging
import secrets
from collections.abc import Collection
from dataclasses import asdict
from datetime import UTC, datetime

from sqlalchemy import Engine, delete, func, select
from sqlalchemy.orm import Session, sessionmaker

from volt import source
from volt.db import answers, forests
from volt.db.engine import for_writing, retried
from volt.db.models import ClockRow, EventRow, HostRow, ImageRow, PlacementRow
from volt.errors import HostUnknown, ImageExists, ImageInUse, ImageUnknown, PlacementStale
from volt.objects import (
    Chap,
    Event,
    Host,
    Image,
    NewImage,
    News,
    Placement,
    Portal,
    Report,
    State,
    Trees,
)
from volt.topology import Shape

LOG = logging.getLogger(__name__)


class Coordinator:
    """All use cases; safe to share between threads."""

    def __init__(self, engine: Engine, source_timeout: float) -> None:
        """Wait ``source_timeout`` seconds for the source of a new image to answer."""
        self._reading = sessionmaker(engine, expire_on_commit=False)
        self._writing = sessionmaker(for_writing(engine), expire_on_commit=False)
        self._source_timeout = source_timeout

    def create_image(self, new: NewImage, now: datetime) -> tuple[Image, bool]:
        """Store an image; return it and whether it is new.

        Raises ImageExists for other content under the name, SourceUnreachable.
        """
        present = self._find_same(new)
        if present is not None:
            return present, False
        source.check_answers(new.source, self._source_timeout)
        return self._store_image(new, now)

    @retried
    def images(self) -> list[Image]:
        """Return all images by name."""
        with self._reading.begin() as session:
            return answers.images(session)

    @retried
    def image(self, name: str) -> Image:
        """Return an image; raises ImageUnknown."""
        with self._reading.begin() as session:
            _image_row(session, name)
            return answers.images(session, name)[0]

    @retried
    def delete_image(self, name: str) -> None:
        """Forget an image; raises ImageUnknown, ImageInUse."""
        with self._writing.begin() as session:
            row = _image_row(session, name, lock=True)
            hosts = session.scalar(
                select(func.count()).select_from(PlacementRow).where(PlacementRow.image == name)
            )
            if hosts:
                raise ImageInUse(f"image {name} is in use by {hosts} hosts: remove them first")
            session.delete(row)
        LOG.info("Image %s deleted", name)

    @retried
    def trees(self, name: str) -> Trees:
        """Return the image's trees; raises ImageUnknown."""
        with self._reading.begin() as session:
            return answers.trees(session, _image_row(session, name))

    @retried
    def placement(self, image: str, host: str) -> Placement:
        """Return the host's place; raises ImageUnknown, HostUnknown."""
        with self._reading.begin() as session:
            _image_row(session, image)
            _placement_row(session, image, host)
            return _placement(session, image, host)

    @retried
    def placements(self, host: str) -> tuple[Placement, ...]:
        """Return the places that the host has in the trees of all images, by image."""
        with self._reading.begin() as session:
            images = session.scalars(
                select(PlacementRow.image).where(
                    PlacementRow.host == host, PlacementRow.state != State.LEAVING
                )
            ).all()
            return tuple(answers.placements(session, host, images))

    @retried
    def join(
        self, image: str, host: str, portal: Portal, rack: str | None = None
    ) -> tuple[Placement, bool]:
        """Give the host a place, or its present place a new portal; return it and if it is new.

        Raises ImageUnknown.
        """
        with self._writing.begin() as session:
            image_row = _image_row(session, image, lock=True)
            _host_row(session, host).rack = rack
            row = session.get(PlacementRow, (image, host))
            told: set[str] = set()
            if row is not None and answers.portal(row) != portal:
                told = forests.told_of(session, image, host)
                _set_portal(row, portal)
            is_new = row is None or row.state == State.LEAVING
            if is_new:
                told |= _place(session, image_row, host, row, portal)
            elif told:
                image_row.generation += 1
            forests.renew(session, image_row, told)
            placement = _placement(session, image, host)
            if is_new:
                _note(session, "join", image, host)
        if is_new:
            LOG.info("Host %s placed in image %s, %d told", host, image, len(told))
        return placement, is_new

    @retried
    def ready(self, image: str, host: str, generation: int) -> Placement:
        """Note that the host reads from the parents of that generation.

        Raises ImageUnknown, HostUnknown, PlacementStale.
        """
        with self._writing.begin() as session:
            _image_row(session, image, lock=True)
            row = _placement_row(session, image, host)
            if row.state == State.LEAVING:
                raise PlacementStale(f"host {host} is leaving image {image}: join it again")
            if row.generation != generation:
                raise PlacementStale(
                    f"host {host} acts on generation {generation} of its place in image {image}, "
                    f"the present one is {row.generation}: fetch the placement again"
                )
            row.state = State.READY
            row.confirmed = generation
            session.flush()
            return _placement(session, image, host)

    @retried
    def leave(self, image: str, host: str) -> Placement:
        """Take the host out of the trees but keep what it was told; repeatable.

        Raises ImageUnknown, HostUnknown.
        """
        with self._writing.begin() as session:
            image_row = _image_row(session, image, lock=True)
            row = _placement_row(session, image, host)
            if row.state != State.LEAVING:
                _displace(session, image_row, row)
            return _placement(session, image, host)

    @retried
    def remove(self, image: str, host: str) -> None:
        """Forget the host's place; repeatable."""
        with self._writing.begin() as session:
            image_row = session.get(ImageRow, image, with_for_update=True)
            row = session.get(PlacementRow, (image, host))
            if image_row is None or row is None:
                return
            if row.state != State.LEAVING:
                _displace(session, image_row, row)
            leaving = forests.told_of(session, image, host)
            if leaving:
                forests.forget(session, image, host)
                image_row.generation += 1
                forests.renew(session, image_row, leaving)
            session.execute(
                delete(PlacementRow).where(PlacementRow.image == image, PlacementRow.host == host)
            )
        LOG.info("Host %s removed from image %s", host, image)

    @retried
    def heartbeat(self, host: str, report: Report) -> News:
        """Store what the host says; return where its placements differ from what it knows."""
        known = {image: one.generation for image, one in report.images.items()}
        with self._writing.begin() as session:
            host_row = _host_row(session, host)
            host_row.seen = _tick(session)
            host_row.overloaded = report.overloaded
            host_row.report = json.dumps(asdict(report))
            rows = session.scalars(select(PlacementRow).where(PlacementRow.host == host)).all()
            stale = [
                row.image
                for row in rows
                if row.state != State.LEAVING
                and known.get(row.image, row.generation) != row.generation
            ]
            unknown = sorted(known.keys() - {row.image for row in rows})
            placements = answers.placements(session, host, stale) if stale else []
        return News(tuple(placements), tuple(unknown))

    @retried
    def expire(self, hosts: Collection[str]) -> None:
        """Take dead hosts out of all trees and forget them; whom they fed is placed again."""
        for host in hosts:
            with self._reading.begin() as session:
                images = session.scalars(
                    select(PlacementRow.image).where(PlacementRow.host == host)
                ).all()
            for image in images:
                self.remove(image, host)
            with self._writing.begin() as session:
                session.execute(delete(HostRow).where(HostRow.name == host))
                _note(session, "expire", None, host)

    @retried
    def hosts(self, after: str = "", limit: int = 1000) -> list[Host]:
        """Return up to ``limit`` hosts by name, from the one after that name on."""
        with self._reading.begin() as session:
            now = _tick(session)
            rows = session.scalars(
                select(HostRow).where(HostRow.name > after).order_by(HostRow.name).limit(limit)
            )
            return [answers.host(row, now) for row in rows]

    @retried
    def events(self, after: int = 0, limit: int = 100) -> list[Event]:
        """Return the last events, newest first; with ``after``, those of a higher id."""
        with self._reading.begin() as session:
            rows = session.scalars(
                select(EventRow)
                .where(EventRow.id > after)
                .order_by(EventRow.id.desc())
                .limit(limit)
            )
            return [
                Event(row.id, row.at, row.kind, row.image, row.host, row.detail) for row in rows
            ]

    @retried
    def _find_same(self, new: NewImage) -> Image | None:
        with self._reading.begin() as session:
            return _same_image(session, new)

    @retried
    def _store_image(self, new: NewImage, now: datetime) -> tuple[Image, bool]:
        with self._writing.begin() as session:
            present = _same_image(session, new)
            if present is not None:
                return present, False
            row = ImageRow(
                name=new.name,
                size=new.size,
                shape=new.shape,
                stripes=new.stripes,
                fanout=new.fanout,
                foreign_children=new.foreign_children,
                secret=secrets.token_hex(16),
                created_at=now,
            )
            _set_portal(row, new.source)
            if new.source_chap is not None:
                row.source_user = new.source_chap.user
                row.source_secret = new.source_chap.secret
            session.add(row)
            session.flush()
            image = answers.images(session, new.name)[0]
        LOG.info("Image %s created", new.name)
        return image, True


def _image_row(session: Session, name: str, lock: bool = False) -> ImageRow:
    """Return the image's row; the lock makes its writers take turns where SQLite's does not."""
    row = session.get(ImageRow, name, with_for_update=lock)
    if row is None:
        raise ImageUnknown(f"image {name} is not known: create it with POST /v1/images")
    return row


def _host_row(session: Session, name: str) -> HostRow:
    row = session.get(HostRow, name)
    if row is None:
        row = HostRow(name=name, seen=_tick(session))
        session.add(row)
    return row


def _tick(session: Session) -> int:
    return session.scalars(select(ClockRow.tick)).one()


def _note(session: Session, kind: str, image: str | None, host: str | None) -> None:
    session.add(EventRow(at=datetime.now(UTC), kind=kind, image=image, host=host, detail=""))


def _placement_row(session: Session, image: str, host: str) -> PlacementRow:
    row = session.get(PlacementRow, (image, host))
    if row is None:
        raise HostUnknown(f"host {host} has no place in image {image}: let it join first")
    return row


def _placement(session: Session, image: str, host: str) -> Placement:
    return answers.placements(session, host, [image])[0]


def _same_image(session: Session, new: NewImage) -> Image | None:
    """Return the stored image if it has this content; raise ImageExists if it has other."""
    row = session.get(ImageRow, new.name)
    if row is None:
        return None
    chap = Chap(row.source_user, row.source_secret or "") if row.source_user else None
    stored = NewImage(
        row.name,
        row.size,
        Shape(row.shape),
        row.stripes,
        row.fanout,
        answers.portal(row),
        chap,
        row.foreign_children,
    )
    if stored != new:
        raise ImageExists(
            f"image {new.name} exists with other content: delete it first or take another name"
        )
    return answers.images(session, new.name)[0]


def _set_portal(row: ImageRow | PlacementRow, portal: Portal) -> None:
    row.ip, row.port, row.iqn = portal.ip, portal.port, portal.iqn
    row.lun, row.offset = portal.lun, portal.offset


def _place(
    session: Session, image: ImageRow, host: str, row: PlacementRow | None, portal: Portal
) -> frozenset[str]:
    """Put the host into the trees; return whose placement changed."""
    forest = forests.load(session, image)
    changed = forest.join(host)
    image.generation += 1
    if row is None:
        row = PlacementRow(image=image.name, host=host, generation=image.generation)
        _set_portal(row, portal)
        session.add(row)
    row.state = State.JOINING
    row.confirmed = 0
    row.left = None
    row.colour = forest.colour(host)
    row.joined = image.generation
    forests.save(session, image, forest, changed)
    return changed


def _displace(session: Session, image: ImageRow, row: PlacementRow) -> None:
    """Take the host out of the trees and place again whom it fed."""
    forest = forests.load(session, image)
    changed = forest.leave(row.host)
    row.state = State.LEAVING
    image.generation += 1
    row.left = image.generation
    forests.save(session, image, forest, changed)
    forests.renew(session, image, changed)
    LOG.info("Host %s leaves image %s, %d told", row.host, image.name, len(changed))
