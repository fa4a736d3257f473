"""What may be fetched ahead of VMs: caps that operators set, and the shares that hosts get of them.

Caps are locked by kind and name, after images and hosts. Who deals shares out holds the hosts
that get them, so nobody else changes what these were granted.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker

from volt.db import caps, hosts
from volt.db.caps import CapRow
from volt.db.engine import for_reading, for_writing, retried
from volt.db.hosts import Held
from volt.model.caps import Cap, CapKind, Dealing, Key
from volt.model.hosts import Report
from volt.registry.images import known

LOG = logging.getLogger(__name__)


class Caps:
    """The use cases of caps; safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._reading = sessionmaker(for_reading(engine), expire_on_commit=False)
        self._writing = sessionmaker(for_writing(engine), expire_on_commit=False)

    @retried
    def index(self) -> list[Cap]:
        """Return all caps, by kind and name."""
        with self._reading.begin() as session:
            return caps.index(session)

    @retried
    def put(self, kind: CapKind, name: str, rate: int) -> tuple[Cap, bool]:
        """Let no more bytes a second be fetched ahead; return the cap, and whether it is new.

        Raises ImageUnknown. A rack may have a cap before it has hosts, a host before it is known.
        """
        with self._writing.begin() as session:
            if kind == CapKind.IMAGE:
                known(session, name, lock=True)
            row = caps.find(session, kind, name)
            is_new = row is None
            if row is None:
                session.add(CapRow(kind=kind, name=name, rate=rate))
            else:
                row.rate = rate
            (cap,) = caps.totals(session, {(kind, name): rate})
        LOG.info("%s %s has a cap of %d bytes/s", kind.capitalize(), name, rate)
        return cap, is_new

    @retried
    def clear(self, kind: CapKind, name: str) -> bool:
        """Remove a cap; repeatable. Return whether there was one."""
        with self._writing.begin() as session:
            was_there = caps.remove(session, kind, name)
        if was_there:
            LOG.info("%s %s has no cap any more", kind.capitalize(), name)
        return was_there


def deal(
    session: Session, held: Mapping[str, Held], reports: Mapping[str, Report]
) -> dict[str, dict[str, int]]:
    """Return the share of each image that these hosts, whose rows are held, fetch ahead in.

    Images to which no cap applies are left out. Hosts that do not fetch ahead, and have no shares,
    cost nothing: they are most.
    """
    taking = {name for name, one in held.items() if one.taking}
    wanted = [
        (host, image)
        for host, report in reports.items()
        for image, one in report.images.items()
        if one.ahead
    ]
    if not (wanted or taking):
        return {}
    applying = {(host, image): _applying(image, held[host]) for host, image in wanted}
    rates = caps.hold(session, set().union(*applying.values()))
    takers = {
        taker: keys for taker, all_keys in applying.items() if (keys := all_keys & rates.keys())
    }
    had = caps.granted(session, taking) if taking else {}
    caps.forget(session, had.keys() - takers.keys())
    caps.add(session, takers.keys() - had.keys())
    dealing = Dealing(caps.totals(session, rates))
    shares: dict[str, dict[str, int]] = defaultdict(dict)
    for (host, image), keys in takers.items():
        shares[host][image] = dealing.share(keys, had.get((host, image), 0))
    granted = {(host, image): share for host, own in shares.items() for image, share in own.items()}
    caps.grant(session, granted.items() - had.items())
    hosts.take(session, shares.keys() - taking, True)
    hosts.take(session, taking - shares.keys(), False)
    return shares


def _applying(image: str, host: Held) -> set[Key]:
    """Return which caps would hold for what a host fetches ahead in an image."""
    keys = {(CapKind.IMAGE, image), (CapKind.HOST, host.name)}
    return keys if host.rack is None else keys | {(CapKind.RACK, host.rack)}
