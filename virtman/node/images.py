"""Which images are on this node, and for whom: their attachments, and what Volt hears of them.

An image is attached for as long as a VM, a layer, or somebody else here uses it. Volt hears which
images this node *needs*: those with disks here, and those that somebody waits for who may not have
been made yet.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from virtman.coordinator.interface import Coordinator, ImageInfo, Import
from virtman.disk.origins import Origins
from virtman.disk.records import Records
from virtman.errors import CoordinatorUnreachable, ImageUnknown, VirtmanError
from virtman.image.attachment import Attachment
from virtman.image.copies import Copies
from virtman.image.life import Times
from virtman.model import naming
from virtman.model.placement import Placement, own_portal
from virtman.stack.builder import Stack, check_modules

LOG = logging.getLogger(__name__)

WISH = 60.0
"""Seconds for which an image is wanted that somebody asked for once."""


@dataclass(frozen=True)
class Host:
    """This node: its name, and where it serves images."""

    name: str
    ip: str
    port: int


class Images:
    """Those of this node.

    :ivar needs_changed: set when Volt should hear at once which images this node needs
    """

    def __init__(
        self,
        host: Host,
        stack: Stack,
        coordinator: Coordinator,
        records: Records,
        origins: Origins,
        times: Times,
        copies: Copies,
    ) -> None:
        self.host = host
        self.stack = stack
        self.coordinator = coordinator
        self.copies = copies
        self.needs_changed = threading.Event()
        self._records = records
        self._origins = origins
        self._times = times
        # Guards the two below; held for moments only.
        self._lock = threading.Lock()
        self._attachments: dict[str, Attachment] = {}
        # Images that somebody here waits for, and until when.
        self._wishes: dict[str, float] = {}

    def attachments(self) -> Sequence[Attachment]:
        """Return the images that are attached, or on their way."""
        with self._lock:
            return [one for one in self._attachments.values() if one.is_attached]

    def moving(self) -> set[str]:
        """Return the images that are being attached just now, or left."""
        with self._lock:
            return {name for name, one in self._attachments.items() if one.is_moving()}

    def names(self) -> set[str]:
        """Return the images that are attached, or moving, or of which something is here."""
        attached = {one.info.name for one in self.attachments()}
        copied = {one.image for one in self.copies.all()}
        return attached | copied | self.written() | self.moving() | self.stack.present().keys()

    def written(self) -> set[str]:
        """Return the images of which VMs or stores are written down."""
        inventory = self._records.inventory()
        stores = {one.image for one in inventory.stores.values()}
        return stores | {one.image for one in inventory.instances.values()}

    def want(self, image: str) -> ImageInfo | Import:
        """Have an image made that Volt may not know yet; return it, or how far that is.

        It is wanted for a minute from then on. Whoever goes on waiting asks again.
        """
        naming.check("image", image)
        now = time.monotonic()
        with self._lock:
            self._wishes = {name: end for name, end in self._wishes.items() if end > now}
            is_new = image not in self._wishes
            self._wishes[image] = now + WISH
        if is_new and image not in self.disks():
            self.needs_changed.set()
        try:
            return self.coordinator.image(image)
        except ImageUnknown:
            return self.coordinator.importing(image)

    def needs(self) -> Mapping[str, int]:
        """Return how many VMs and snapshots this node has, by image; 0 for one that it wants."""
        now = time.monotonic()
        with self._lock:
            wanted = {image: 0 for image, end in self._wishes.items() if end > now}
        return wanted | self.disks()

    def disks(self) -> dict[str, int]:
        """Return how many VMs and snapshots this node has, by image."""
        inventory = self._records.inventory()
        found = Counter(one.image for one in inventory.instances.values())
        found.update(one.image for one in inventory.snapshots.values())
        return dict(found)

    def place(self, placements: Sequence[Placement]) -> bool:
        """Move the images that have a newer placement; tell whether all that we have are there.

        A place in an image of which a reboot left nothing here is given up.

        :param placements: of this host, in any images
        """
        mine = {one.info.name: one for one in self.attachments()}
        for placement in placements:
            if placement.image in mine:
                mine[placement.image].apply(placement)
            elif placement.image not in self.names():
                with contextlib.suppress(VirtmanError):
                    self.coordinator.remove(placement.image)
                    LOG.info(
                        "gave up a place in image %s, of which nothing is left", placement.image
                    )
        return mine.keys() <= {placement.image for placement in placements}

    def attach(self, image: str, user: str) -> Attachment:
        """Have an image attached for somebody who is no VM, until it releases the image.

        :raises ImageUnknown: if Volt does not have the image
        """
        naming.check("image", image)
        check_modules(self.stack.modules)
        attachment = self.find(image)
        attachment.acquire(user)
        return attachment

    def drop(self, image: str) -> None:
        """Leave an image now instead of after its keep time.

        :raises ImageUnknown: if it is not attached here
        :raises DeviceBusy: while VMs use it
        """
        self.attached(image).drop()
        if image not in self.disks():
            with contextlib.suppress(CoordinatorUnreachable):  # it hears with the next heartbeat
                self.coordinator.release(image)

    def attached(self, image: str) -> Attachment:
        """Return an image that is attached.

        :raises ImageUnknown: if it is not
        """
        naming.check("image", image)
        with self._lock:
            attachment = self._attachments.get(image)
        if attachment is None or not attachment.is_attached:
            if image in self.disks():
                raise ImageUnknown(
                    f"image {image} has disks on this node and is not attached yet: its agent is "
                    "about to attach it; if that does not end, its log says why"
                )
            raise ImageUnknown(f"image {image} is not attached on this node")
        return attachment

    def find(self, image: str) -> Attachment:
        """Return the attachment of an image, perhaps a new one: nothing is brought up by that.

        :raises ImageUnknown: if Volt does not have the image
        """
        with self._lock:
            found = self._attachments.get(image)
        if found is not None and found.is_attached:
            return found
        info = self.coordinator.image(image)
        below = self.find(info.layer.parent) if info.layer else None
        portal = own_portal(self.host.name, image, self.host.ip, self.host.port)
        with self._lock:
            found = self._attachments.get(image)
            is_other = found is not None and (found.info != info or found.below is not below)
            if found is None or (is_other and not found.users):
                found = Attachment(
                    info, portal, self.stack, self.coordinator, self._times, self.copies,
                    self.attachments, below,
                )  # fmt: skip
                self._attachments[image] = found
                self._origins.learn(image, info.origin)
            return found

    def info(self, image: str) -> ImageInfo:
        """Return what an image was when it was attached, or else is for Volt."""
        return self.find(image).info

    def adopt(self) -> Sequence[str]:
        """Take over images that no VM uses: their keep time begins anew."""
        failed = []
        used = {instance.image for instance in self._records.all()}
        for image in self.stack.present().keys() - used:
            try:
                attachment = self.find(image)
                if not attachment.users and not attachment.is_attached:
                    attachment.acquire("")
                    attachment.release("")
            except (VirtmanError, OSError) as err:
                LOG.warning("image %s: %s", image, err)
                failed.append(image)
        return failed

    def release(self, image: str, user: str) -> None:
        """Want an image no longer for somebody."""
        with self._lock:
            attachment = self._attachments.get(image)
        if attachment is not None:
            attachment.release(user)

    def stop(self) -> None:
        """End the threads; devices stay for the next agent."""
        for attachment in self.attachments():
            attachment.stop()

    @contextlib.contextmanager
    def telling(self, image: str) -> Iterator[None]:
        """Have Volt hear at once of an image's first disk here, or that the last is gone."""
        needed = image in self.disks()
        yield
        if (image in self.disks()) != needed:
            self.needs_changed.set()
