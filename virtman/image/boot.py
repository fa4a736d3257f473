"""What is done for the first boot from an image that was just attached: it is recorded, or helped.

The first boots are recorded, without help: what is fetched ahead cannot be told from what VMs
want. Each merges what it read into the profile at Volt. Once there are enough, boots are helped.
"""

from __future__ import annotations

import contextlib
import logging
import threading
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
from virtman.image.prefetch import Ahead, How, Prefetch, Totals
from virtman.image.recording import LOOK, Recording
from virtman.model import pieces
from virtman.model.profile import BOOT, Profile, Run, merged
from virtman.model.profile_format import decode, encode
from virtman.stack.reads import Reads

LOG = logging.getLogger(__name__)

_AGAIN = 10.0
"""Seconds between two tries to tell Volt what was recorded."""

_ASK_AGAIN, _ASKS = 1.0, 10
"""Seconds between two tries to learn a profile from a Volt that does not answer, and how many."""


@dataclass(frozen=True)
class Options:
    """What is done for boots.

    :ivar record: boots of which a profile is made; 0 for none
    :ivar piece: bytes of a piece in a new profile of an image without memory
    :ivar prefetch: whether what is known is fetched ahead, without being asked
    """

    record: int
    piece: int
    prefetch: bool
    how: How

    def piece_of(self, info: ImageInfo) -> int:
        """Return the bytes of a piece in a new profile of an image.

        Of memory each page is read for itself, and what lies beside it is another program's.
        """
        return pieces.PAGE if info.has_memory else self.piece


class Boot:
    """One boot, on a thread of its own.

    :param hasten: has a heartbeat sent now
    :param sleep: lets seconds pass; returns whether the agent stops
    :ivar prefetch: what is fetched ahead of it; None if nothing is
    :ivar fetched: is set once no more is, or what follows what VMs read
    :ivar first: how far it was then; None before
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
        self.first: Ahead | None = None
        self._workload = ""
        self.fetched = threading.Event()
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
                    new = self.options.piece_of(self.attachment.info)
                    self._record(found.piece_size if found else new)
            elif self.options.prefetch:
                self._help(self.prepare(found), asked=False)

    def helps(self, workload: str) -> bool:
        """Tell whether what a workload reads is being fetched."""
        return self._workload == workload and not self.fetched.is_set()

    def prepare(self, found: Profile, workload: str = BOOT) -> Prefetch:
        """Return what will fetch ahead by a workload's profile."""
        self._workload = workload
        self.prefetch = Prefetch(self.attachment, self.reads, found, self.options.how, self.totals)
        return self.prefetch

    def warm(self, prefetch: Prefetch, then: Callable[[], object]) -> None:
        """Fetch ahead, whether or not there is a VM yet.

        :param prefetch: what was prepared
        :param then: is called once that is done; what VMs read of it is seen after that
        """
        with self._followed():
            self._help(prefetch, then, asked=True)

    def record(self, recording: Recording, workload: str, is_told: Callable[[], bool]) -> int:
        """Record what VMs read until told, or none is left; then have it in a workload's profile.

        :returns: the runs of which that profile is then made; 0 if nothing was stored
        """
        with self._counted():
            while not is_told() and self.goes_on():
                self.pause(LOOK)
                recording.look()
        if not recording.run or self._stops:
            return 0
        return self._store(recording, workload, None, lambda: not self._stops)

    @contextlib.contextmanager
    def _followed(self) -> Iterator[None]:
        """Have an end of the image end this too, and count no more reads after it."""
        try:
            with self._counted():
                yield
        except (VirtmanError, OSError) as err:
            if self.goes_on():  # else the image was left meanwhile
                LOG.warning("image %s: its boot is not followed any more: %s", self._name, err)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count no more reads afterwards."""
        with self.totals.counting(self.reads):
            try:
                yield
            finally:
                self.fetched.set()
                if self.attachment.reads is self.reads:
                    with contextlib.suppress(VirtmanError):
                        self.reads.look()
                        self.reads.end()

    def goes_on(self) -> bool:
        """Tell whether VMs use the image, and it was not left since."""
        return self._stays() and bool(self.attachment.users)

    def _stays(self) -> bool:
        """Tell whether the image was not left since: more VMs may come."""
        return self.attachment.reads is self.reads and not self._stops

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self._stops = self._sleep(seconds)

    def _profile(self) -> Profile | None:
        """Return the image's profile; None if nobody knows one that is of it.

        A storm is when Volt has most to do: one answer that is late shall not cost a boot its
        help, and a Volt that is away not what the boot teaches.
        """
        for _ in range(_ASKS):
            try:
                return known_profile(self.coordinator, self.attachment.info)
            except (ProfileInvalid, ProfileForeign) as err:
                LOG.warning("image %s: %s", self._name, err)
                return None
            except CoordinatorUnreachable as err:
                LOG.warning("image %s: its profile is not known yet: %s", self._name, err)
                self.pause(_ASK_AGAIN)
                if not self.goes_on():
                    return None
        return None

    def _help(
        self, prefetch: Prefetch, then: Callable[[], object] = lambda: None, *, asked: bool
    ) -> None:
        """Fetch ahead, and see what VMs read of that, and what follows."""
        is_more = True
        while is_more:
            with self.attachment.share.taken(capped=self.attachment.is_capped):
                self._hasten()
                prefetch.fetch(self.goes_on, self.pause, asked=asked and not self.fetched.is_set())
            if prefetch.verdict and self.goes_on():
                LOG.warning("image %s: no more is fetched ahead: %s", self._name, prefetch.verdict)
            self.first = self.first or prefetch.ahead()
            self.fetched.set()
            then()
            is_more = prefetch.watch(self._stays if prefetch.follows else self.goes_on, self.pause)
        ahead = prefetch.ahead()
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
            if not self.goes_on() or self.attachment.is_warm or self.attachment.is_local:
                return  # what VMs read of the cache, or of a copy, cannot be seen
            recording.look()
        if not recording.counts():
            LOG.info("image %s: the cache had what its VMs read: not recorded", self._name)
            return
        self._store(recording, BOOT, self.options.record, self.goes_on)

    def _store(
        self, recording: Recording, workload: str, enough: int | None, goes_on: Callable[[], bool]
    ) -> int:
        """Have a run in a workload's profile, unless others have stored enough meanwhile.

        :returns: the runs of which the profile is then made; 0 if it stayed as it was
        """
        run = recording.run
        while True:
            try:
                runs = _add_run(
                    self.coordinator, self.attachment.info, workload, run, recording.piece, enough
                )
            except CoordinatorUnreachable as err:
                LOG.warning("image %s: its %s is not stored yet: %s", self._name, workload, err)
                self.pause(_AGAIN)
                if not goes_on():
                    return 0
                continue
            if runs:
                self.totals.add(recorded=1)
                LOG.info(
                    "image %s: a %s that read %d pieces is recorded", self._name, workload, len(run)
                )
            return runs


def _add_run(
    coordinator: Coordinator,
    info: ImageInfo,
    workload: str,
    run: Run,
    piece: int,
    enough: int | None,
) -> int:
    """Merge a run into a workload's profile, unless it is made of enough already.

    One that cannot be read, as it is of an earlier format, is replaced.

    :returns: the runs of which it is then made; 0 if it stayed as it was
    """
    assert info.tree is not None
    while True:
        stored = coordinator.profile(info.name, workload)
        try:
            found = decode(stored[0]) if stored else None
        except ProfileInvalid as err:
            LOG.warning("image %s: its %s is replaced: %s", info.name, workload, err)
            found = None
        if found is not None and enough is not None and found.runs >= enough:
            return 0
        made = merged(found, run, info.tree.root, piece)
        with contextlib.suppress(ProfileStale):
            tag = stored[1] if stored else None
            coordinator.store_profile(info.name, workload, encode(made), tag)
            return made.runs


def piece_size(coordinator: Coordinator, info: ImageInfo, workload: str, new: int) -> int:
    """Return the bytes of a piece that a run of a workload has to have.

    :param new: those of a new profile: if there is none, or nobody tells
    """
    try:
        found = known_profile(coordinator, info, workload)
    except (CoordinatorUnreachable, ProfileForeign, ProfileInvalid):
        return new
    return found.piece_size if found else new


def known_profile(
    coordinator: Coordinator, info: ImageInfo, workload: str = BOOT
) -> Profile | None:
    """Return an image's profile of a workload; None if there is none.

    :raises ProfileInvalid: if it cannot be read
    :raises ProfileForeign: if it is of another image
    """
    stored = coordinator.profile(info.name, workload)
    if stored is None:
        return None
    found = decode(stored[0])
    if info.tree is None or found.identity != info.tree.root:
        raise ProfileForeign("the profile is of another image, and is not used")
    return found
