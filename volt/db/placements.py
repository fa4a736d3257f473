"""What hosts are told of their places: whom they read from, and where these serve."""

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Select, func, literal_column, select, union
from sqlalchemy.orm import Session

from volt.db import caps, copies
from volt.db.any_of import among, paired
from volt.db.models import WAITING, ImageRow, NodeRow, PlacementRow, TurnRow
from volt.model.images import CopyPolicy, Hydration
from volt.model.placements import Feed, Peer, Placement, State
from volt.model.profiles import Profiled
from volt.placement.rules import Shape
from volt.transport import Portal, columns

# Statements are made once: making one anew takes longer than running it.
_NODES: Any = NodeRow.__table__
_PLACES: Any = PlacementRow.__table__


def _of(table: Any, *columns: str) -> Select[Any]:
    """Return the query of the rows of images and hosts; see ``paired`` for which."""
    return select(table.c.image, *(table.c[name] for name in columns)).where(
        paired(table.c.image, table.c.host)
    )


_IMAGES = select(ImageRow).where(among(ImageRow.name, "images"))  # type: ignore[arg-type]
_PLACED = (
    _of(_PLACES, "host", "state", "generation", "left", "told", "chosen")
    .add_columns(caps.applies(_PLACES).label("capped"))
    .where(_PLACES.c.generation != WAITING)
    .order_by(_PLACES.c.image, _PLACES.c.host)
)
_PARENT, _STANDBY = _PLACES.alias("parent"), _PLACES.alias("standby")
_PARENT_NODE = _NODES.alias("parent_node")
_FED = (
    _of(_NODES, "host", "parent", "standby", "inner")
    .add_columns(*(_PARENT.c[name] for name in columns.PORTAL))
    .add_columns(*(_STANDBY.c[name].label(f"standby_{name}") for name in columns.PORTAL))
    .add_columns((_PARENT_NODE.c.moved > _PARENT.c.confirmed).label("moving"))
    .outerjoin_from(
        _NODES,
        _PARENT,
        (_PARENT.c.image == _NODES.c.image) & (_PARENT.c.host == _NODES.c.parent),
    )
    .outerjoin(
        _STANDBY, (_STANDBY.c.image == _NODES.c.image) & (_STANDBY.c.host == _NODES.c.standby)
    )
    .outerjoin(
        _PARENT_NODE,
        (_PARENT_NODE.c.image == _NODES.c.image)
        & (_PARENT_NODE.c.stripe == _NODES.c.stripe)
        & (_PARENT_NODE.c.host == _NODES.c.parent),
    )
    .order_by(_NODES.c.stripe)
)
_OF_PARENT = slice(5, 5 + len(columns.PORTAL))
_OF_STANDBY = slice(_OF_PARENT.stop, _OF_PARENT.stop + len(columns.PORTAL))
_STANDING = ("host", "generation", "left", *columns.PORTAL)
_STANDINGS = _of(_PLACES, *_STANDING)
_WAITING = select(*(_PLACES.c[name] for name in ("image", *_STANDING))).where(
    # Said in the statement, not beside it: else the index of those who wait would not do.
    _PLACES.c.generation == literal_column(str(WAITING))
)
_STANDINGS_AND_WAITING = union(_STANDINGS, _WAITING)
_PORTALS = _of(_PLACES, "host", *columns.PORTAL)
_TURN = select(TurnRow.name).where(TurnRow.name == "places").with_for_update()
_STANDING_BY = copies.standing_by("host", *columns.PORTAL)

Key = tuple[str, str]
"""An image, and a host that joined it."""

Told = list[list[str | None]]
"""Parent and standby of a host in each stripe."""


@dataclass(frozen=True)
class Standing:
    """How a host that joined stands: where it serves, and whether it has a place."""

    portal: Portal
    is_waiting: bool
    is_leaving: bool


def take_turn(session: Session) -> None:
    """Wait until no other transaction gives places; none does until this one ends."""
    connection = session.connection()
    if connection.dialect.name != "sqlite":  # whose writers take turns anyway
        connection.execute(_TURN)


def standings(
    session: Session, keys: Collection[Key], with_waiting: bool = False
) -> dict[Key, Standing]:
    """Return how those of the hosts stand that joined, and perhaps all others who wait."""
    query = _STANDINGS_AND_WAITING if with_waiting else _STANDINGS
    found = {
        (row.image, row.host): Standing(
            columns.portal(row), row.generation == WAITING, row.left is not None
        )
        for row in session.connection().execute(query, _asked(keys))
    }
    return {
        key: one for key, one in found.items() if key in keys or (with_waiting and one.is_waiting)
    }


@dataclass(frozen=True)
class _Peers:
    """Whom hosts are told of: parents and standbys by stripe, where they serve, who stands by.

    ``inner`` are the stripes in which the hosts themselves may feed others, and ``moving`` those
    in which their parents have another parent than before, and have not said that they use it.
    """

    told: Mapping[Key, Told]
    inner: Mapping[Key, tuple[int, ...]]
    moving: Mapping[Key, Collection[int]]
    portals: Mapping[Key, Portal]
    standing_by: Mapping[str, Sequence[str]]


def placements(session: Session, keys: Collection[Key]) -> list[Placement]:
    """Return the placements of these hosts, by image and host."""
    if not keys:
        return []
    session.flush()
    asked = _asked(keys)
    images = _images(session, {image for image, _ in keys})
    found = session.connection().execute(_PLACED, asked)
    rows = [row for row in found if (row.image, row.host) in keys]
    peers = _peers(session, images, rows)
    return [_placement(session, images[row.image], row, peers) for row in rows]


def portals_of(session: Session, keys: Collection[Key]) -> dict[Key, Portal]:
    """Return where these hosts serve these images."""
    if not keys:
        return {}
    rows = session.connection().execute(_PORTALS, _asked(keys))
    return {(row.image, row.host): columns.portal(row) for row in rows}


def told(session: Session, image: str, host: str) -> Told:
    """Return parent and standby of the host in each stripe."""
    return _fed(session, {(image, host)}).told[image, host]


def forget_told(session: Session, image: str, gone: Collection[str]) -> set[str]:
    """Let hosts that left and were told of these turn to the source; return their names."""
    changed = set()
    leaving = PlacementRow.image == image, PlacementRow.left.is_not(None)
    for row in session.scalars(select(PlacementRow).where(*leaving)):
        known: Told = [
            [None, None] if parent in gone else [parent, None if standby in gone else standby]
            for parent, standby in row.told or []
        ]
        if known != row.told and row.host not in gone:
            row.told = known
            changed.add(row.host)
    return changed


def policy(image: ImageRow) -> CopyPolicy | None:
    """Return how hosts copy all of an image, if they do."""
    after = image.hydrate_after
    if after is None:
        return None
    return CopyPolicy(after, image.hydrate_rate or 0, image.hydrate_copies)


def _images(session: Session, names: Collection[str]) -> dict[str, ImageRow]:
    """Return the rows of those of these images that there are."""
    if len(names) == 1:  # the transaction often has it already
        row = session.get(ImageRow, *names)
        return {} if row is None else {row.name: row}
    return {row.name: row for row in session.scalars(_IMAGES, {"images": sorted(names)})}


def _asked(keys: Iterable[Key]) -> dict[str, list[str]]:
    ordered = sorted(keys)
    return {"images": [image for image, _ in ordered], "hosts": [host for _, host in ordered]}


def _placement(session: Session, image: ImageRow, row: Any, peers: _Peers) -> Placement:
    return Placement(
        image.name,
        row.host,
        image.size,
        State(row.state),
        row.generation,
        row.left is None or _waited_for(session, image.name),
        image.peers_proof,
        _feeds(image, row.host, peers),
        tuple(Profiled(*each) for each in sorted(image.profiles.items())),
        row.capped,
        _hydration(image, row.chosen),
        peers.inner.get((image.name, row.host), ()) if image.shape == Shape.RING else None,
    )


def _peers(session: Session, images: Mapping[str, ImageRow], rows: Sequence[Any]) -> _Peers:
    """Return whom placements name; those that left, whom they were told of before."""
    left: dict[Key, Told] = {
        (row.image, row.host): row.told for row in rows if row.told is not None
    }
    fed = _fed(session, {(row.image, row.host) for row in rows} - left.keys())
    pairs = {**fed.told, **left}
    named = {(key[0], peer) for key, told in pairs.items() for pair in told for peer in pair}
    homes = {(name, row.home) for name, row in images.items()}
    others = {(image, peer) for image, peer in named | homes if peer is not None}
    portals = {**fed.portals, **portals_of(session, others - fed.portals.keys())}
    standing_by = {}
    for name in sorted(image for image, peer in named if peer is None):
        found = {row.host: columns.portal(row) for row in _standing_by(session, name)}
        portals |= {(name, host): portal for host, portal in found.items()}
        standing_by[name] = sorted(found)
    return replace(fed, told=pairs, portals=portals, standing_by=standing_by)


def _fed(session: Session, keys: Collection[Key]) -> _Peers:
    """Return whom hosts in the trees are told of, but for those who stand by for the source."""
    pairs: dict[Key, Told] = defaultdict(list)
    inner: dict[Key, tuple[int, ...]] = {}
    moving: dict[Key, set[int]] = defaultdict(set)
    portals: dict[Key, Portal] = {}
    if keys:
        for row in session.connection().execute(_FED, _asked(keys)):
            if (row.image, row.host) in keys:
                key = row.image, row.host
                if row.inner:
                    inner[key] = (*inner.get(key, ()), len(pairs[key]))
                if row.moving:
                    moving[key].add(len(pairs[key]))
                pairs[key].append([row.parent, row.standby])
                for peer, portal in (row.parent, row[_OF_PARENT]), (row.standby, row[_OF_STANDBY]):
                    if portal[0] is not None:
                        portals[row.image, peer] = Portal(*portal)
    return _Peers(pairs, inner, moving, portals, {})


def _standing_by(session: Session, image: str) -> Iterable[Any]:
    return session.connection().execute(_STANDING_BY, {"image": image})


def _feeds(image: ImageRow, host: str, peers: _Peers) -> tuple[Feed, ...]:
    """Return who feeds a host; in place of the source that is the image's home, if it has one.

    The home has all of the image. Should that turn out wrong, it must not wait for those who read
    from it: so the source alone feeds it. Where only the source feeds any other, or would stand by,
    a host stands by that has all of the image.
    """

    def peer(name: str | None) -> Peer:
        if name is None:
            return Peer(None, columns.portal(image), image.source_proof)
        return Peer(name, peers.portals[image.name, name], image.peers_proof)

    told = peers.told[image.name, host]
    if host == image.home:
        return tuple(Feed(stripe, peer(None), None, ready=True) for stripe in range(len(told)))
    standing_by = peers.standing_by.get(image.name, ())
    moving = peers.moving.get((image.name, host), ())
    feeds = []
    for stripe, (parent, standby) in enumerate(told):
        first, second = parent or image.home, standby or image.home
        others = [one for one in standing_by if one not in (host, first)]
        if second in (None, first) and others:
            second = others[zlib.crc32(host.encode()) % len(others)]
        other = None if first == second else peer(second)
        feeds.append(Feed(stripe, peer(first), other, stripe not in moving))
    return tuple(feeds)


def _hydration(image: ImageRow, chosen: bool) -> Hydration | None:
    """Return when a host copies all of an image."""
    how = policy(image)
    if how is None or not (chosen or how.copies is None):
        return None
    return Hydration(how.after, how.rate)


def _waited_for(session: Session, image: str) -> bool:
    """Tell whether somebody in the trees may still read from a host that has left them.

    All leaving hosts are waited for together: one that nobody reads from may yet lie
    between another and those who do.
    """
    last = select(func.max(PlacementRow.left)).where(PlacementRow.image == image)
    behind = select(PlacementRow.host).where(
        PlacementRow.image == image,
        PlacementRow.left.is_(None),
        PlacementRow.confirmed < PlacementRow.generation,
        PlacementRow.confirmed < last.scalar_subquery(),
    )
    return session.scalars(behind.limit(1)).first() is not None
