"""What is done for the first boot from an image that was just attached: it is recorded, or helped.

The first boots are recorded, without help: what is fetched ahead cannot be told from what VMs
want. Each merges what it read into the profile at Volt. Once there are enough, boots are helped.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from virtman.coordinator.interface import Coordinator, ImageInfo
from virtman.errors import (
    CoordinatorUnreachable,
    ProfileForeign,
    ProfileInvalid,
    ProfileStale,
    VirtmanError,
)
from virtman.image.attachment import Attachment
from virtman.image.prefetch import How, Prefetch, Totals
from virtman.image.recording import LOOK, Recording
from virtman.model.profile import Profile, Run, decode, encode, merged
from virtman.stack.reads import Reads

LOG = logging.getLogger(__name__)

WORKLOAD = "boot"

_AGAIN = 10.0
"""Seconds between two tries to tell Volt what was recorded."""


@dataclass(frozen=True)
class Options:
    """What is done for boots.

    :ivar record: boots of which a profile is made; 0 for none
    :ivar piece: bytes of a piece in a new profile
    :ivar prefetch: whether what is known is fetched ahead, without being asked
    """

    record: int
    piece: int
    prefetch: bool
    how: How


class Boot:
    """One boot, on a thread of its own.

    :param hasten: has a heartbeat sent now
    :param sleep: lets seconds pass; returns whether the agent stops
    :ivar prefetch: what is fetched ahead of it; None if nothing is
    """

    def __init__(
        self,
        attachment: Attachment,
        reads: Reads,
        coordinator: Coordinator,
        options: Options,
        totals: Totals,
        hasten: Callable[[], object],
        sleep: Callable[[float], bool],
    ) -> None:
        self.attachment = attachment
        self.reads = reads
        self.coordinator = coordinator
        self.options = options
        self.totals = totals
        self.prefetch: Prefetch | None = None
        self._name = attachment.info.name
        self._hasten = hasten
        self._sleep = sleep
        self._stops = False

    def run(self) -> None:
        """Record the boot, or fetch ahead for it."""
        with self._followed():
            found = self._profile()
            if found is None or found.runs < self.options.record:
                if self.options.record:
                    self._record(found.piece_size if found else self.options.piece)
            elif self.options.prefetch:
                self._help(found)

    def warm(self, found: Profile, then: Callable[[], object]) -> None:
        """Fetch ahead, whether or not there is a VM yet.

        :param then: is called once that is done; what VMs read of it is seen after that
        """
        with self._followed():
            self._help(found, then)

    @contextlib.contextmanager
    def _followed(self) -> Iterator[None]:
        """Have an end of the image end this too, and count no more reads after it."""
        try:
            yield
        except (VirtmanError, OSError) as err:
            if self.goes_on():  # else the image was left meanwhile
                LOG.warning("image %s: its boot is not followed any more: %s", self._name, err)
        finally:
            if self.attachment.reads is self.reads:
                with contextlib.suppress(VirtmanError):
                    self.totals.add_reads(self.reads.look().values())
                    self.reads.end()

    def goes_on(self) -> bool:
        """Tell whether VMs use the image, and it was not left since."""
        is_same = self.attachment.reads is self.reads and bool(self.attachment.users)
        return is_same and not self._stops

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self._stops = self._sleep(seconds)

    def _profile(self) -> Profile | None:
        """Return the image's profile; None if nobody knows one that is of it."""
        try:
            return known_profile(self.coordinator, self.attachment.info)
        except (ProfileInvalid, ProfileForeign) as err:
            LOG.warning("image %s: %s", self._name, err)
            return None

    def _help(self, found: Profile, then: Callable[[], object] = lambda: None) -> None:
        """Fetch ahead, and see what VMs read of that."""
        self.prefetch = Prefetch(self.attachment, self.reads, found, self.options.how, self.totals)
        with self.attachment.share.taken(capped=self.attachment.is_capped):
            self._hasten()
            self.prefetch.fetch(self.goes_on, self.pause)
        if self.prefetch.verdict and self.goes_on():
            LOG.warning("image %s: no more is fetched ahead: %s", self._name, self.prefetch.verdict)
        then()
        self.prefetch.watch(self.goes_on, self.pause)
        ahead = self.prefetch.ahead()
        LOG.info(
            "image %s: VMs read %.1f of the %.1f MiB that were fetched ahead",
            self._name,
            ahead.used / 2**20,
            ahead.fetched / 2**20,
        )

    def _record(self, piece: int) -> None:
        recording = Recording(self.attachment, self.reads, piece)
        while not recording.is_over():
            self.pause(LOOK)
            if not self.goes_on() or self.attachment.is_warm:
                return  # what VMs read of the cache itself cannot be seen
            recording.look()
        if not recording.counts():
            LOG.info("image %s: the cache had what its VMs read: not recorded", self._name)
            return
        self._store(recording.run, piece)

    def _store(self, run: Run, piece: int) -> None:
        """Have the run in Volt's profile, unless others have stored enough meanwhile."""
        tree = self.attachment.info.tree
        assert tree is not None
        while True:
            try:
                stored = self.coordinator.profile(self._name, WORKLOAD)
                found = decode(stored[0]) if stored else None
                if found is not None and found.runs >= self.options.record:
                    return
                made = merged(found, run, tree.root, piece)
                self.coordinator.store_profile(
                    self._name, WORKLOAD, encode(made), stored[1] if stored else None
                )
            except ProfileStale:
                continue
            except CoordinatorUnreachable as err:
                LOG.warning("image %s: its boot is not stored yet: %s", self._name, err)
                self.pause(_AGAIN)
                if not self.goes_on():
                    return
                continue
            self.totals.add(recorded=1)
            LOG.info("image %s: a boot that read %d pieces is recorded", self._name, len(run))
            return


def known_profile(coordinator: Coordinator, info: ImageInfo) -> Profile | None:
    """Return an image's profile; None if there is none.

    :raises ProfileInvalid: if it cannot be read
    :raises ProfileForeign: if it is of another image
    """
    stored = coordinator.profile(info.name, WORKLOAD)
    if stored is None:
        return None
    found = decode(stored[0])
    if info.tree is None or found.identity != info.tree.root:
        raise ProfileForeign("the profile is of another image, and is not used")
    return found
