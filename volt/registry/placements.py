"""Where hosts hang in the trees of images, and how each change of that comes about.

Each verb is one transaction, under the locks that ``volt.registry.images`` tells of.

A join is the exception, as thousands may come at once: a first transaction, which holds
no image, only says who wants a place. Whoever holds the image next gives places to all
who wait by then, whichever worker they asked: a large batch costs little more than a
single host. Should a worker die between the two, the next join has its hosts placed too.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.orm import Session, sessionmaker

from volt.db import analyze, copies, forests, hosts, views
from volt.db.engine import for_reading, for_writing, hurry, retried
from volt.db.models import WAITING, ImageRow, PlacementRow
from volt.errors import HostUnknown, PlacementStale
from volt.model.objects import Placement, State
from volt.registry import images, placing
from volt.registry.batches import Batches, Turns
from volt.transport import Portal, columns

LOG = logging.getLogger(__name__)

_PLACEMENT = insert(PlacementRow.__table__)  # type: ignore[arg-type]

LARGEST_BATCH = 64
"""Joins in one transaction: more share its cost, but the first waits for the last."""


@dataclass(frozen=True)
class _Join:
    host: str
    portal: Portal
    rack: str | None


class Placements:
    """The use cases of places in trees; safe to share between threads."""

    def __init__(self, engine: Engine, turns: Turns[str]) -> None:
        """Take turns with all who write to images in this process, by the image's name."""
        self._engine = engine
        self._reading = sessionmaker(for_reading(engine), expire_on_commit=False)
        self._writing = sessionmaker(for_writing(engine), expire_on_commit=False)
        self._joins = Batches(self._join, LARGEST_BATCH)
        self._turns = turns

    @retried
    def show(self, image: str, host: str) -> Placement:
        """Return the host's place; raises ImageUnknown, HostUnknown."""
        with self._reading.begin() as session:
            images.known(session, image)
            _placement_row(session, image, host)
            return views.placements(session, [(image, host)])[0]

    @retried
    def of_host(self, host: str) -> tuple[Placement, ...]:
        """Return the places that the host has in the trees of all images, by image."""
        with self._reading.begin() as session:
            of_host = session.scalars(
                select(PlacementRow.image).where(
                    PlacementRow.host == host,
                    PlacementRow.state != State.LEAVING,
                    PlacementRow.generation != WAITING,
                )
            )
            return tuple(views.placements(session, [(image, host) for image in of_host]))

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
            hurry(session)  # they are told nothing before they have a place
            images.known(session, image)
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
            image_row = images.known(session, image, lock=True)
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
        placement = self.show(image, host)
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

    def have(self, said: Collection[hosts.Had]) -> None:
        """Note which hosts have all of an image, or not any more."""
        for image in sorted({one.image for one in said}):
            self._have(image, sorted(one for one in said if one.image == image))

    @retried
    def _have(self, image: str, said: Collection[hosts.Had]) -> None:
        with self._turns.of(image), self._writing.begin() as session:
            image_row = session.get(ImageRow, image, with_for_update=True)
            if image_row is None:
                return
            before = copies.understudies(session, image)
            hosts.have(session, said)
            for one in said:
                if one.is_new:
                    kind = "whole" if one.whole else "not_whole"
                    hosts.note(session, kind, [one.host], image)
            if copies.understudies(session, image) != before:
                image_row.generation += 1
                forests.renew(session, image_row, forests.near_source(session, image))

    @retried
    def leave(self, image: str, host: str) -> Placement:
        """Take the host out of the trees but keep what it was told; repeatable.

        Raises ImageUnknown, HostUnknown.
        """
        with self._turns.of(image), self._writing.begin() as session:
            image_row = images.known(session, image, lock=True)
            row = _placement_row(session, image, host)
            if row.state != State.LEAVING:
                row.told = views.told(session, image_row, host)
                row.state = State.LEAVING
                row.left = image_row.generation + 1
                placing.leave(session, image_row, [host], row.whole)
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


def _placement_row(session: Session, image: str, host: str) -> PlacementRow:
    row = session.get(PlacementRow, (image, host))
    if row is None or row.generation == WAITING:
        raise _placeless(image, host)
    return row


def _placeless(image: str, host: str) -> HostUnknown:
    return HostUnknown(f"host {host} has no place in image {image}: let it join first")


def _move(session: Session, image: ImageRow, host: str, portal: Portal) -> set[str]:
    """Let a placed host serve elsewhere; return those who have to know."""
    session.execute(
        update(PlacementRow)
        .where(PlacementRow.image == image.name, PlacementRow.host == host)
        .values(columns.values(portal))
    )
    readers = forests.readers(session, image, host)
    if host in copies.understudies(session, image.name):
        readers |= forests.near_source(session, image.name)
    return readers


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
            .values(whole=False, complete=0, chosen=False)  # until it says so, and is asked anew
        )
