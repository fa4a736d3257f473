"""What each use case about images and their trees changes, one transaction each.

A writer holds the database (SQLite) or its image's row (others) from its first read to
its commit, so that two joins never get the same slot. Rows are always locked in this
order: the image, hosts, placements.

A join is the exception, as thousands may come at once: a first transaction, which holds
no image, only says who wants a place. Whoever holds the image next gives places to all
who wait by then, whichever worker they asked: a large batch costs little more than a
single host. Should a worker die between the two, the next join has its hosts placed too.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from operator import itemgetter

from sqlalchemy import Engine, func, insert, select, update
from sqlalchemy.orm import Session, sessionmaker

from volt.db import analyze, counts, forests, hosts, views
from volt.db.engine import for_reading, for_writing, retried
from volt.db.models import WAITING, HostRow, ImageRow, PlacementRow
from volt.errors import (
    HashesUnknown,
    HostUnknown,
    ImageExists,
    ImageInUse,
    ImageUnknown,
    PlacementStale,
)
from volt.model.objects import (
    Candidate,
    Figures,
    Image,
    NewImage,
    Placement,
    State,
    Trees,
)
from volt.placement.part import Change
from volt.registry import placing, source
from volt.registry.batches import Batches, Turns
from volt.transport import RENEWED, Portal, columns, new_secret

LOG = logging.getLogger(__name__)

_PLACEMENT = insert(PlacementRow.__table__)  # type: ignore[arg-type]

LARGEST_BATCH = 64
"""Joins in one transaction: more share its cost, but the first waits for the last."""


@dataclass(frozen=True)
class _Join:
    host: str
    portal: Portal
    rack: str | None


class Coordinator:
    """The use cases of images and places; safe to share between threads."""

    def __init__(self, engine: Engine, source_timeout: float) -> None:
        """Wait ``source_timeout`` seconds for the source of a new image to answer."""
        self._engine = engine
        self._reading = sessionmaker(for_reading(engine), expire_on_commit=False)
        self._writing = sessionmaker(for_writing(engine), expire_on_commit=False)
        self._source_timeout = source_timeout
        self._joins = Batches(self._join, LARGEST_BATCH)
        self._turns: Turns[str] = Turns()

    def create_image(self, new: NewImage, now: datetime) -> tuple[Image, bool]:
        """Store an image; return it and whether it is new.

        The source's secret may differ from the stored one: it is the new one then. Raises
        ImageExists for other content under the name, SourceUnreachable.
        """
        present = self._find_same(new)
        if present is not None:
            return present, False
        source.check_answers(new.source, self._source_timeout)
        return self._store_image(new, now)

    @retried
    def images(self, after: str = "", limit: int | None = None) -> list[Image]:
        """Return up to ``limit`` images by name, from the one after that name on."""
        with self._reading.begin() as session:
            return views.images(session, after=after, limit=limit)

    @retried
    def image(self, name: str) -> Image:
        """Return an image; raises ImageUnknown."""
        with self._reading.begin() as session:
            _image_row(session, name)
            return views.images(session, name)[0]

    @retried
    def upper_hashes(self, name: str) -> bytes:
        """Return the image's hashes above the leaves; raises ImageUnknown, HashesUnknown."""
        with self._reading.begin() as session:
            hashes = _image_row(session, name).upper_hashes
        if hashes is None:
            raise HashesUnknown(f"image {name} has no hash tree: it was registered without one")
        return hashes

    @retried
    def delete_image(self, name: str) -> None:
        """Forget an image; raises ImageUnknown, ImageInUse."""
        with self._turns.of(name), self._writing.begin() as session:
            row = _image_row(session, name, lock=True)
            count = session.scalar(
                select(func.count()).select_from(PlacementRow).where(PlacementRow.image == name)
            )
            if count:
                raise ImageInUse(f"image {name} is in use by {count} hosts: remove them first")
            session.delete(row)
            hosts.note(session, "image_delete", [None], name)
        LOG.info("Image %s deleted", name)

    @retried
    def rotate(self, name: str) -> None:
        """Give the image's hosts another secret for each other; raises ImageUnknown."""
        with self._turns.of(name), self._writing.begin() as session:
            row = _image_row(session, name, lock=True)
            row.secret = new_secret()
            _renew_all(session, row)
            hosts.note(session, RENEWED, [None], name)
        LOG.info("Image %s has another CHAP secret", name)

    @retried
    def trees(self, name: str) -> Trees:
        """Return the image's trees; raises ImageUnknown."""
        with self._reading.begin() as session:
            return views.trees(session, _image_row(session, name))

    @retried
    def figures(self) -> Figures:
        """Return how much there is of everything."""
        with self._reading.begin() as session:
            return counts.count(session)

    @retried
    def placement(self, image: str, host: str) -> Placement:
        """Return the host's place; raises ImageUnknown, HostUnknown."""
        with self._reading.begin() as session:
            _image_row(session, image)
            _placement_row(session, image, host)
            return views.placements(session, [(image, host)])[0]

    @retried
    def placements(self, host: str) -> tuple[Placement, ...]:
        """Return the places that the host has in the trees of all images, by image."""
        with self._reading.begin() as session:
            images = session.scalars(
                select(PlacementRow.image).where(
                    PlacementRow.host == host,
                    PlacementRow.state != State.LEAVING,
                    PlacementRow.generation != WAITING,
                )
            )
            return tuple(views.placements(session, [(image, host) for image in images]))

    @retried
    def parents(self, image: str, host: str, limit: int) -> list[Candidate]:
        """Return whom the host could be given as a parent now, best first in each stripe.

        Raises ImageUnknown.
        """
        with self._reading.begin() as session:
            image_row = _image_row(session, image)
            row = session.get(HostRow, host)
            rack = None if row is None else row.rack
            racks = () if rack is None else (rack,)
            part = forests.part(session, image_row, Change(racks=racks, joins=limit))
            return views.candidates(session, image_row, part, host, rack, limit)

    def join(
        self, image: str, host: str, portal: Portal, rack: str | None = None
    ) -> tuple[Placement, bool]:
        """Give the host a place, or its present place a new portal; return it and if it is new.

        Raises ImageUnknown, HostUnknown.
        """
        placement, is_new = self._joins.run(image, _Join(host, portal, rack))
        if placement is None:  # somebody removed it just now
            raise _placeless(image, host)
        return placement, is_new

    def _join(self, image: str, wanted: Sequence[_Join]) -> list[tuple[Placement | None, bool]]:
        last = {one.host: one for one in wanted}  # of two joins of one host the later counts
        fresh = self._arrive(image, last)
        before, after = self._place(image, last)
        if analyze.is_due(before, after):
            analyze.refresh(self._engine)
        placements = self._placements(image, last)
        return [(placements.get(one.host), one.host in fresh) for one in wanted]

    @retried
    def _arrive(self, image: str, wanted: Mapping[str, _Join]) -> set[str]:
        """Let those of the hosts that have no place wait for one; return who is new."""
        with self._writing.begin() as session:
            _image_row(session, image)
            present = views.standings(session, image, wanted)
            _wait(session, image, [one for host, one in wanted.items() if host not in present])
            held = hosts.hold(session, wanted)
            hosts.alive(session, wanted)
            hosts.move(
                session,
                {one.host: one.rack for one in wanted.values() if held[one.host].rack != one.rack},
            )
        return {host for host in wanted if host not in present or present[host].is_leaving}

    @retried
    def _place(self, image: str, wanted: Mapping[str, _Join]) -> tuple[int, int]:
        """Give each host a place; return how many hosts were there before, and after.

        All others who wait get theirs too.
        """
        with self._turns.of(image), self._writing.begin() as session:
            image_row = _image_row(session, image, lock=True)
            before = sum(image_row.inner)
            present = views.standings(session, image, wanted, with_waiting=True)
            told: set[str] = set()
            for host, one in wanted.items():
                if host in present and present[host].portal != one.portal:
                    told |= _move(session, image_row, host, one.portal)
            returning = [host for host in wanted if host in present and present[host].is_leaving]
            waiting = [host for host, standing in present.items() if standing.is_waiting]
            _return(session, image, returning)
            if new := sorted({*returning, *waiting}):
                told |= placing.join(session, image_row, hosts.hold(session, new))
                hosts.note(session, "join", new, image)
            elif told:
                image_row.generation += 1
            forests.renew(session, image_row, told)
        for host in new:
            LOG.info("Host %s placed in image %s", host, image)
        return before, before + len(new)

    @retried
    def _placements(self, image: str, names: Collection[str]) -> dict[str, Placement]:
        """Return the places that these hosts have by now."""
        with self._reading.begin() as session:
            found = views.placements(session, [(image, host) for host in names])
        return {one.host: one for one in found}

    def ready(self, image: str, host: str, generation: int) -> Placement:
        """Note that the host reads from the parents of that generation.

        Raises ImageUnknown, HostUnknown, PlacementStale.
        """
        self.confirm([(image, host, generation)])
        placement = self.placement(image, host)
        if placement.state == State.LEAVING:
            raise PlacementStale(f"host {host} is leaving image {image}: join it again")
        if placement.generation != generation:
            raise PlacementStale(
                f"host {host} acts on generation {generation} of its place in image {image}, "
                f"the present one is {placement.generation}: fetch the placement again"
            )
        return placement

    @retried
    def confirm(self, used: Collection[tuple[str, str, int]]) -> None:
        """Note which hosts read as their placements say: image, host and generation of each.

        Nothing happens where the placement is another by now.
        """
        with self._writing.begin() as session:
            hosts.confirm(session, used)

    @retried
    def leave(self, image: str, host: str) -> Placement:
        """Take the host out of the trees but keep what it was told; repeatable.

        Raises ImageUnknown, HostUnknown.
        """
        with self._turns.of(image), self._writing.begin() as session:
            image_row = _image_row(session, image, lock=True)
            row = _placement_row(session, image, host)
            if row.state != State.LEAVING:
                row.told = views.told(session, image_row, host)
                row.state = State.LEAVING
                row.left = image_row.generation + 1
                placing.leave(session, image_row, [host])
                hosts.note(session, "leave", [host], image)
            return views.placements(session, [(image, host)])[0]

    @retried
    def remove(self, image: str, host: str) -> None:
        """Forget the host's place; repeatable."""
        with self._turns.of(image), self._writing.begin() as session:
            image_row = session.get(ImageRow, image, with_for_update=True)
            if image_row is None or not placing.forget(session, image_row, [host]):
                return
            hosts.note(session, "remove", [host], image)
        LOG.info("Host %s removed from image %s", host, image)

    @retried
    def expel(self, image: str, names: Collection[str], before: int | None) -> int:
        """Take hosts out of the image's trees at once; whom they fed is placed again.

        With ``before``, those that were seen at that tick of Volt's clock or later stay.
        Returns how many went.
        """
        with self._turns.of(image), self._writing.begin() as session:
            image_row = session.get(ImageRow, image, with_for_update=True)
            if image_row is None:
                return 0
            silent = hosts.silent_of(session, names, before)
            return len(placing.forget(session, image_row, silent))

    @retried
    def reconsider(self, image: str, host: str) -> None:
        """Make the host feed as many others in the image's trees as it may; repeatable."""
        with self._turns.of(image), self._writing.begin() as session:
            image_row = session.get(ImageRow, image, with_for_update=True)
            row = hosts.hold(session, [host])[host]
            place = session.get(PlacementRow, (image, host))
            if image_row is None or place is None or not place.in_trees:
                return
            placing.adjust(session, image_row, row)

    @retried
    def _find_same(self, new: NewImage) -> Image | None:
        with self._writing.begin() as session:
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
                root_hash=new.root_hash,
                salt=new.salt,
                upper_hashes=new.upper_hashes,
                secret=new_secret(),
                inner=[0] * new.stripes,
                at_source=[0] * new.stripes,
                created_at=now,
                **columns.values(new.source),
            )
            row.source_proof = new.source_proof
            session.add(row)
            hosts.note(session, "image_create", [None], new.name)
            session.flush()
            image = views.images(session, new.name)[0]
        LOG.info("Image %s created", new.name)
        return image, True


def _image_row(session: Session, name: str, lock: bool = False) -> ImageRow:
    """Return the image's row; the lock makes its writers take turns where SQLite's does not.

    It lets others refer to the row meanwhile: hosts may begin to wait for a place.
    """
    row = session.get(ImageRow, name, with_for_update={"key_share": True} if lock else None)
    if row is None:
        raise ImageUnknown(f"image {name} is not known: create it with POST /v1/images")
    return row


def _placement_row(session: Session, image: str, host: str) -> PlacementRow:
    row = session.get(PlacementRow, (image, host))
    if row is None or row.generation == WAITING:
        raise _placeless(image, host)
    return row


def _placeless(image: str, host: str) -> HostUnknown:
    return HostUnknown(f"host {host} has no place in image {image}: let it join first")


def _same_image(session: Session, new: NewImage) -> Image | None:
    """Return the stored image if it has this content; raise ImageExists if it has other."""
    row = session.get(ImageRow, new.name, with_for_update=True)
    if row is None:
        return None
    stored, said = views.without_secret(row), new.without_secret()
    if stored != said:
        raise ImageExists(
            f"image {new.name} exists with another {_differences(stored, said)}: "
            "delete it first or take another name"
        )
    if row.source_proof != new.source_proof:
        row.source_proof = new.source_proof
        _renew_all(session, row)
        hosts.note(session, RENEWED, [None], new.name)
    return views.images(session, new.name)[0]


def _differences(one: NewImage, other: NewImage) -> str:
    """Return in words what two images differ in."""
    names = [part.name for part in fields(NewImage) if part.compare]
    differing = [name for name in names if getattr(one, name) != getattr(other, name)]
    return " and ".join(differing).replace("_", " ")


def _renew_all(session: Session, image: ImageRow) -> None:
    image.generation += 1
    session.execute(
        update(PlacementRow)
        .where(PlacementRow.image == image.name)
        .values(generation=image.generation)
    )


def _move(session: Session, image: ImageRow, host: str, portal: Portal) -> set[str]:
    """Let a placed host serve elsewhere; return those who have to know."""
    session.execute(
        update(PlacementRow)
        .where(PlacementRow.image == image.name, PlacementRow.host == host)
        .values(columns.values(portal))
    )
    return forests.readers(session, image, host)


def _wait(session: Session, image: str, hosts: Iterable[_Join]) -> None:
    """Let hosts wait for a place; none of them may have one."""
    about = {"image": image, "state": State.JOINING, "confirmed": 0, "generation": WAITING}
    rows = [about | {"host": one.host} | columns.values(one.portal) for one in hosts]
    if rows:
        session.connection().execute(_PLACEMENT, sorted(rows, key=itemgetter("host")))


def _return(session: Session, image: str, names: Collection[str]) -> None:
    """Let hosts that are leaving wait for a place again."""
    if names:
        session.execute(
            update(PlacementRow)
            .where(PlacementRow.image == image, PlacementRow.host.in_(names))
            .values(state=State.JOINING, confirmed=0, generation=WAITING, left=None, told=None)
        )
