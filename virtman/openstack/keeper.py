"""Serves golden volumes: attached here to read only, shown to Volt, given back when unused.

All that it must know is in Cinder: which volumes are golden is in their metadata, who needs one
in its attachments. So it can be restarted, or moved to another host, at any time.

::

    a compute node makes it   served   nobody holds it for keep_time   given back
    ----------------------> [ tend ] ------------------------------> [ retire ]
                                 ^                                        |
                                 +---- Volt or Cinder: still in use ------+
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from virtman.errors import VirtmanError
from virtman.openstack.cinder import Cinder, Connection, Volume
from virtman.openstack.golden import MARK, holder_of

LOG = logging.getLogger(__name__)

_READY = frozenset({"available", "in-use"})
_FAILED = "error"
# An attachment that is not complete after that belongs to somebody who died over it.
_BEGUN = 60.0


class Sources(Protocol):
    """Serving to the hosts of the trees."""

    def add(self, image: str, path: str) -> None:
        """Serve a block device, and tell Volt; repeatable."""

    def remove(self, image: str) -> None:
        """Undo that; raises an error while Volt's hosts use the image. Repeatable."""


class Initiator(Protocol):
    """Reaching volumes from this host, as os-brick does."""

    def properties(self) -> Mapping[str, Any]:
        """Return what Cinder must know of this host."""

    def connect(self, connection: Connection) -> str:
        """Return the path of a volume's device; repeatable."""

    def disconnect(self, connection: Connection) -> None:
        """Let go of the device; repeatable."""


class Keeper:
    """Looks after all golden volumes of a project, in rounds.

    :param host: what this host calls itself to Cinder
    :param keep_time: seconds for which a volume stays after the last compute node let it go
    """

    def __init__(
        self,
        cinder: Cinder,
        sources: Sources,
        initiator: Initiator,
        host: str,
        keep_time: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cinder = cinder
        self.sources = sources
        self.initiator = initiator
        self.holder = holder_of(f"keeper:{host}")
        self.keep_time = keep_time
        self.now = now
        self._served: dict[str, str] = {}
        self._unused: dict[str, float] = {}
        self._begun: dict[str, float] = {}

    def tend(self) -> None:
        """Do one round; what fails for one image is logged, and tried again in the next."""
        groups: dict[str, list[Volume]] = {}
        for volume in self.cinder.marked(MARK):
            groups.setdefault(volume.name, []).append(volume)
        for image, volumes in groups.items():
            try:
                self._tend(image, volumes)
            except Exception as err:
                LOG.warning("image %s: %s", image, err)

    def _tend(self, image: str, volumes: Sequence[Volume]) -> None:
        for volume in volumes:
            self._tidy(volume)
        # Whoever makes a volume takes hold of it only when it is there.
        made = all(volume.status in (*_READY, _FAILED) for volume in volumes)
        if not made or any(volume.holders.keys() - {self.holder} for volume in volumes):
            self._unused.pop(image, None)
        elif self.now() - self._unused.setdefault(image, self.now()) > self.keep_time:
            self._retire(image, volumes)
            return
        good = [volume for volume in volumes if volume.status != _FAILED]
        # One that is served already stays the one, whatever another node has made beside it;
        # else it is the oldest, as for the nodes, even if another is there sooner.
        chosen = next((one for one in good if self.holder in one.holders), None) or next(
            iter(good), None
        )
        if chosen and chosen.status in _READY:
            self._serve(image, chosen)
            self._spare(chosen, good)

    def _serve(self, image: str, volume: Volume) -> None:
        if self._served.get(image) == volume.id:
            return
        if self.holder in volume.holders:
            connection = self.cinder.connection(volume.holders[self.holder])
        else:
            connection = self.cinder.attach(volume.id, self.holder, self.initiator.properties())
        self.sources.add(image, self.initiator.connect(connection))
        self._served[image] = volume.id
        LOG.info("image %s is served from volume %s", image, volume.id)

    def _spare(self, chosen: Volume, volumes: Sequence[Volume]) -> None:
        """Give back what another node made beside the one that all take."""
        for volume in volumes:
            if volume.id != chosen.id and volume.status == "available":
                self.cinder.delete(volume.id)
                LOG.info("volume %s was one too many of %s", volume.id, chosen.name)

    def _retire(self, image: str, volumes: Sequence[Volume]) -> None:
        """Give volumes back that nobody needs; each step can be refused, and repeated."""
        if any(self.holder in volume.holders for volume in volumes):
            try:
                self.sources.remove(image)
            except VirtmanError as err:
                LOG.debug("image %s stays: %s", image, err)
                return
        self._served.pop(image, None)
        for volume in volumes:
            if self.holder in volume.holders:
                attachment = volume.holders[self.holder]
                self.initiator.disconnect(self.cinder.connection(attachment))
                self.cinder.detach(attachment)
            # Cinder refuses if a compute node took hold of it just now: it is served again then.
            self.cinder.delete(volume.id)
            LOG.info("golden volume %s of image %s is given back", volume.id, image)
        self._unused.pop(image, None)

    def _tidy(self, volume: Volume) -> None:
        """End attachments that somebody began and did not live to complete."""
        if volume.status in (*_READY, _FAILED):
            return
        for attachment in self.cinder.reserved(volume.id):
            if self.now() - self._begun.setdefault(attachment, self.now()) > _BEGUN:
                LOG.warning("attachment %s of %s was never completed", attachment, volume.id)
                self.cinder.detach(attachment)
                del self._begun[attachment]
