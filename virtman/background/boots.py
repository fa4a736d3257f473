"""Follows the boots from images that were just attached: each is recorded, or helped."""

from __future__ import annotations

import threading
from collections.abc import Callable

from virtman.errors import ProfileUnbound, ProfileUnknown
from virtman.image.attachment import Attachment
from virtman.image.boot import Boot, Options, known_profile
from virtman.image.prefetch import Ahead, State, Totals
from virtman.model.profile import Profile
from virtman.node.agent import Agent
from virtman.periodic import Periodic
from virtman.stack.reads import Reads

_INTERVAL = 0.25
_USER = "(warm)"
"""Uses an image while it is warmed; no VM can be called so."""


class Boots:
    """Looks for images that came, and gives each boot a thread of its own.

    :param hasten: has a heartbeat sent now, as Volt may have to say how fast to fetch ahead
    :ivar totals: what was done in all images since the agent started
    """

    def __init__(self, agent: Agent, options: Options, hasten: Callable[[], object]) -> None:
        self.agent = agent
        self.options = options
        self.totals = Totals()
        self._hasten = hasten
        # Guards the two below; held for moments only.
        self._lock = threading.Lock()
        self._boots: dict[str, Boot] = {}
        self._warming: set[str] = set()
        self._rounds = Periodic("boots", self.look, _INTERVAL)

    def start(self) -> None:
        """Begin."""
        self._rounds.start()

    def stop(self) -> None:
        """End all; a read that is under way ends with the process."""
        self._rounds.stop()

    def look(self) -> None:
        """Follow the boots that began since the last look."""
        found = {one.info.name: one for one in self.agent.attachments() if not one.is_moving()}
        with self._lock:
            self._boots = {name: boot for name, boot in self._boots.items() if name in found}
            for name, one in found.items():
                reads = one.reads
                if reads is not None and name not in self._warming and self._is_new(name, reads):
                    boot = self._boot(one, reads)
                    self._spawn(boot, boot.run)

    def ahead(self, image: str) -> Ahead | None:
        """Return how far fetching ahead is of an image; None if nothing is, or was."""
        with self._lock:
            boot = self._boots.get(image)
        return boot.prefetch.ahead() if boot and boot.prefetch else None

    def warm(self, image: str) -> None:
        """Have an image attached, and begin to fetch what its profile names, if that goes not on.

        After that it is kept for its keep time, as after the last VM.

        :raises ImageUnknown: if Volt does not have it
        :raises ProfileUnbound: if it can have no profile
        :raises ProfileUnknown: if it has none
        """
        ahead = self.ahead(image)
        if ahead is not None and ahead.state is State.FETCHING:
            return
        info = self.agent.info(image)
        if info.tree is None:
            raise ProfileUnbound(
                f"image {image} has no hash tree, so it has no boot profile: nothing tells what to "
                "fetch. Remove it and add it with a hash tree"
            )
        found = known_profile(self.agent.coordinator, info)
        if found is None:
            raise ProfileUnknown(
                f"image {image} has no boot profile yet: boot VMs from it, so that one is "
                "recorded, or import one with 'virtman profile import'"
            )
        with self._lock:
            self._warming.add(image)
        try:
            attachment = self.agent.attach(image, _USER)
            try:
                reads = attachment.reads
                with self._lock:
                    counts = reads is not None and self._is_new(image, reads)
                if reads is None or not counts:
                    reads = attachment.count_anew()
                with self._lock:
                    boot = self._boot(attachment, reads)
                self._spawn(boot, lambda: _warm(boot, found))
            except BaseException:
                attachment.release(_USER)
                raise
        finally:
            with self._lock:
                self._warming.discard(image)

    def _is_new(self, image: str, reads: Reads) -> bool:
        known = self._boots.get(image)
        return known is None or known.reads is not reads

    def _boot(self, attachment: Attachment, reads: Reads) -> Boot:
        boot = self._boots[attachment.info.name] = Boot(
            attachment,
            reads,
            self.agent.coordinator,
            self.options,
            self.totals,
            self._hasten,
            self._rounds.sleep,
        )
        return boot

    def _spawn(self, boot: Boot, work: Callable[[], None]) -> None:
        name = f"boot {boot.attachment.info.name}"
        threading.Thread(target=work, name=name, daemon=True).start()


def _warm(boot: Boot, found: Profile) -> None:
    def release() -> None:
        boot.attachment.release(_USER)

    try:
        boot.warm(found, release)
    finally:
        release()
