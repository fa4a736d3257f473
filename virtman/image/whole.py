"""Brings a copy of a whole image over in the background, and checks it (Skilfish, 4.2).

Pieces are read through the exports, as VMs and children read them, so each is fetched once. They
come in order, one of each stripe at a time: a node that copies is a little behind its parents,
which copy too, and ahead of its children. What came for the copy alone leaves memory again once it
is on the disk.

VMs go first. No piece is asked for while one of this node waits, unless they never cease to; then
it is one now and then. While VMs of any host wait for what they read of the image, as Volt says, a
copy that was given no rate pauses, for a minute at most, and then takes a tenth of the time. And
all limits for what is fetched ahead of VMs apply here too.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from virtman import sysfs
from virtman.errors import CopyWrong, KernelFailure, VirtmanError
from virtman.image import copies
from virtman.image.attachment import Attachment
from virtman.image.comparison import Comparison
from virtman.image.copies import Copies
from virtman.image.share import SharedCap
from virtman.model import copying, hashtree
from virtman.model.copying import PIECE, Copy, Held
from virtman.model.hashtree import BLOCK
from virtman.model.naming import Device

LOG = logging.getLogger(__name__)

LOOK = 0.5
"""Seconds between two looks whether the copy shall go on."""

_PATIENCE, _AGAIN = 0.2, 0.01
"""Seconds for which a piece waits for VMs that read all the time, and between two looks at them."""

_PAUSE, _PARTS = 60.0, 10
"""Seconds for which a copy pauses while VMs of any host wait; then it takes one of so many parts of
the time, as they may never cease to read."""

_LONGEST_REST = 10.0
"""Seconds for which a stripe rests, at most, after it was read."""

_WORD = 2.0
"""Seconds for which a copy waits for Volt's word whether VMs wait, before its first piece."""

_TOGETHER = 4
"""Pieces that are asked for at once while no VM reads."""

_UNSETTLED, _UNSETTLED_S = 32 * 1024 * 1024, 5.0
"""Bytes, and seconds, after which what came is brought to the disk: a power cut costs no more."""

_ROUNDS = 3
"""How often all may be checked until nothing is wrong."""


class State(StrEnum):
    """How far a copy is."""

    COPYING = "copying"
    CHECKING = "checking"
    WHOLE = "whole"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Progress:
    """How far a copy is; in bytes.

    :ivar wanted: of the image, and of the leaves of its hash tree
    :ivar there: of them, what is here; zeros count as they are passed
    :ivar fetched: what was fetched since the agent started
    :ivar checked: of the image, what was compared with the hash tree
    :ivar rate: bytes/s at which it may be fetched; 0 for no limit of its own
    :ivar held_back: VMs wait for what they read, here or on other hosts, so it comes slowly
    :ivar verdict: why it stopped, in words; empty if it did not
    """

    state: State
    wanted: int
    there: int
    fetched: int
    checked: int
    rate: int
    held_back: bool
    verdict: str


class Copier:
    """Copies one image.

    :param cap: of all that this node fetches ahead of VMs
    :param goes_on: whether it shall go on
    :param sleep: is called with the seconds between two looks at that
    :param hasten: has a heartbeat sent now
    """

    def __init__(
        self,
        attachment: Attachment,
        kept: Copies,
        copy: Copy,
        cap: SharedCap,
        goes_on: Callable[[], bool],
        sleep: Callable[[float], object],
        hasten: Callable[[], object],
    ) -> None:
        info = attachment.info
        assert info.tree is not None
        self._attachment = attachment
        self._kept = kept
        self._copy = copy
        self._node_cap = cap
        self._own_cap = SharedCap(copy.rate)
        self._goes_on = goes_on
        self._sleep = sleep
        self._hasten = hasten
        self._comparison = Comparison(attachment, copy)
        self._zeros = hashtree.digest_of_zeros(info.tree.salt)
        self._layout = self._comparison.layout
        self._caches = attachment.page_caches
        self._origin = Device(info.name, "origin").node
        self._over = threading.Event()
        # Guards what follows; held for moments only.
        self._lock = threading.Lock()
        self._held = Held(self._layout.count)
        self._came: list[int] = []  # but they may not be on the disk yet
        self._passing: list[tuple[int, int]] = []  # parts that memory has for the copy alone
        self._fetched = self._checked = 0
        self._state = State.COPYING
        self._failure: OSError | VirtmanError | None = None

    def progress(self) -> Progress:
        """Return how far it is."""
        with self._lock:
            there = self._held.count() + len(self._came)
        verdict = str(self._failure) if self._failure else ""
        return Progress(
            self._state,
            self._layout.length,
            min(there * PIECE, self._layout.length),
            self._fetched,
            self._checked,
            self._copy.rate,
            self._state is State.COPYING and self._holds_back(),
            verdict,
        )

    def change(self, copy: Copy) -> None:
        """Go on as it is written down now: at another rate."""
        self._copy, self._own_cap = copy, SharedCap(copy.rate)

    def run(self) -> None:
        """Copy what is missing, check all of it, and read the image from it from then on.

        Ends early once it shall not go on.

        :raises NoSpace: if there is no space for it
        :raises CopyWrong: if the disk does not give back what was written
        :raises VirtmanError, OSError: whatever else keeps it from going on
        """
        try:
            with self._attachment.share.taken(capped=self._attachment.is_capped):
                self._hasten()
                if not self._copy.rate:
                    self._attachment.share.await_word(_WORD)
                self._run()
        except (VirtmanError, OSError) as err:
            self._failure = self._failure or err
            raise
        finally:
            self._over.set()
            if self._state is not State.WHOLE:
                self._state = State.STOPPED

    def _run(self) -> None:
        file = Path(self._copy.path)
        with open(file, "ab") as made:
            made.truncate(self._layout.length)
        self._held = copies.held(self._copy)
        for _ in range(_ROUNDS):
            self._state = State.COPYING
            self._bring(self._leaves())
            if not self._copy.needs and self._may():
                self._copy = self._kept.promise(self._copy, self._need())
            self._bring(*self._stripes())
            if not self._may():
                return
            self._state = State.CHECKING
            wrong = self._wrong()
            if not self._may():
                return
            if not wrong:
                return self._let_go()
            LOG.error("the copy of image %s is wrong in %d pieces", self._copy.image, len(wrong))
            self._held.drop(wrong)
            copies.write_held(self._copy, self._held)
        raise CopyWrong(
            f"the copy of image {self._copy.image} is wrong again and again: the disk with {file} "
            "does not give back what was written"
        )

    def _let_go(self) -> None:
        self._copy = self._kept.change(self._copy, whole=True)
        self._state = State.WHOLE
        LOG.info("image %s: all of it is in %s", self._copy.image, self._copy.path)
        self._attachment.let_go(self._copy.path)

    def _may(self) -> bool:
        return self._goes_on() and not self._over.is_set()

    # What is to come.

    def _leaves(self) -> list[int]:
        first = self._layout.first_of_leaves
        return [one for one in range(first, self._layout.count) if one not in self._held]

    def _stripes(self) -> Iterator[list[int]]:
        stripes = self._attachment.info.stripes
        for stripe in range(stripes):
            numbers = self._layout.of_stripe(stripe, stripes)
            yield [one for one in numbers if one not in self._held]

    def _need(self) -> int:
        """Return the bytes that it takes on the disk: all but zeros."""
        parts = (self._comparison.read(*part) for part in self._layout.all_digests())
        return self._layout.leaves + copying.stored(parts, self._zeros)

    # How it comes.

    def _bring(self, *lanes: Sequence[int]) -> None:
        """Fetch pieces, of each lane some at a time, until all are on the disk or it is over.

        Reads that wait for a parent that does not answer are left behind: they end with the image.
        """
        name = f"copy {self._copy.image}"
        threads = [
            threading.Thread(target=self._work, args=(lane,), name=name, daemon=True)
            for lane in lanes
            if lane
        ]
        for one in threads:
            one.start()
        self._kept.check_reserve(self._copy)
        settled = time.monotonic()
        while any(one.is_alive() for one in threads) and self._may():
            self._sleep(LOOK)
            if len(self._came) * PIECE >= _UNSETTLED or time.monotonic() - settled >= _UNSETTLED_S:
                self._settle()
                self._kept.check_reserve(self._copy)
                settled = time.monotonic()
        self._settle()
        if self._failure is not None:
            raise self._failure

    def _work(self, lane: Sequence[int]) -> None:
        """Fetch the pieces of a lane in order."""
        try:
            with open(self._copy.path, "r+b", buffering=0) as file:
                at, took = 0, 0.0
                while at < len(lane) and not self._over.is_set():
                    taken = self._take(lane, at)
                    took = self._fetch(file.fileno(), taken, took)
                    at += len(taken)
        except (OSError, KernelFailure) as err:
            self._failure = self._failure or err
            self._over.set()

    def _take(self, lane: Sequence[int], at: int) -> Sequence[int]:
        """Return what is asked for together: pieces that lie behind each other."""
        end = at + 1
        while end < len(lane) and lane[end] == lane[end - 1] + 1 and end - at < _TOGETHER:
            end += 1
        return lane[at : at + 1 if self._is_read() or self._holds_back() else end]

    def _fetch(self, descriptor: int, taken: Sequence[int], took: float) -> float:
        """Bring pieces that lie behind each other; return how long the last read took.

        :param took: how long the one before did
        """
        for start, length in self._parts(taken):
            if not self._await_turn(length, self._rest(took)):
                return took
            begun = time.monotonic()
            data = self._from_parents(start, length)
            took = time.monotonic() - begun
            if self._over.is_set():  # the image may have been left since
                return took
            os.pwrite(descriptor, data, start)
            with self._lock:
                self._fetched += length
        with self._lock:
            self._came += taken
        return took

    def _parts(self, taken: Sequence[int]) -> list[tuple[int, int]]:
        """Return offset and length of what is not zeros of pieces that lie behind each other."""
        start = taken[0] * PIECE
        length = sum(self._layout.part(one)[1] for one in taken)
        if taken[0] >= self._layout.first_of_leaves:
            return [(start, length)]
        at = self._layout.digests(taken[0])[0]
        digests = self._comparison.read(at, length // BLOCK * hashtree.DIGEST)
        return [(start + begin, size) for begin, size in copying.runs(digests, self._zeros)]

    def _await_turn(self, length: int, rest: float) -> bool:
        """Wait until so many bytes may be fetched; tell whether they may.

        :param rest: seconds for which to wait at least
        """
        delay = max(rest, self._own_cap.delay(length), self._node_cap.delay(length))
        if not self._attachment.share.wait(length, delay, self._over.is_set):
            return False
        if not self._copy.rate:
            self._attachment.share.give_way(_PAUSE, self._over.is_set)
        end = time.monotonic() + _PATIENCE
        while self._is_read() and time.monotonic() < end and not self._over.is_set():
            time.sleep(_AGAIN)
        return not self._over.is_set()

    def _holds_back(self) -> bool:
        """Tell whether VMs wait, here or on other hosts, for which this holds back."""
        return self._attachment.share.is_wanted and not self._copy.rate

    def _rest(self, took: float) -> float:
        """Return for how many seconds a stripe rests after a read that took so long.

        All stripes are copied side by side, and share the time.
        """
        if not self._holds_back():
            return 0.0
        return min(took * (_PARTS * self._attachment.info.stripes - 1), _LONGEST_REST)

    def _is_read(self) -> bool:
        """Tell whether a VM of this node waits for what it reads of the image."""
        return sysfs.is_read(self._origin)

    def _from_parents(self, start: int, length: int) -> bytes:
        if start >= self._layout.leaves_at:
            return self._caches.read_leaves(start - self._layout.leaves_at, length)
        lacked = self._caches.lacking(list(_pieces(start, length)))
        data = self._caches.read(start, length)
        with self._lock:
            self._passing += lacked
        return data

    def _settle(self) -> None:
        """Have on the disk what came, write that down, and have memory give up what is so."""
        with self._lock:
            came, self._came = self._came, []
            passing, self._passing = self._passing, []
        if came:
            with open(self._copy.path, "rb") as file:
                os.fdatasync(file.fileno())
            with self._lock:
                self._held.add(came)
            copies.write_held(self._copy, self._held)
        self._attachment.copied = min(self._held.count() * PIECE, self._attachment.info.size)
        stripes = self._attachment.info.stripes
        self._attachment.complete = copying.complete(self._layout, self._held, stripes)
        if self._attachment.member().device:  # else children could not get it from here
            for start, length in passing:
                self._caches.forget(start, length)
        self._comparison.forget(0, self._layout.leaves_at)

    def _wrong(self) -> list[int]:
        """Return the pieces that are not what the hash tree says; of two seconds it takes one."""
        self._checked, begin = 0, time.monotonic()

        def pause(length: int) -> bool:
            nonlocal begin
            self._checked += length
            self._over.wait(time.monotonic() - begin)
            begin = time.monotonic()
            return not self._may()

        return sorted({at // PIECE for at in self._comparison.wrong(pause)})


def _pieces(start: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield offset and length of what a part has of each piece."""
    end = start + length
    while start < end:
        after = min(end, start // PIECE * PIECE + PIECE)
        yield start, after - start
        start = after
