"""Fetches what VMs will read before they do (VMTorrent, 2.2.4; vTube, 4.2).

What that is, ``foresight`` tells: at the start, and by some policies whenever VMs have read
something that did not come ahead. So fetching ends when all has come, and may begin again::

    fetch --- all is there ---> watch --- VMs read, something follows ---> fetch
                                  |
                                  +--- VMs read no more, or something else ---> the end

Pieces are read through the exports, as VMs and children read them: whoever wants one that is on
its way waits for that one, and it is fetched once. Each stripe comes from another parent, so each
has pieces of its own in flight; how many, and for how long, ``prefetch_pace`` decides.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from virtman import sysfs
from virtman.errors import VirtmanError
from virtman.image.attachment import Attachment
from virtman.image.lane import Lane
from virtman.image.share import SharedCap
from virtman.model import buffering, pieces
from virtman.model.foresight import Foresight
from virtman.model.prediction import HINT_S
from virtman.model.prefetch_order import Policy, queue
from virtman.model.prefetch_pace import LARGEST_BYTES, Idle, Window, fitting, step
from virtman.model.prefetch_use import Judge, Look
from virtman.model.profile import Profile
from virtman.model.read_counts import Count, total
from virtman.stack.reads import Reads

LOG = logging.getLogger(__name__)

LOOK = 0.5
"""Seconds between two looks at what VMs read."""

_DOUBT_S = 0.1
"""The same until they have read a piece of the profile: it may be of another workload."""

_UNREAD_S = 120.0
"""Seconds for which VMs have read nothing more of what came, after which they will not."""


@dataclass
class Totals:
    """What an agent has done for boots since it started, in all images.

    :ivar fetched: bytes that came ahead of VMs
    :ivar used: of them, bytes that VMs have read
    :ivar missed: bytes of pieces that profiles have, and that VMs read before they came
    :ivar useless: boots whose VMs hardly read what came
    :ivar recorded: boots
    """

    fetched: int = 0
    used: int = 0
    missed: int = 0
    useless: int = 0
    recorded: int = 0
    _over: Count = field(default_factory=Count)
    _under_way: list[Reads] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(
        self,
        *,
        fetched: int = 0,
        used: int = 0,
        missed: int = 0,
        useless: int = 0,
        recorded: int = 0,
    ) -> None:
        """Count more."""
        with self.lock:
            self.fetched += fetched
            self.used += used
            self.missed += missed
            self.useless += useless
            self.recorded += recorded

    @contextlib.contextmanager
    def counting(self, reads: Reads) -> Iterator[None]:
        """Count the reads of a boot meanwhile, as they were seen last."""
        with self.lock:
            self._under_way.append(reads)
        try:
            yield
        finally:
            with self.lock:
                self._under_way.remove(reads)
                self._over = total([self._over, *reads.seen.values()])

    def reads(self) -> Count:
        """Return how much VMs have read during their boots, and how long that took."""
        with self.lock:
            seen = (one for reads in self._under_way for one in reads.seen.values())
            return total([self._over, *seen])


class State(StrEnum):
    """How far fetching ahead is."""

    FETCHING = "fetching"
    FETCHED = "fetched"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Ahead:
    """What is fetched of an image ahead of its VMs; in bytes.

    :ivar wanted: what its profile names, or what was to be fetched so far if VMs are followed
    :ivar there: of it, what this node has by now, or had already
    :ivar fetched: of that, what had to be fetched
    :ivar used: of that, what VMs have read
    :ivar missed: what its profile names, and VMs read before it came
    :ivar strange: what VMs have read that its profile does not name
    :ivar head: of what is wanted at first, what has to be there before a VM goes on that is not to
        wait later, by the rate so far (vTube, 4.2.3)
    :ivar seconds: for which it was fetched, so far or in all
    :ivar window: pieces that may be in flight, over all stripes
    :ivar verdict: why it stopped early, in words; empty if it did not
    """

    state: State
    wanted: int
    there: int
    fetched: int
    used: int
    missed: int
    strange: int
    head: int
    seconds: float
    window: int
    verdict: str


@dataclass(frozen=True)
class How:
    """Which pieces are fetched, in which order, and how fast.

    :ivar largest: pieces in flight for a stripe, or units of shorter ones, at most
    """

    policy: Policy
    largest: int
    cap: SharedCap


class Prefetch:
    """Fetches pieces of an image by a profile.

    The thread that calls ``fetch`` and ``watch`` looks at what VMs read, and puts pieces into the
    lanes; others take them out.

    :ivar follows: whether what is fetched depends on what VMs read
    :ivar verdict: why it ended early, in words; empty if it did not
    """

    def __init__(
        self, attachment: Attachment, reads: Reads, profile: Profile, how: How, totals: Totals
    ) -> None:
        self.verdict = ""
        self._wanted = self._there = self._fetched = self._used = 0
        self._missed = self._strange = 0
        self._state = State.FETCHING
        self._seconds = 0.0  # in earlier times of fetching
        self._begin: float | None = None
        self._name = attachment.info.name
        self._caches = attachment.page_caches
        self._share = attachment.share
        self._origin = reads.device.node
        self._reads = reads
        self._piece = profile.piece_size
        self._how = how
        self._totals = totals
        self._lock = threading.Lock()
        self._is_proven = threading.Event()
        self._foresight = Foresight(profile, how.policy)
        self.follows = self._foresight.follows
        self._demands = [
            (after_s, count * self._piece) for after_s, count in self._foresight.demands()
        ]
        self._judge = Judge(profile, reads.area, follows=self.follows)
        self._idle = Idle()
        self._followed = time.monotonic()
        self._largest = fitting(how.largest, self._piece)
        self._lanes = [
            Lane(
                queue(how.policy, random.Random()),  # noqa: S311 - no secret
                Window(self._largest, step(self._piece)),
            )
            for _ in self._caches.exports
        ]
        self._put(self._foresight.begin())

    def ahead(self) -> Ahead:
        """Return how far it is."""
        window = 0 if self._is_over() else sum(lane.window.size for lane in self._lanes)
        came = self._wanted, self._there, self._fetched
        read = self._used, self._missed, self._strange
        spent = self._seconds + (time.monotonic() - self._begin if self._begin else 0.0)
        head = min(self._wanted, round(buffering.needed(self._demands, self._fetched, spent)))
        return Ahead(self._state, *came, *read, head, spent, window, self.verdict)

    def fetch(
        self, goes_on: Callable[[], bool], sleep: Callable[[float], object], *, asked: bool
    ) -> None:
        """Fetch all that is wanted, as long as it goes on and VMs read what comes.

        Until they have read a piece of the profile, none is fetched while they wait: it may be of
        another workload, and cost them time for nothing.

        Reads that wait for a parent that does not answer are left behind: they end with the image.

        :param asked: somebody wants it whatever VMs read: they may boot before they do what the
            profile is of
        :param sleep: is called with the seconds between two looks
        """
        workers = [
            threading.Thread(
                target=self._work, args=(lane,), name=f"ahead {self._name}", daemon=True
            )
            for lane in self._lanes
            for _ in range(self._largest // lane.window.step)
        ]
        if asked:
            self._is_proven.set()
        else:
            self._weigh()
        self._state, self._begin, before = State.FETCHING, time.monotonic(), self._fetched
        for lane in self._lanes:
            lane.begin()
        for one in workers if not self.verdict else ():
            one.start()
        try:
            while goes_on() and not (self._is_done() or self.verdict):
                if not any(one.is_alive() for one in workers):
                    break
                sleep(LOOK if self._is_proven.is_set() else _DOUBT_S)
                self._look()
                if not asked:
                    self._weigh()
        except (VirtmanError, OSError) as err:
            self.verdict = self.verdict or str(err)
            raise
        finally:
            seconds, self._begin = time.monotonic() - self._begin, None
            self._seconds += seconds
            for lane in self._lanes:
                lane.end()
            if self._there == self._wanted:
                self._state = State.FETCHED
            else:
                self.verdict = self.verdict or "the image was left, or its agent ends"
                self._state = State.STOPPED
        LOG.info(
            "image %s: %.1f MiB were fetched ahead of VMs in %.1f s",
            self._name,
            (self._fetched - before) / 2**20,
            seconds,
        )

    def watch(self, goes_on: Callable[[], bool], sleep: Callable[[float], object]) -> bool:
        """See what VMs read, as long as it goes on, and they may read more of what came.

        Where they are followed, they always may.

        :returns: whether something is to be fetched again
        """
        used, since = self._used, time.monotonic()
        while goes_on() and self._may_read(since):
            sleep(LOOK)
            self._look()
            if self.follows and not self._is_done():
                return True
            if self._used != used:
                used, since = self._used, time.monotonic()
        return False

    def _may_read(self, since: float) -> bool:
        if self.follows:
            return not self.verdict
        return time.monotonic() - since < _UNREAD_S and self._used < self._fetched

    def _put(self, numbers: Iterable[int]) -> None:
        """Have pieces fetched next."""
        for lane, those in zip(self._lanes, self._by_stripe(numbers), strict=True):
            self._wanted += sum(map(self._length, lane.put(those)))

    def _is_done(self) -> bool:
        """Tell whether all that is wanted has come."""
        return all(lane.is_done() for lane in self._lanes)

    def _by_stripe(self, numbers: Iterable[int]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self._caches.exports]
        for number in numbers:
            offset = number * self._piece
            if offset < self._caches.size:
                found[pieces.stripe(offset, len(found))].append(number)
        return found

    def _look(self) -> None:
        """See what VMs read meanwhile, and how long they had to wait."""
        seen = self._reads.look()
        read_s = self._idle.look(seen)
        for lane in self._lanes:
            lane.hurt(read_s, self._idle.seconds)
        wanted = self._wanted_of(seen)
        with self._lock:
            found = self._judge.look(seen, wanted)
            used, missed = (len(those) * self._piece for those in (found.used, found.missed))
            self._used += used
            self._missed += missed
            self._strange += len(found.strange) * self._piece
            self._totals.add(used=used, missed=missed)
            if self._judge.is_proven():
                self._is_proven.set()
        self._follow(found)

    def _follow(self, found: Look) -> None:
        """Have fetched next what follows what VMs have read."""
        now = time.monotonic()
        read = found.missed
        if not read and now - self._followed >= HINT_S:
            read = found.used
        if read:
            self._followed = now
            self._put(self._foresight.after(read))

    def _wanted_of(self, seen: Mapping[int, Count]) -> set[int]:
        """Return the pieces that somebody wanted, or that came ahead, where VMs have just read."""
        found: set[int] = set()
        for area in self._judge.changed(seen):
            length = self._reads.area
            found |= self._caches.wanted(area * length, length, self._piece)[0]
        return found

    def _weigh(self) -> None:
        """Give the profile up if VMs read something else."""
        with self._lock:
            if self._judge.is_poor():
                self._totals.add(useless=1)
                self.verdict = "VMs hardly read what the profile says"

    def _work(self, lane: Lane) -> None:
        try:
            while taken := lane.take(lambda: not sysfs.is_read(self._origin)):
                try:
                    self._fetch(taken)
                finally:
                    lane.came(taken)
        except OSError as err:
            self.verdict = self.verdict or str(err)

    def _fetch(self, taken: Sequence[int]) -> None:
        parts = pieces.parts(taken, self._piece, self._caches.size, LARGEST_BYTES)
        lacking = self._caches.lacking(parts)
        if lacking:
            self._doubt()
            length = _bytes(lacking)
            if not self._share.wait(length, self._how.cap.delay(length), self._is_over):
                return
            lacking = self._caches.lacking(lacking)  # VMs may have read some meanwhile
        numbers = pieces.numbers(lacking, self._piece)
        with self._lock:
            self._judge.coming(numbers)
        if self._piece > LARGEST_BYTES:  # else too much would be in flight
            for part in lacking:
                self._caches.fetch([part])
        elif lacking:
            self._caches.fetch(lacking)
        with self._lock:
            self._there += _bytes(parts)
            self._fetched += _bytes(lacking)
            self._totals.add(fetched=_bytes(lacking))
            for number in numbers:
                self._judge.fetched(number)

    def _doubt(self) -> None:
        """Wait until the profile has proven itself, no VM waits, or nothing more is to come."""
        while not (self._is_proven.is_set() or self._is_over()) and sysfs.is_read(self._origin):
            self._is_proven.wait(_DOUBT_S)

    def _is_over(self) -> bool:
        return self._state is not State.FETCHING

    def _length(self, number: int) -> int:
        """Return the bytes of a piece; the image's last may be short."""
        return min(self._piece, self._caches.size - number * self._piece)


def _bytes(parts: Iterable[pieces.Part]) -> int:
    return sum(length for _, length in parts)
