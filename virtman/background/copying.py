"""Has whole images copied to this node, and sees to it that copies are used, and stay right.

An image of which there is a copy, or is to be one, stays attached: others may read from it. What
is on record goes on after a restart, and what failed is tried again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from virtman.background.claims import Claims
from virtman.errors import CopyUnknown, InvalidRequest, VirtmanError
from virtman.image import copies
from virtman.image.comparison import Comparison, Findings
from virtman.image.copies import Copies
from virtman.image.share import SharedCap
from virtman.image.whole import Copier, Progress, State
from virtman.model.copying import PIECE, Copy
from virtman.node.images import Images
from virtman.periodic import Periodic

LOG = logging.getLogger(__name__)

_USER = "(copy)"
"""Uses the image; no VM can be called so."""

_INTERVAL = 1.0

_AGAIN = 60.0
"""Seconds after which what failed is tried again."""


class Copying:
    """A thread for each copy that is not whole.

    :param cap: of all that this node fetches ahead of VMs
    :param hasten: has a heartbeat sent now, as Volt may have to say how fast to fetch
    :param clock: returns seconds since 1970
    """

    def __init__(
        self,
        images: Images,
        kept: Copies,
        cap: SharedCap,
        hasten: Callable[[], object],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.images = images
        self.copies = kept
        self.cap = cap
        self._hasten = hasten
        self._clock = clock
        # Guards what follows; held for moments only.
        self._lock = threading.Lock()
        self._claims = Claims(self._lock)
        self._ending: set[str] = set()
        self._copiers: dict[str, Copier] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._not_before: dict[str, float] = {}
        self._troubles: dict[str, str] = {}
        # Until when no copy is made at Volt's word: none can be, or one was just given back.
        self._declined: dict[str, float] = {}
        self._rounds = Periodic("copying", self.look, _INTERVAL)

    def start(self) -> None:
        """Begin."""
        self._rounds.start()

    def stop(self) -> None:
        """End all; a read that is under way ends with the process."""
        self._rounds.stop()

    def look(self) -> None:
        """Begin what Volt wants; go on with what is on record and neither done nor under way."""
        now = time.monotonic()
        self._begin_wanted(now)
        self._say_what_is_declined(now)
        for copy in self.copies.all():
            if not self._is_done(copy):
                self._spawn(copy.image, now)

    def _begin_wanted(self, now: float) -> None:
        """Begin to copy the images that Volt wants copied, once they are here for long enough."""
        attachments = self.images.attachments()
        # an image that VMs need is on its way, after a restart
        here = {one.info.name for one in attachments} | self.images.written() | self.images.moving()
        today = self._clock()
        came = self.copies.arrivals(here, today)
        wanted = {
            one.info.name: one.hydration
            for one in attachments
            if one.hydration is not None and self.copies.get(one.info.name) is None
        }
        for image, how in wanted.items():
            is_due = today - came[image] >= how.after
            if is_due and now >= self._declined.get(image, now):
                try:
                    self._begin(image, how.rate)
                except VirtmanError as err:
                    LOG.warning("image %s: it is not copied: %s", image, err)
                    self._declined[image] = now + _AGAIN

    def _say_what_is_declined(self, now: float) -> None:
        """Have Volt hear which images it should have copied by other hosts."""
        said = False
        for one in self.images.attachments():
            image = one.info.name
            declines = now < self._declined.get(image, now) or image in self._troubles
            said |= declines and not one.declines
            one.declines = declines
        if said:
            self._hasten()

    def hydrate(self, image: str, rate: int = 0) -> Progress:
        """Have a whole image copied to this node, or go on at another rate; return how far it is.

        :param rate: bytes/s at which it may be fetched; 0 for no limit but those of all
        :raises ImageUnknown: if Volt does not have it
        :raises InvalidRequest: if nothing tells whether its blocks are right
        :raises NoSpace: if it does not fit
        """
        self._begin(image, rate)
        self.look()
        found = self.progress(image)
        assert found is not None
        return found

    def _begin(self, image: str, rate: int) -> None:
        info = self.images.info(image)
        if info.tree is None or not self.images.stack.verify:
            reason = "has no hash tree" if info.tree is None else "is not verified on this node"
            raise InvalidRequest(
                f"image {image} {reason}: nothing tells whether a copy is right. Add it with a "
                "hash tree, and set [image] verify = true"
            )
        with self._claims.claimed(image):
            attachment = self.images.attach(image, _USER)
            try:
                copy = self.copies.begin(info, rate)
            except BaseException:
                attachment.release(_USER)
                raise
            with self._lock:
                copier = self._copiers.get(image)
                self._not_before.pop(image, None)
                self._troubles.pop(image, None)
                self._declined.pop(image, None)
                if copier is not None and copier.progress().state is State.STOPPED:
                    del self._copiers[image]  # another one goes on
            if copier is not None:
                copier.change(copy)

    def release(self, image: str) -> None:
        """Give a copy of an image back, whole or not; parents feed the image from then on.

        :raises CopyUnknown: if there is none
        :raises ParentUnreachable: if no parents feed it; then the copy stays
        """
        with self._claims.claimed(image):
            copy = self._known(image)
            with self._ended(image):
                attachment = self.images.attach(image, _USER)
                attachment.take_back()
                self.copies.forget(copy)
                attachment.copied, attachment.complete = 0, ()
                with self._lock:
                    self._copiers.pop(image, None)
                    self._troubles.pop(image, None)
                    self._declined[image] = time.monotonic() + _AGAIN
                attachment.declines = True
            attachment.release(_USER)
            self._hasten()
        LOG.info("image %s: its copy is given back", image)

    def progress(self, image: str) -> Progress | None:
        """Return how far the copy of an image is; None if there is none, nor is one made."""
        copy = self.copies.get(image)
        with self._lock:
            copier, trouble = self._copiers.get(image), self._troubles.get(image, "")
        if copy is None:
            return None
        if copier is not None:
            return copier.progress()
        length = copy.layout.length
        if copy.whole:
            return Progress(State.WHOLE, length, length, 0, 0, copy.rate, False, "")
        state = State.STOPPED if trouble else State.COPYING  # or about to
        return Progress(state, length, 0, 0, 0, copy.rate, False, trouble)

    def scrub(self, image: str, pause: Callable[[int], bool] = lambda length: False) -> Findings:
        """Compare a whole copy with the hash tree; have what is wrong fetched again from others.

        :param pause: is called with the bytes that were compared since it was called last; returns
            whether that was enough
        :raises CopyUnknown: if there is none
        :raises ParentUnreachable: if something is wrong, and nobody is there to fetch it from
        """
        copy, attachment = self._known(image), self.images.attached(image)
        checked = 0

        def counted(length: int) -> bool:
            nonlocal checked
            checked += length
            return pause(length)

        wrong = Comparison(attachment, copy).wrong(counted)
        if wrong:
            LOG.error("image %s: its copy was wrong at bytes %s", image, wrong)
            with self._claims.claimed(image):
                attachment.take_back()
                self._lose(copy, {at // PIECE for at in wrong})
            self._rounds.wake()
        return Findings(checked, tuple(wrong))

    def _lose(self, copy: Copy, numbers: set[int]) -> None:
        """Have pieces of a copy fetched again."""
        held = copies.held(copy)
        held.drop(numbers)
        copies.write_held(copy, held)
        self.copies.change(copy, whole=False)

    def _known(self, image: str) -> Copy:
        copy = self.copies.get(image)
        if copy is None:
            raise CopyUnknown(
                f"there is no copy of image {image} on this node: 'virtman image hydrate' makes one"
            )
        return copy

    def _is_done(self, copy: Copy) -> bool:
        attached = {one.info.name: one for one in self.images.attachments()}
        found = attached.get(copy.image)
        return copy.whole and found is not None and found.is_local and _USER in found.users

    def _spawn(self, image: str, now: float) -> None:
        """Go on with a copy, unless that is under way, or failed a moment ago."""
        with self._lock:  # until it has begun: who looks at the same time begins no other
            before = self._threads.get(image)
            is_free = image not in self._claims and not (before and before.is_alive())
            if is_free and self._not_before.get(image, 0.0) <= now:
                self._threads[image] = threading.Thread(
                    target=self._work, args=(image,), name=f"copies {image}", daemon=True
                )
                self._threads[image].start()

    def _work(self, image: str) -> None:
        try:
            self._go_on(image)
        except (VirtmanError, OSError) as err:
            LOG.warning("image %s: it is not copied: %s", image, err)
            with self._lock:
                self._not_before[image] = time.monotonic() + _AGAIN
                self._troubles[image] = str(err)

    def _go_on(self, image: str) -> None:
        attachment = self.images.attach(image, _USER)
        copy = self.copies.mended(attachment.info)
        if copy is None:  # it was of an earlier image, or is given back
            attachment.release(_USER)
            return
        if copy.whole and attachment.is_local:
            return
        if copy.whole:
            copy = self.copies.change(copy, whole=False)
        copier = Copier(
            attachment,
            self.copies,
            copy,
            self.cap,
            lambda: not self._rounds.is_stopped and image not in self._ending,
            self._rounds.sleep,
            self._hasten,
        )
        with self._lock:
            self._copiers[image] = copier
            self._troubles.pop(image, None)
        copier.run()
        self._hasten()

    @contextlib.contextmanager
    def _ended(self, image: str) -> Iterator[None]:
        """Have nothing copied of an image meanwhile; it goes on afterwards, if it is on record."""
        with self._lock:
            self._ending.add(image)
            thread = self._threads.get(image)
        try:
            if thread is not None:
                thread.join()
            yield
        finally:
            with self._lock:
                self._ending.discard(image)
