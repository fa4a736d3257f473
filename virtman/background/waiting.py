"""Whether VMs wait for what they read, and for how long reads have waited for parents.

A read that no parent answers gets no error: it waits in the kernel until one is back. So a VM does
not tell what it waits for, and this does.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from virtman import sysfs
from virtman.image.attachment import LONG_WAIT, Attachment
from virtman.node.images import Images
from virtman.periodic import Periodic

LOG = logging.getLogger(__name__)

_INTERVAL = 1.0


@dataclass(frozen=True)
class _Seen:
    """How many reads a device had answered when it owed one, and since when it gave no other."""

    answered: int
    since: float


class Waiting:
    """Looks at what is read from parents, of each image and stripe.

    What is cached is not: its reads have an answer while others wait.

    :param hasten: has a heartbeat sent now, as VMs have begun to wait
    :param clock: goes only forward
    """

    def __init__(
        self,
        images: Images,
        hasten: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.images = images
        self._hasten = hasten
        self._clock = clock
        self._seen: dict[str, _Seen] = {}  # of devices that owe an answer
        self._told: set[str] = set()  # images
        self._rounds = Periodic("waiting", self.look, _INTERVAL)

    def start(self) -> None:
        """Begin."""
        self._rounds.start()

    def stop(self) -> None:
        """End."""
        self._rounds.stop()

    def look(self) -> None:
        """Look at all images."""
        now, attached = self._clock(), self.images.attachments()
        seen: dict[str, _Seen] = {}
        if any([one.demand.look() for one in attached]):
            self._hasten()
        for one in attached:
            owing = {}
            for device in one.multipaths:
                with contextlib.suppress(FileNotFoundError):  # it is not there, or just goes
                    if sysfs.is_read(device):
                        owing[device] = self._since(device, now)
            one.waiting = max((now - found.since for found in owing.values()), default=0.0)
            self._tell(one)
            seen |= owing
        self._seen = seen
        self._told &= {one.info.name for one in attached}

    def _since(self, device: str, now: float) -> _Seen:
        answered, before = sysfs.reads(device), self._seen.get(device)
        return before if before and before.answered == answered else _Seen(answered, now)

    def _tell(self, one: Attachment) -> None:
        image = one.info.name
        if one.waiting >= LONG_WAIT and image not in self._told:
            self._told.add(image)
            LOG.warning(
                "image %s: VMs wait for what they read: no answer from %s for %.0f s",
                image, ", ".join(one.parents), one.waiting,
            )  # fmt: skip
        elif one.waiting < LONG_WAIT and image in self._told:
            self._told.discard(image)
            LOG.warning("image %s: VMs have what they read again", image)
