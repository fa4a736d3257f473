"""Images of Glance under a node's disks: wanted at Volt, made by virtman-images, kept by Volt.

Nobody takes hold of one. Its name says which it is, ``glance-<id>``, and Volt keeps it while an
agent reports a disk of it, also while that agent is down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from virtman.api.answers import WantAnswer
from virtman.api.client import Client
from virtman.errors import VirtmanError

PREFIX = "glance-"

_PATIENCE = 120.0
"""Seconds for which nobody may make an image: one that made it and died is replaced after 30."""


class ImageLate(VirtmanError):
    """An image is still being made, and who wants it waits no longer."""

    code = "virtman.openstack.image_late"


def name_of(image_id: str) -> str:
    """Return what VirtMan calls an image, given its id at Glance."""
    return PREFIX + image_id


def is_of_glance(image: str) -> bool:
    """Tell whether an image is one of these, by its name."""
    return image.startswith(PREFIX)


class WantedImages:
    """The images of Glance, as one node uses them.

    :param timeout: seconds that one may take to be made
    """

    def __init__(
        self,
        agent: Client,
        timeout: float,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.agent = agent
        self.timeout = timeout
        self.now = now
        self.pause = pause

    def size(self, image: str) -> int:
        """Wait until an image can be had; return its bytes, once it is unpacked.

        :raises ImportFailed: if it cannot be made
        :raises ImageUnknown: if nobody makes it
        :raises ImageLate: if it is not there in time
        """
        deadline = self.now() + self.timeout

        def show(found: WantAnswer) -> None:
            if self.now() > deadline:
                raise ImageLate(
                    f"image {image} is not there after {self.timeout:g} s ({found['state']}: "
                    f"{found['detail']}, {found['done']} of {found['total']} bytes); raise "
                    "[virtman] image_timeout if it needs longer"
                )

        found = self.agent.await_image(image, show, patience=_PATIENCE, pause=self.pause)
        return found["size"] or 0

    def hold(self, image: str, volume: int = 0) -> None:
        """Have an image; the disk that is made of it keeps it."""
        self.size(image)

    def share(self, image: str, host: str) -> None:
        """Do nothing: the other node's disk keeps the image."""

    def release(self, image: str) -> None:
        """Do nothing: without disks nobody keeps the image."""

    def held(self) -> Sequence[str]:
        """Return no image: no hold is this node's to let go of."""
        return ()
