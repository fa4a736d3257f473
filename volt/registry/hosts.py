"""Who is there: what hosts say of themselves, and what becomes of those who fall silent."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, and_, case, delete, func, select
from sqlalchemy.orm import Session, sessionmaker

from volt.db import holds, hosts, placements, views
from volt.db.any_of import among
from volt.db.engine import for_reading, for_writing, retried
from volt.db.models import WAITING, EventRow, HostRow, NodeRow, PlacementRow
from volt.errors import HostUnknown, ReportMismatch, Unavailable
from volt.model.figures import Event
from volt.model.hosts import Host, News, Report
from volt.model.placements import Placement, State
from volt.registry import caps, demands
from volt.registry.batches import Batches
from volt.registry.placements import Placements
from volt.transport import Portal, columns

LOG = logging.getLogger(__name__)

LARGEST_BATCH = 256
"""Heartbeats in one transaction."""

GATHERING = 0.2
"""Seconds for which a heartbeat waits for others: one transaction costs as much as ten hosts."""

EXPELLED = 100
"""Hosts taken out of an image's trees in one transaction: joins wait for no more."""

EXPIRED = 1_000
"""Silent hosts that are looked for at once."""

_PLACES: Any = PlacementRow.__table__
_NODES: Any = NodeRow.__table__
# A host accepts children in all stripes or in none.
_IN_A_TREE = and_(
    _NODES.c.image == _PLACES.c.image, _NODES.c.host == _PLACES.c.host, _NODES.c.stripe == 0
)
_COMPARED: tuple[Any, ...] = (
    *(_PLACES.c[name] for name in ("image", "host", "generation", "confirmed", "state")),
    *(_PLACES.c[name] for name in ("whole", "complete")),
    _NODES.c.accepting,
)
_USED = (
    select(*_COMPARED)
    .select_from(_PLACES.outerjoin(_NODES, _IN_A_TREE))
    .where(among(_PLACES.c.host, "hosts"), _PLACES.c.generation != WAITING)
)

_Beat = tuple[str, Report]


class Hosts:
    """The use cases of hosts; safe to share between threads."""

    def __init__(self, engine: Engine, placements: Placements) -> None:
        self._reading = sessionmaker(for_reading(engine), expire_on_commit=False)
        self._writing = sessionmaker(for_writing(engine), expire_on_commit=False)
        self._placements = placements
        self._beats: Batches[_Beat, News] = Batches(self._beat, LARGEST_BATCH, alone=GATHERING)

    def heartbeat(self, host: str, report: Report) -> News:
        """Store what the host says; return where its placements differ from what it knows."""
        return self._beats.run((host, report))

    def _beat(self, beats: Sequence[_Beat]) -> list[News]:
        reports = dict(beats)
        feeds, shares, read, strained = self._hear(reports)
        news, forgotten, untold, had = self._compare(reports, feeds)
        for image, host in untold:
            self._placements.reconsider(image, host)
        for host in strained:
            self._placements.follow(host)
        if forgotten:
            self._placements.confirm(forgotten)
        if had:
            self._placements.have(had)
        return [
            replace(news[host], shares=shares.get(host, {}), read=read[host]) for host, _ in beats
        ]

    @retried
    def _hear(
        self, reports: Mapping[str, Report]
    ) -> tuple[
        dict[str, bool], Mapping[str, Mapping[str, int]], Mapping[str, tuple[str, ...]], list[str]
    ]:
        """Store reports; return which of the hosts may feed others now, and their shares.

        Also in which images they fetch ahead while VMs wait, and which were overloaded in their
        reports before too: one alone may be chance (ACStor, 3.6).
        """
        with self._writing.begin() as session:
            held = hosts.hold(session, reports)
            hosts.heard(session, reports)
            holds.hear(session, held, reports, datetime.now(UTC))
            shares = caps.deal(session, held, reports)
            read = demands.hear(session, held, reports)
        feeds = {
            name: replace(row, overloaded=reports[name].overloaded).feeds
            for name, row in held.items()
        }
        strained = [name for name, row in held.items() if row.overloaded]
        return feeds, shares, read, [name for name in strained if reports[name].overloaded]

    @retried
    def _compare(
        self, reports: Mapping[str, Report], feeds: Mapping[str, bool]
    ) -> tuple[
        dict[str, News],
        list[tuple[str, str, int]],
        list[tuple[str, str]],
        list[hosts.Had],
    ]:
        """Return the news of each host, and what else is not as the hosts say.

        That is: placements whose use was reported but not noted, images and hosts where the
        trees do not know yet whether the host may feed others, and who has all of an image, or
        not any more. These are found here, not when its word changes: whoever heard that may have
        died before the trees knew.
        """
        forgotten, stale, untold, had = [], [], [], []
        images: dict[str, set[str]] = {host: set() for host in reports}
        with self._reading.begin() as session:
            rows = session.connection().execute(_USED, {"hosts": sorted(reports)})
            for image, host, generation, confirmed, state, whole, complete, accepting in rows:
                images[host].add(image)
                if accepting not in (None, feeds[host]):
                    untold.append((image, host))
                used = reports[host].images.get(image)
                if used is None or state == State.LEAVING:
                    continue
                stripes = sum(1 << stripe for stripe in set(used.complete))
                if (used.whole, stripes) != (whole, complete):
                    had.append(hosts.Had(image, host, used.whole, stripes, used.whole != whole))
                if used.generation != generation:
                    stale.append((image, host))
                elif confirmed != generation or state == State.JOINING:
                    forgotten.append((image, host, generation))
            found = placements.placements(session, stale)
        changed: dict[str, list[Placement]] = {host: [] for host in reports}
        for placement in found:
            changed[placement.host].append(placement)
        news = {
            host: News(tuple(changed[host]), tuple(sorted(report.images.keys() - images[host])))
            for host, report in reports.items()
        }
        return news, forgotten, untold, had

    @retried
    def index(self, after: str = "", limit: int = 1000) -> list[Host]:
        """Return up to ``limit`` hosts by name, from the one after that name on."""
        with self._reading.begin() as session:
            now = hosts.tick(session)
            rows = session.scalars(
                select(HostRow).where(HostRow.name > after).order_by(HostRow.name).limit(limit)
            )
            return [views.host(row, now) for row in rows]

    @retried
    def show(self, name: str) -> Host:
        """Return what is known of a host; raises HostUnknown."""
        with self._reading.begin() as session:
            return views.host(_known(session, name), hosts.tick(session))

    def drain(self, host: str, draining: bool) -> Host:
        """Let the host feed nobody any more, or again; repeatable. Raises HostUnknown."""
        answer = self._set_draining(host, draining)
        self._reconsider(host)
        return answer

    @retried
    def _set_draining(self, host: str, draining: bool) -> Host:
        with self._writing.begin() as session:
            row = _known(session, host, lock=True)
            if row.draining != draining:
                row.draining = draining
                if not draining:
                    hosts.acquit(session, [host])
                hosts.note(session, "drain" if draining else "undrain", [host])
            return views.host(row, hosts.tick(session))

    def _reconsider(self, host: str) -> None:
        for image in self._placed([host]):
            self._placements.reconsider(image, host)

    @retried
    def silence(self, before: int) -> tuple[int, int]:
        """Return how many hosts there are, and how many were last seen before that tick."""
        with self._reading.begin() as session:
            # MariaDB has no FILTER for aggregates
            silent = func.count(case((HostRow.seen < before, 1)))
            known, unheard = session.execute(select(func.count(HostRow.name), silent)).one()
            return known, unheard

    @retried
    def silent(self, before: int, limit: int) -> list[str]:
        """Return up to ``limit`` hosts that were last seen before that tick, longest first."""
        with self._reading.begin() as session:
            query = select(HostRow.name).where(HostRow.seen < before)
            return list(session.scalars(query.order_by(HostRow.seen).limit(limit)))

    def expire(self, names: Collection[str], before: int | None = None) -> int:
        """Take dead hosts out of all trees and forget them; return how many.

        With ``before``, those that were seen at that tick or later stay as they are. So do
        those of an image whose trees cannot be changed: dead hosts of others shall not stay too.
        """
        for image, placed in self._placed(names).items():
            for first in range(0, len(placed), EXPELLED):
                self._expel(image, placed[first : first + EXPELLED], before)
        return self._forget(sorted(names), before)

    def _expel(self, image: str, names: Collection[str], before: int | None) -> None:
        try:
            self._placements.expel(image, names, before)
        except Unavailable:
            raise
        except Exception:
            LOG.exception("Dead hosts stay in the trees of image %s", image)

    def expire_silent(self, expiry: int) -> int:
        """Expire all hosts that are silent for more than so many ticks; return how many.

        They go however many they are: an operator says that they are dead.
        """
        before, gone = self._tick() - expiry, 0
        while names := self.silent(before, EXPIRED):
            expired = self.expire(names, before)
            if not expired:  # they are back just now
                break
            gone += expired
        return gone

    @retried
    def _tick(self) -> int:
        with self._reading.begin() as session:
            return hosts.tick(session)

    @retried
    def _forget(self, names: Collection[str], before: int | None) -> int:
        """Forget hosts that have no place; a place that came meanwhile keeps its host."""
        with self._writing.begin() as session:
            silent = hosts.silent_of(session, names, before)
            placed = set(
                session.scalars(select(PlacementRow.host).where(PlacementRow.host.in_(silent)))
            )
            gone = [name for name in silent if name not in placed]
            hosts.forget(session, gone)
            holds.forget_wishes(session, gone)
            hosts.note(session, "expire", gone)
        LOG.info("%d hosts expired", len(gone))
        return len(gone)

    @retried
    def _placed(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return images, and which of these hosts have a place in each."""
        found: dict[str, list[str]] = defaultdict(list)
        with self._reading.begin() as session:
            places = select(PlacementRow.image, PlacementRow.host).where(
                PlacementRow.host.in_(names)
            )
            for image, host in session.execute(
                places.order_by(PlacementRow.image, PlacementRow.host)
            ):
                found[image].append(host)
        return found

    @retried
    def suspects(
        self, image: str, host: str, parent: str | None
    ) -> tuple[Mapping[str | None, Portal], Portal]:
        """Return where the host's parents and standbys serve, by name, and where the host does.

        :param parent: one of them; None is the source

        Raises ImageUnknown, HostUnknown, ReportMismatch.
        """
        placement = self._placements.show(image, host)
        peers = (peer for feed in placement.stripes for peer in (feed.parent, feed.standby))
        portals = {peer.host: peer.portal for peer in peers if peer is not None}
        if parent not in portals:
            raise ReportMismatch(
                f"host {host} does not read image {image} from {parent or 'the source'}: "
                "fetch its placement again"
            )
        return portals, self._portal(image, host)

    @retried
    def accuse(self, host: str, reporter: str, memory: int) -> int:
        """Keep that a host sent wrong bytes to another; return how many said so of late."""
        with self._writing.begin() as session:
            hosts.hold(session, [host])
            return hosts.accuse(session, host, reporter, memory)

    @retried
    def _portal(self, image: str, host: str) -> Portal:
        with self._reading.begin() as session:
            row = session.get(PlacementRow, (image, host))
            if row is None:
                raise HostUnknown(f"host {host} has no place in image {image}: let it join first")
            return columns.portal(row)

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
    def note(self, kind: str, image: str | None, host: str | None, detail: str) -> None:
        """Keep an event."""
        with self._writing.begin() as session:
            hosts.note(session, kind, [host], image, detail)

    @retried
    def prune_events(self, keep: int) -> None:
        """Forget all but the last ``keep`` events."""
        with self._writing.begin() as session:
            last = session.scalar(select(func.max(EventRow.id))) or 0
            session.execute(delete(EventRow).where(EventRow.id <= last - keep))


def _known(session: Session, name: str, lock: bool = False) -> HostRow:
    row = session.get(HostRow, name, with_for_update=lock)
    if row is None:
        raise HostUnknown(f"host {name} is not known: it has neither joined an image nor reported")
    return row
