"""Which images are needed by disks of hosts, whether or not these hosts are there.

A host says with each heartbeat of which images it has disks: VMs, running or not, and snapshots.
Volt keeps that when the host expires, and does not forget an image that somebody needs: a host that
comes back finds what its disks lie on. Only the host itself lets go, or an operator who knows that
it does not come back.
"""

import logging

from sqlalchemy import Engine
from sqlalchemy.orm import sessionmaker

from volt.db import holds, hosts
from volt.db.engine import for_reading, for_writing, retried
from volt.db.models import HostRow
from volt.errors import HoldLive
from volt.model.images import Hold

LOG = logging.getLogger(__name__)


class Holds:
    """The use cases of holds; safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._reading = sessionmaker(for_reading(engine), expire_on_commit=False)
        self._writing = sessionmaker(for_writing(engine), expire_on_commit=False)

    @retried
    def index(self, image: str | None = None, host: str | None = None) -> list[Hold]:
        """Return all holds, or those of an image, of a host; by image and host."""
        with self._reading.begin() as session:
            return holds.index(session, image, host)

    @retried
    def release(self, image: str, host: str, *, by_itself: bool = False) -> bool:
        """Let go of what a host needed; return whether it needed the image. Repeatable.

        ``by_itself`` is that the host says so. Else it has to have expired, as its next heartbeat
        would bring the hold back: raises HoldLive.
        """
        with self._writing.begin() as session:
            is_heard = session.get(HostRow, host, with_for_update=True) is not None
            if is_heard and not by_itself:
                raise HoldLive(
                    f"host {host} has not expired, and lets go of image {image} itself once it "
                    "has no disk of it: destroy its VMs and snapshots there"
                )
            row = holds.find(session, image, host)
            if row is None:
                return False
            session.delete(row)
            if is_heard:  # should it say the same as before, that is news
                hosts.need(session, {host: hosts.UNKNOWN})
            if not by_itself:
                hosts.note(session, "release", [host], image, f"needed by {row.disks} disks")
        LOG.info("Image %s is not kept for disks of host %s any more", image, host)
        return True
