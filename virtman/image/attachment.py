"""Who wants an image on this node: it is brought up once for all of them, kept a while, then left.

All changes to an image's devices happen on one thread of its own, one after another. So
there is no lock to hold while waiting for Volt, for a parent or for the kernel.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from virtman.coordinator.interface import Coordinator, ImageInfo, ImageReport
from virtman.errors import DeviceBusy, VirtmanError
from virtman.image import following, lenders, life
from virtman.image.copies import Copies
from virtman.image.demand import Demand
from virtman.image.lenders import Lenders
from virtman.image.life import Life, Phase, Times
from virtman.image.page_caches import PageCaches
from virtman.image.parents import Witness
from virtman.image.share import Share
from virtman.model import feeding, layer_format, plan, sizes
from virtman.model.address import Portal
from virtman.model.naming import Device
from virtman.model.placement import Hydration, Placement
from virtman.stack.builder import Stack
from virtman.stack.cache import Figures, Member
from virtman.stack.mapped import Table, statuses
from virtman.stack.reads import Reads
from virtman.stack.transport import transport

LOG = logging.getLogger(__name__)

LONG_WAIT = 10.0
"""Seconds for which reads may wait for parents before an operator is told."""

_LENDING = 2.0
"""Seconds for which an image waits for another that could lend it something."""


class Attachment:
    """One image: who wants it, and its life, which goes on for as long as somebody does.

    :param portal: where this node serves the image
    :param neighbours: returns the images that are attached here
    :ivar below: the image that it lies on, if it is a layer: attached for as long as VMs need it
    :ivar share: how fast it may be fetched ahead of VMs
    :ivar demand: whether its VMs wait for what they read
    :ivar copied: bytes of a copy of all of it that are here
    :ivar complete: stripes of which that copy has all
    :ivar declines: whether a copy that Volt wants cannot be made here now, or shall not
    :ivar waiting: seconds for which reads have waited for parents
    """

    def __init__(
        self,
        info: ImageInfo,
        portal: Portal,
        stack: Stack,
        coordinator: Coordinator,
        times: Times,
        copies: Copies,
        neighbours: Callable[[], Sequence[Attachment]],
        below: Attachment | None = None,
    ) -> None:
        self.info = info
        self.neighbours = neighbours
        self.below = below
        # Held while what VMs of a layer start from is brought up, which may wait for parents.
        self._lying = threading.Lock()
        self.portal = portal
        self.times = times
        self.share = Share()
        self.demand = Demand(Device(info.name, "origin").node)
        self.copied = 0
        self.complete: tuple[int, ...] = ()
        self.declines = False
        self.waiting = 0.0
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=info.name)
        self._witness = Witness(info.name, coordinator)
        path = lenders.file(stack.folder, info.name)
        borrowing = Lenders(info, path, coordinator, self._neighbour)
        self._life = Life(info, portal, stack, coordinator, times, self._witness, copies, borrowing)
        # Guards the five below; held for moments, never while anything is waited for.
        self._lock = threading.Lock()
        self._users: set[str] = set()
        # the last time that it was opened; None if it never was, or was left since
        self._opened: Future[None] | None = None
        self._timer: threading.Timer | None = None
        self._news: Placement | None = None
        self._mending: Future[None] | None = None

    @property
    def users(self) -> frozenset[str]:
        """VMs that want the image, and who else does, in brackets."""
        with self._lock:
            return frozenset(self._users)

    @property
    def is_booted(self) -> bool:
        """Whether somebody wants it who boots, and does not only go on from memory over it."""
        resumed = {one.as_user for one in self.neighbours() if one.info.has_memory}
        return not self.users <= resumed

    @property
    def vms(self) -> frozenset[str]:
        """VMs that want the image."""
        return frozenset(one for one in self.users if not _is_no_vm(one))

    @property
    def as_user(self) -> str:
        """What it is called as a user of the image that it lies on."""
        return f"({self.info.name})"

    @property
    def devices(self) -> Mapping[Device, str]:
        """Paths of the image's devices, as far as they are there."""
        return self._life.assembly.devices

    @property
    def exports(self) -> Sequence[str]:
        """Paths of what VMs and children read, one a stripe; they may not be there."""
        return [Device(self.info.name, f"export{one}").node for one in range(self.info.stripes)]

    @property
    def multipaths(self) -> Sequence[str]:
        """Paths of what is read from parents, one a stripe; none if all of the image is here."""
        if self._fed_by() is None:
            return []
        return [step.device.node for step in feeding.multipaths(self._life.assembly.wanted)]

    @property
    def page_caches(self) -> PageCaches:
        """What is held of the image in memory."""
        size = sizes.padded(self.info.size) * sizes.SECTOR
        return PageCaches(self.exports, size, self._life.assembly.wanted.ahead)

    @property
    def reads(self) -> Reads | None:
        """The count of what VMs read since the image came.

        None if it was here before, or can have no profile.
        """
        return self._life.reads

    @property
    def generation(self) -> int:
        """Of the placement in use; 0 if there is none, or Volt does not know."""
        return self._life.following.generation

    @property
    def parents(self) -> Sequence[str]:
        """Hosts that feed the image, one a stripe; none if all of it is here."""
        placement = self._fed_by()
        return [feed.parent.host for feed in placement.feeds] if placement else []

    @property
    def is_capped(self) -> bool:
        """Whether Volt said, with the placement, that a cap applies to what is fetched ahead."""
        placement = self._life.assembly.wanted.placement
        return placement is not None and placement.capped

    @property
    def hydration(self) -> Hydration | None:
        """When Volt wants all of the image copied here; None for never."""
        placement = self._life.assembly.wanted.placement
        return placement.hydrate if placement else None

    @property
    def is_attached(self) -> bool:
        """Whether the image has devices that must be looked after."""
        return self._life.is_attached

    @property
    def is_local(self) -> bool:
        """Whether all of the image is here, and it is read from that."""
        return self._life.phase is Phase.LOCAL

    @property
    def lenders(self) -> tuple[str, ...]:
        """Images from which this one reads what it has in common with them."""
        return self._life.assembly.wanted.lenders

    @property
    def borrowers(self) -> Sequence[Attachment]:
        """Images that read from this one."""
        return [one for one in self.neighbours() if self.info.name in one.lenders]

    @property
    def upper(self) -> str:
        """Path of the file with the upper levels of the hash tree."""
        return self._life.assembly.wanted.upper

    @property
    def is_warm(self) -> bool:
        """Whether VMs read from the cache itself."""
        return self._life.assembly.wanted.warm

    def acquire(self, user: str) -> Mapping[Device, str]:
        """Want the image; return its devices once they are up.

        Callers side by side share one bring-up, and its error. After that an image may be attached
        all the same, if it was here before: its keep time begins anew.

        For a VM of a layer, what that lies on is up as well, brought up side by side with it.
        """
        lies = not _is_no_vm(user)
        opened = [self._begin(user), *(self._want_parents() if lies else ())]
        try:
            for one in opened:
                one.result()
            if lies:
                self._lie_on_parent()
        except BaseException:
            self.release(user)
            if lies:
                self._release_parents()
            raise
        return self._life.assembly.devices

    def _want_parents(self) -> list[Future[None]]:
        """Have all that the image lies on brought up; return what tells how that went."""
        if self.below is None:
            return []
        return [self.below._begin(self.as_user), *self.below._want_parents()]

    def _lie_on_parent(self) -> None:
        if self.below is None:
            return
        with self._lying:
            self.below._begin(self.as_user).result()
            self.below._lie_on_parent()
            self._life.lie_on(self.below.info, layer_format.describe(self.page_caches.read))

    def _release_parents(self) -> None:
        """Want what the image lies on no longer, if either is not here."""
        if self.below is None:
            return
        with self._lying:
            if not (self.is_attached and self.below.is_attached):
                self.below.release(self.as_user)
            self.below._release_parents()

    def _begin(self, user: str) -> Future[None]:
        """Want the image; return what tells once it is up, or why it is not."""
        with self._lock:
            self._users.add(user)
            self._stop_timer()
            if self._opened is None or (self._opened.done() and self._opened.exception()):
                self._opened = self._worker.submit(self._life.open)
                # VMs need not wait for who only takes over
                self._worker.submit(self._logged, partial(self._connect_others, self._opened))
            return self._opened

    def release(self, user: str) -> None:
        """Want the image no longer; the last one starts the keep time if there is what to keep."""
        with self._lock:
            self._users.discard(user)
            self._keep_unless_wanted()

    def _keep_unless_wanted(self) -> None:
        if not self._users and self._life.is_attached:
            self._start_timer(self.times.keep)

    def is_moving(self) -> bool:
        """Tell whether the image is being attached, or left."""
        with self._lock:
            return self._opened is not None and not self._opened.done()

    # How the image is, told from what a look at the status of devices has seen. These, and those
    # about parents, run on the caller's thread: the image's own may be waiting for such a parent.

    def names(self) -> set[str]:
        """Return the devices whose status tells how the image is."""
        return self._life.health.names(self._life.assembly.steps)

    def all_names(self) -> set[str]:
        """Return the devices whose status tells all faults."""
        return self._life.health.all_names(self._life.assembly.steps)

    def member(self) -> Member:
        """Return the image's part of the cache group."""
        return self._life.health.member

    def report(self, seen: Mapping[str, Table]) -> ImageReport:
        """Return what this node has done with the image."""
        cached = self.figures(seen)
        sent = transport.sent(self.portal)
        ahead = self.share.is_taken
        return ImageReport(
            self.generation,
            sent,
            cached.hits,
            cached.misses,
            ahead,
            self.info.size if self.is_local else self.copied,
            self.is_local,
            tuple(range(self.info.stripes)) if self.is_local else self.complete,
            self.declines,
            self.demand.waits,
        )

    def figures(self, seen: Mapping[str, Table]) -> Figures:
        """Return what the cache has done for the image."""
        return self._life.health.figures(seen)

    def failed_paths(self, seen: Mapping[str, Table]) -> int:
        """Return how many paths to parents and standbys do not work."""
        return self._life.health.failed_paths(self._life.assembly.steps, seen)

    def path_failures(self, seen: Mapping[str, Table]) -> int:
        """Return how often these have failed, as far as the kernel remembers."""
        return self._life.health.path_failures(self._life.assembly.steps, seen)

    def faults(self, seen: Mapping[str, Table]) -> Sequence[tuple[str, Device]]:
        """Return what is not as it should be with the image's devices: a code, and which."""
        if not self.is_attached:
            return []
        return self._life.health.faults(self._life.assembly.steps, seen)

    # Its parents.

    def give_up(self, silent: Set[tuple[str, int]], stuck: Set[str]) -> None:
        """Have reads go elsewhere that wait for a parent, or standby, that does not answer.

        :param silent: addresses and ports of those whose kernels are silent
        :param stuck: names of what answers no reads
        """
        placement = self._fed_by()
        if placement is not None and (silent or stuck):
            lends = self._life.assembly.wanted.lends
            self._witness.give_up(placement, silent, stuck, lends=lends)

    def verified(self) -> Sequence[plan.Verity]:
        """Return what holds back wrong bytes of parents and standbys."""
        return [step for step in self._life.assembly.steps if isinstance(step, plan.Verity)]

    def check_parents(self, wrong: Collection[Device], cut_off: Set[str]) -> bool:
        """Tell Volt of each parent, and standby, that does not answer or sends wrong bytes.

        :param wrong: those of any image's ``verified`` that wrong bytes came to
        :param cut_off: names of those who have lost the connection, of any image
        :returns: whether Volt knows of all who are silent; else this should be called again
        """
        mine = {one.argument for one in wrong if one.image == self.info.name}
        if "" in mine:  # from no parent: from a copy, or from what others lend
            self.mend(look([self]), cut_off)
        if self.is_local and mine:
            return False
        placement = self._fed_by()
        if placement is None:
            return True
        self._witness.check_bytes(mine - {""})
        if self._witness.has_back(placement, cut_off):
            self.mend(look([self]), cut_off)
        return self._witness.check_answers(placement, cut_off)

    # What changes its devices, each on the image's own thread.

    def apply(self, placement: Placement) -> None:
        """Move to a newer placement, soon."""
        with self._lock:
            waiting, self._news = self._news, placement
        if waiting is None:
            self._worker.submit(self._logged, self._apply_news)

    def use(self, placement: Placement) -> None:
        """Move to a placement, and return once it is used."""
        self._worker.submit(self._life.use, placement).result()

    def rejoin(self) -> None:
        """Take a place again: Volt has lost this host's."""
        self._worker.submit(self._logged, self._rejoin)

    def rejoin_now(self) -> None:
        """Take a place again, and return once it is used."""
        self._worker.submit(self._rejoin).result()

    def mend(self, seen: Mapping[str, Table], cut_off: Set[str]) -> None:
        """Use paths again that failed and are back, and a cache that is.

        One that is not done yet is enough: parents that do not answer take it longer than a
        heartbeat, and what Volt says shall not have to wait for many of them.
        """
        with self._lock:
            if self._mending is None or self._mending.done():
                self._mending = self._worker.submit(
                    self._logged, partial(self._life.mend, seen, cut_off)
                )

    def lend(self) -> bool:
        """Have others read from the image; tell whether they can, and soon."""
        try:
            return self._worker.submit(self._life.lend).result(_LENDING)
        except (VirtmanError, RuntimeError, TimeoutError) as err:  # RuntimeError: it was stopped
            LOG.warning("image %s lends nothing now: %s", self.info.name, err or "it is busy")
            return False

    def give_back(self, lender: str) -> None:
        """Read nothing from another image any more.

        :raises DeviceBusy: if that cannot be now
        """
        try:
            self._worker.submit(self._life.give_back, lender).result(self.times.leave)
        except TimeoutError:
            raise DeviceBusy(
                f"image {lender} lends blocks to image {self.info.name}, which is busy: try again"
            ) from None

    def let_go(self, copy: str) -> None:
        """Read from a copy of all of it, and from no parent any more; it is on record as whole.

        :param copy: path of its file
        """
        self._worker.submit(self._life.let_go, copy).result()

    def take_back(self) -> None:
        """Have parents feed the image again instead of its copy.

        :raises ParentUnreachable: if they do not; then it stays on its copy
        """
        self._worker.submit(self._life.take_back).result()

    def count_anew(self) -> Reads:
        """Count what VMs read from now on, instead of what was counted before.

        :raises KernelFailure: if the kernel does not
        """
        return self._worker.submit(self._life.count_anew).result()

    def restore(self) -> None:
        """Bring back what is missing, try again what failed, take away what is too much."""
        self._worker.submit(self._restore).result()

    def drop(self) -> None:
        """Leave the image now.

        :raises DeviceBusy: while VMs want it
        """
        self._worker.submit(self._leave).result()

    def stop(self) -> None:
        """End the thread and leave all devices as they are."""
        with self._lock:
            self._stop_timer()
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _fed_by(self) -> Placement | None:
        return None if self.is_local else self._life.assembly.wanted.placement

    def _neighbour(self, image: str) -> Attachment | None:
        return next((one for one in self.neighbours() if one.info.name == image), None)

    # From here on everything runs on the worker, but for the timer.

    def _connect_others(self, opened: Future[None]) -> None:
        if opened.exception() is None:
            with self._lock:  # whoever wanted it may not have waited
                self._keep_unless_wanted()
            self._life.connect()

    def _apply_news(self) -> None:
        with self._lock:
            placement, self._news = self._news, None
        if placement is not None:
            self._life.use(placement)

    def _rejoin(self) -> None:
        if self._life.is_here and self._life.is_remade():
            # who joined now would feed the earlier image to others; only VMs keep that here
            with self._lock:
                self._users = {one for one in self._users if not _is_no_vm(one)}
            self._idle()
            raise life.remade(self.info.name, self._life.health.running())
        self._life.rejoin()

    def _restore(self) -> None:
        if self._life.phase is Phase.LEAVING and not self._life.is_here:
            self._leave()  # that failed half way
        else:
            self._life.restore()

    def _leave(self) -> None:
        name = self.info.name
        with self._lock:
            if self._users:
                raise life.in_use(name, self._users)
            if self._opened is None:
                return
            self._stop_timer()
            self._opened = None
        try:
            for one in self.borrowers:
                one.give_back(name)
            self._life.leave()
        except BaseException as err:
            with self._lock:
                if self._opened is None:
                    # whoever wants the image now must have it brought up and placed again
                    self._opened = Future()
                    self._opened.set_exception(err)
                    self._start_timer(max(self.times.keep, following.RETRY))
            raise
        if self.below is not None:
            self.below.release(self.as_user)
        LOG.info("left image %s", name)

    def _rest(self) -> None:
        """Leave, unless others read from the image what they have in common with it."""
        if self.borrowers:
            with self._lock:
                self._start_timer(max(self.times.keep, following.RETRY))
        else:
            self._idle()

    def _idle(self) -> None:
        with contextlib.suppress(DeviceBusy):
            self._leave()

    def _logged(self, work: Callable[[], None]) -> None:
        """Run work that nobody waits for; the next heartbeat brings it again."""
        try:
            work()
        except VirtmanError as err:
            LOG.warning("image %s: %s", self.info.name, err)
        except Exception:
            LOG.exception("image %s", self.info.name)

    def _start_timer(self, delay: float) -> None:
        self._stop_timer()
        self._timer = threading.Timer(delay, self._idle_soon)
        self._timer.daemon = True
        self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _idle_soon(self) -> None:
        with contextlib.suppress(RuntimeError):  # stopped meanwhile
            self._worker.submit(self._logged, self._rest)


def _is_no_vm(user: str) -> bool:
    return user.startswith("(")


def look(attachments: Iterable[Attachment]) -> Mapping[str, Table]:
    """Return the status of what tells how images are, by name; all of it by one root verb."""
    return statuses({name for one in attachments for name in one.names()})


def look_closely(attachments: Iterable[Attachment]) -> Mapping[str, Table]:
    """Return the status of all devices of images, by name; by one root verb too."""
    return statuses({name for one in attachments for name in one.all_names()})
