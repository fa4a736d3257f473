"""Follows the boots from images that were just attached: each is recorded, or helped."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from virtman.background.claims import Claims
from virtman.errors import ProfileUnbound, ProfileUnknown
from virtman.image.attachment import Attachment
from virtman.image.boot import Boot, Options, known_profile
from virtman.image.prefetch import Ahead, Prefetch, Totals
from virtman.model.profile import BOOT
from virtman.node.images import Images
from virtman.periodic import Periodic
from virtman.stack.reads import Reads

_INTERVAL = 0.25


class Boots:
    """Looks for images that came, and gives each boot a thread of its own.

    :param hasten: has a heartbeat sent now, as Volt may have to say how fast to fetch ahead
    :ivar totals: what was done in all images since the agent started
    """

    def __init__(self, images: Images, options: Options, hasten: Callable[[], object]) -> None:
        self.images = images
        self.options = options
        self.totals = Totals()
        self._hasten = hasten
        # Guards the two below; held for moments only.
        self._lock = threading.Lock()
        self._boots: dict[str, Boot] = {}
        self._claims = Claims(self._lock)
        self._numbers = itertools.count(1)
        self._rounds = Periodic("boots", self.look, _INTERVAL)

    def start(self) -> None:
        """Begin."""
        self._rounds.start()

    def stop(self) -> None:
        """End all; a read that is under way ends with the process."""
        self._rounds.stop()

    def look(self) -> None:
        """Follow the boots that began since the last look."""
        with self._lock:  # all along: else what begins meanwhile would be forgotten
            present = (one for one in self.images.attachments() if not one.is_moving())
            found = {one.info.name: one for one in present}
            self._boots = {name: boot for name, boot in self._boots.items() if name in found}
            for name, one in found.items():
                reads = one.reads
                if reads is None or name in self._claims or not self._is_new(name, reads):
                    continue
                if one.is_booted:
                    boot = self._boots[name] = self._boot(one, reads)
                    self._spawn(boot, boot.run)

    def ahead(self, image: str) -> Ahead | None:
        """Return how far fetching ahead is of an image; None if nothing is, or was."""
        with self._lock:
            boot = self._boots.get(image)
        return boot.prefetch.ahead() if boot and boot.prefetch else None

    def warm(self, image: str, workload: str = BOOT) -> Boot:
        """Have an image attached, and begin to fetch what a profile names, if that goes not on.

        After that it is kept for its keep time, as after the last VM.

        :returns: the boot for which it is fetched
        :raises ImageUnknown: if Volt does not have it
        :raises ProfileUnbound: if it can have no profile
        :raises ProfileUnknown: if it has none
        """
        with self._claims.claimed(image):
            boot = self._boots.get(image)
            if boot is not None and boot.helps(workload):
                return boot
            return self._warm(image, workload)

    def count_anew(self, attachment: Attachment) -> Boot:
        """Begin to count what VMs read, instead of what goes on for them; who asks follows it."""
        with self._claims.claimed(attachment.info.name):
            return self._keep(self._boot(attachment, attachment.count_anew()))

    def _warm(self, image: str, workload: str) -> Boot:
        info = self.images.info(image)
        if info.tree is None:
            raise ProfileUnbound(
                f"image {image} has no hash tree, so it has no boot profile: nothing tells what to "
                "fetch. Remove it and add it with a hash tree"
            )
        found = known_profile(self.images.coordinator, info, workload)
        if found is None:
            raise ProfileUnknown(
                f"image {image} has no profile {workload} yet: boot VMs from it, so that one is "
                "recorded, or import one with 'virtman profile import'"
            )
        # no VM can be called so, and no other warming is
        user = f"(warm {next(self._numbers)})"
        attachment = self.images.attach(image, user)
        try:
            reads = attachment.reads
            if reads is None or not self._is_new(image, reads):
                reads = attachment.count_anew()
            boot = self._keep(self._boot(attachment, reads))
            prefetch = boot.prepare(found, workload)
            self._spawn(boot, lambda: _warm(boot, prefetch, user))
        except BaseException:
            attachment.release(user)
            raise
        return boot

    def _is_new(self, image: str, reads: Reads) -> bool:
        known = self._boots.get(image)
        return known is None or known.reads is not reads

    def _boot(self, attachment: Attachment, reads: Reads) -> Boot:
        return Boot(
            attachment,
            reads,
            self.images.coordinator,
            self.options,
            self.totals,
            self._hasten,
            self._rounds.sleep,
        )

    def _keep(self, boot: Boot) -> Boot:
        """Take a boot for the one that goes on; the caller has claimed its image."""
        with self._lock:
            self._boots[boot.attachment.info.name] = boot
        return boot

    def _spawn(self, boot: Boot, work: Callable[[], None]) -> None:
        name = f"boot {boot.attachment.info.name}"
        threading.Thread(target=work, name=name, daemon=True).start()


def _warm(boot: Boot, prefetch: Prefetch, user: str) -> None:
    def release() -> None:
        boot.attachment.release(user)

    try:
        boot.warm(prefetch, release)
    finally:
        release()
