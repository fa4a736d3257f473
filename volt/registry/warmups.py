"""Who is asked to warm an image before VMs boot from it, and how far they are.

A host hears of it with its placements, warms the image as its agent does at an operator's word
there, and tells Volt how far it is. What was asked outlives both: an agent that starts anew
hears of it again until it has said how it ended.
"""

import logging
from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session, sessionmaker

from volt.db import warmups
from volt.db.engine import for_reading, for_writing, retried
from volt.db.models import HostRow
from volt.errors import HostUnknown, ProfileUnknown, WarmupUnknown
from volt.model.names import few
from volt.model.warmups import Chosen, Progress, Warmup, Wish
from volt.registry.batches import Turns
from volt.registry.images import known

LOG = logging.getLogger(__name__)


class Warmups:
    """The use cases of warm-ups; safe to share between threads."""

    def __init__(self, engine: Engine, turns: Turns[str]) -> None:
        """Take turns with all who write to images in this process, by the image's name."""
        self._reading = sessionmaker(for_reading(engine), expire_on_commit=False)
        self._writing = sessionmaker(for_writing(engine), expire_on_commit=False)
        self._turns = turns

    @retried
    def ask(self, image: str, workload: str, chosen: Chosen, now: datetime) -> list[Warmup]:
        """Ask hosts to warm the image for a workload; return what was asked of them. Repeatable.

        Raises ImageUnknown, ProfileUnknown, HostUnknown.
        """
        with self._turns.of(image), self._writing.begin() as session:
            row = known(session, image, lock=True)
            if workload not in row.profiles:
                raise ProfileUnknown(
                    f"image {image} has no profile {workload}, so nothing tells what to fetch: "
                    "boot VMs from it, or import a profile with 'volt-manage profile import'"
                )
            names = _hosts(session, chosen)
            row.generation += 1
            warmups.ask(session, image, workload, names, row.generation, now)
            asked = [one for one in warmups.of_image(session, image) if one.host in names]
        LOG.info("%d hosts are asked to warm image %s", len(asked), image)
        return asked

    @retried
    def index(self, image: str) -> list[Warmup]:
        """Return what was asked of an image, by host; raises ImageUnknown."""
        with self._reading.begin() as session:
            known(session, image)
            return warmups.of_image(session, image)

    @retried
    def of_host(self, host: str) -> list[Wish]:
        """Return what the host shall warm, or warms, by image."""
        with self._reading.begin() as session:
            return warmups.of_host(session, host)

    @retried
    def tell(self, image: str, host: str, progress: Progress) -> None:
        """Keep how far the host is; raises WarmupUnknown."""
        with self._writing.begin() as session:
            row = warmups.find(session, image, host)
            if row is None or row.generation != progress.generation:
                raise WarmupUnknown(
                    f"host {host} is not asked, or asked anew, to warm image {image}"
                )
            row.state, row.detail = progress.state, progress.detail
            row.wanted, row.there = progress.wanted, progress.there
        if progress.state.is_end:
            LOG.info("Host %s: image %s is %s", host, image, progress.state)


def _hosts(session: Session, chosen: Chosen) -> Collection[str]:
    """Return who is meant; raise HostUnknown if one is not known, or there is none."""
    query = select(HostRow.name)
    if chosen.hosts is not None:
        query = query.where(HostRow.name.in_(chosen.hosts))
    elif chosen.rack is not None:
        query = query.where(HostRow.rack == chosen.rack)
    found = set(session.scalars(query))
    strange = sorted(set(chosen.hosts or ()) - found)
    if strange:
        raise HostUnknown(
            f"not known: host {few(strange)}. An agent has to report first: "
            "'volt-manage host list' shows who did"
        )
    if not found:
        where = f"in rack {chosen.rack}" if chosen.rack is not None else "at this Volt"
        raise HostUnknown(f"no host has reported {where}: 'volt-manage host list' shows all")
    return found
