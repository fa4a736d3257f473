"""Where hosts hang in the trees of images, and how each change of that comes about.

Each verb is one transaction, under the locks that ``volt.registry.images`` tells of.

A join is the exception, as thousands may come at once: a first transaction, which holds
no image, only says who wants a place. Whoever takes the turn to give places next gives them
to all who wait by then, for whichever image, and whichever worker they asked: a large batch
costs little more than a single host. Those whose hosts have places when their turn comes have
nothing left to do. What the hosts are told is read when the images are free again.
Should a worker die before that, the next join has its hosts placed too.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from sqlalchemy import Engine, select, update
from sqlalchemy.orm import Session, sessionmaker

from volt.db import copies, forests, hosts, placements
from volt.db.analyze import Statistics
from volt.db.engine import for_reading, for_writing, hurry, retried
from volt.db.lines import add
from volt.db.models import WAITING, ImageRow, PlacementRow
from volt.db.placements import Key
from volt.errors import HostUnknown, PlacementStale, Unavailable
from volt.model.hosts import Wiring
from volt.model.placements import Placement, State
from volt.placement.rules import Shape
from volt.registry import images, placing
from volt.registry.batches import Batches, Turns
from volt.transport import Portal, columns

LOG = logging.getLogger(__name__)

LARGEST_BATCH = 64
"""Joins in one transaction: more share its cost, but the first waits for the last."""

GATHERING = 0.03
"""Seconds at most between two such transactions of a worker, for more joins to share one."""


@dataclass(frozen=True)
class _Join:
    image: str
    host: str
    portal: Portal
    wiring: Wiring


_UNKNOWN = Wiring()


class Placements:
    """The use cases of places in trees; safe to share between threads."""

    def __init__(self, engine: Engine, turns: Turns[str], uplink: int = 0) -> None:
        """Take turns with all who write to images in this process, by the image's name.

        ``uplink`` is what that of a rack carries, in bytes/s each way; 0 if that is not known.
        """
        self._statistics = Statistics(engine)
        self._reading = sessionmaker(for_reading(engine), expire_on_commit=False)
        self._writing = sessionmaker(for_writing(engine), expire_on_commit=False)
        self._joins = Batches(self._join, LARGEST_BATCH, between=GATHERING)
        self._turns = turns
        self._uplink = uplink

    @retried
    def show(self, image: str, host: str) -> Placement:
        """Return the host's place; raises ImageUnknown, HostUnknown."""
        with self._reading.begin() as session:
            images.known(session, image)
            _placement_row(session, image, host)
            return placements.placements(session, [(image, host)])[0]

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
            return tuple(placements.placements(session, [(image, host) for image in of_host]))

    def join(
        self, image: str, host: str, portal: Portal, wiring: Wiring = _UNKNOWN
    ) -> tuple[Placement, bool]:
        """Give the host a place, or its present place a new portal; return it and if it is new.

        Raises ImageUnknown, HostUnknown.
        """
        placement, is_new = self._joins.run(_Join(image, host, portal, wiring))
        if placement is None:  # there is no such image, or somebody removed the host just now
            return self.show(image, host), is_new
        return placement, is_new

    def _join(self, wanted: Sequence[_Join]) -> list[tuple[Placement | None, bool]]:
        last = {(one.image, one.host): one for one in wanted}  # of two that are alike the later
        fresh = self._arrive(last)
        try:
            placed = self._place(last)
        except Unavailable:
            raise
        except Exception:
            # an image that is at fault keeps nobody from a place in another one
            LOG.exception("Not all hosts that wait were placed")
            placed = self._place(last, with_others=False)
        self._statistics.grow(placed)
        found = self._found(last)
        return [(found.get(key), key in fresh) for key in ((one.image, one.host) for one in wanted)]

    @retried
    def _arrive(self, wanted: Mapping[Key, _Join]) -> set[Key]:
        """Let those of the hosts that have no place wait for one; return who is new.

        Nothing becomes of those who ask for an image that there is not.
        """
        with self._writing.begin() as session:
            hurry(session)  # they are told nothing before they have a place
            known = images.known_of(session, {image for image, _ in wanted})
            joins = {key: one for key, one in wanted.items() if key[0] in known}
            present = placements.standings(session, joins)
            _wait(session, [one for key, one in joins.items() if key not in present])
            hosts.arrive(session, {one.host: one.wiring for one in joins.values()})
        return {key for key in joins if key not in present or present[key].is_leaving}

    @retried
    def _place(self, wanted: Mapping[Key, _Join], *, with_others: bool = True) -> int:
        """Give a place to each host that waits for one; return how many these were.

        Nothing is done if others have placed these hosts meanwhile. So a large crowd is placed by
        few transactions, whichever workers it asks. Without ``with_others``, hosts that wait for
        images that none of these wants wait on.
        """
        names = sorted({image for image, _ in wanted})
        with self._turns.of_all(names), self._writing.begin() as session:
            placements.take_turn(session)
            # Should one of these be removed before its image is held, there is no row that its
            # place could belong to: then all of this is done again.
            present = placements.standings(session, wanted, with_waiting=with_others)
            moved = {
                key: one.portal
                for key, one in wanted.items()
                if key in present and present[key].portal != one.portal
            }
            returning = {key for key in wanted if key in present and present[key].is_leaving}
            joining = returning | {key for key, one in present.items() if one.is_waiting}
            if not (moved or joining):
                hurry(session)  # nothing is to be kept
                return 0
            rows = images.held(session, {image for image, _ in moved.keys() | joining})
            joining = {(image, host) for image, host in joining if image in rows}
            _return(session, returning)
            held = hosts.hold(session, {host for _, host in joining})
            new = _by_image(joining)
            placing.join(
                session, {rows[image]: [held[host] for host in new[image]] for image in new}
            )
            _move(session, rows, moved, new)
        for image, host in sorted(joining):
            LOG.info("Host %s placed in image %s", host, image)
        return len(joining)

    @retried
    def _found(self, wanted: Collection[Key]) -> dict[Key, Placement]:
        """Return the places of those of the hosts that have one."""
        with self._reading.begin() as session:
            found = placements.placements(session, wanted)
        return {(one.image, one.host): one for one in found}

    def ready(
        self, image: str, host: str, generation: int, stripes: Collection[int] | None = None
    ) -> Placement:
        """Note that the host reads from the parents of that generation, perhaps in some stripes.

        Raises ImageUnknown, HostUnknown, PlacementStale.
        """
        if stripes is None:
            self.confirm([(image, host, generation)])
        else:
            self._settle(image, host, generation, stripes)
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

    @retried
    def _settle(self, image: str, host: str, generation: int, stripes: Collection[int]) -> None:
        with self._writing.begin() as session:
            hosts.settle(session, image, host, generation, stripes)

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
                    hosts.note(session, "whole" if one.whole else "not_whole", [one.host], image)
            placing.house(session, image_row)
            if copies.understudies(session, image) != before:
                image_row.generation += 1
                forests.renew(session, {image_row: forests.near_source(session, image)})

    @retried
    def leave(self, image: str, host: str) -> Placement:
        """Take the host out of the trees but keep what it was told; repeatable.

        Raises ImageUnknown, HostUnknown.
        """
        with self._turns.of(image), self._writing.begin() as session:
            image_row = images.known(session, image, lock=True)
            row = _placement_row(session, image, host)
            if row.state != State.LEAVING:
                row.told = placements.told(session, image, host)
                row.state = State.LEAVING
                row.left = image_row.generation + 1
                placing.leave(session, image_row, [host], row.whole)
                hosts.note(session, "leave", [host], image)
            return placements.placements(session, [(image, host)])[0]

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
    def follow(self, host: str) -> None:
        """Let a host that stays overloaded own less of the rings that it is in; repeatable."""
        with self._reading.begin() as session:
            in_rings = (
                select(PlacementRow.image)
                .join(ImageRow, ImageRow.name == PlacementRow.image)
                .where(PlacementRow.host == host, ImageRow.shape == Shape.RING)
            )
            rings = list(session.scalars(in_rings.order_by(PlacementRow.image)))
            uplinks = self._uplinks(session) if rings else []
        for image in rings:
            with self._turns.of(image), self._writing.begin() as session:
                image_row = session.get(ImageRow, image, with_for_update=True)
                place = session.get(PlacementRow, (image, host))
                if image_row is None or place is None or not place.in_trees:
                    continue
                placing.follow(session, image_row, host, hosts.traffic(session, image), uplinks)

    def _uplinks(self, session: Session) -> list[float]:
        """Return which share of their uplinks racks use at most: what stays in them counts too."""
        if not self._uplink:
            return []
        return [load / self._uplink for load in hosts.loads(session)]


def _placement_row(session: Session, image: str, host: str) -> PlacementRow:
    row = session.get(PlacementRow, (image, host))
    if row is None or row.generation == WAITING:
        raise _placeless(image, host)
    return row


def _placeless(image: str, host: str) -> HostUnknown:
    return HostUnknown(f"host {host} has no place in image {image}: let it join first")


def _move(
    session: Session,
    rows: Mapping[str, ImageRow],
    moved: Mapping[Key, Portal],
    changed: Collection[str],
) -> None:
    """Let placed hosts serve elsewhere, and tell those who have to know.

    The generations of the images that ``changed`` are new already.
    """
    for image, names in _by_image(key for key in moved if key[0] in rows).items():
        told = set()
        for host in names:
            session.execute(
                update(PlacementRow)
                .where(PlacementRow.image == image, PlacementRow.host == host)
                .values(columns.values(moved[image, host]))
            )
            told |= forests.readers(session, rows[image], host)
        if not set(names).isdisjoint(copies.understudies(session, image)):
            told |= forests.near_source(session, image)
        if image not in changed:
            rows[image].generation += 1
        forests.renew(session, {rows[image]: told})


def _wait(session: Session, joins: Iterable[_Join]) -> None:
    """Let hosts wait for a place; none of them may have one."""
    about = {"state": State.JOINING, "confirmed": 0, "generation": WAITING}
    rows = [
        about | {"image": one.image, "host": one.host} | columns.values(one.portal) for one in joins
    ]
    rows.sort(key=itemgetter("image", "host"))
    add(session.connection(), PlacementRow.__table__, rows)


def _return(session: Session, keys: Collection[Key]) -> None:
    """Let hosts that are leaving wait for a place again."""
    for image, names in _by_image(keys).items():
        session.execute(
            update(PlacementRow)
            .where(PlacementRow.image == image, PlacementRow.host.in_(names))
            .values(state=State.JOINING, confirmed=0, generation=WAITING, left=None, told=None)
            .values(whole=False, complete=0, chosen=False)  # until it says so, and is asked anew
        )


def _by_image(keys: Iterable[Key]) -> dict[str, list[str]]:
    """Return the hosts of each image, both in the order of their names."""
    found: dict[str, list[str]] = {}
    for image, host in sorted(keys):
        found.setdefault(image, []).append(host)
    return found
