"""One image on this node: brought up once for all who want it, kept a while, then left.

All changes to an image's devices happen on one thread of its own, one after another. So
there is no lock to hold while waiting for Volt, for a parent or for the kernel.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from virtman import sysfs
from virtman.coordinator.interface import Coordinator, ImageInfo, ImageReport
from virtman.errors import (
    CoordinatorUnreachable,
    DeviceBusy,
    ImageMismatch,
    KernelFailure,
    ParentUnreachable,
    PlacementStale,
    VirtmanError,
)
from virtman.image.devices import Layout
from virtman.image.hit_rate import Warmth
from virtman.image.parents import Witness
from virtman.model import plan
from virtman.model.address import Portal
from virtman.model.naming import Device
from virtman.model.plan import Placement
from virtman.stack.builder import Stack
from virtman.stack.cache import Figures, Member
from virtman.stack.layer import wait_until
from virtman.stack.layers.image import Image as ImageLayer
from virtman.stack.layers.multipath import Multipath
from virtman.stack.mapped import Table, statuses
from virtman.stack.transport import transport

LOG = logging.getLogger(__name__)

_RETRY = 1.0
_ASK = 0.25


@dataclass(frozen=True)
class Times:
    """Seconds: how long an unused image is kept, and how long a change may take.

    :ivar warm: how long hardly a read may miss the cache before VMs read from that; 0 for never
    """

    keep: float
    attach: float
    leave: float
    warm: float


class Attachment:
    """One image's stack: who wants it, and where Volt has placed it.

    :param portal: where this node serves the image
    :ivar generation: of the placement in use; 0 if there is none
    """

    def __init__(
        self, info: ImageInfo, portal: Portal, stack: Stack, coordinator: Coordinator, times: Times
    ) -> None:
        self.info = info
        self.portal = portal
        self.stack = stack
        self.coordinator = coordinator
        self.times = times
        self.placement: Placement | None = None
        # Of the placement that is in use, not of one that could not be reached yet: Volt
        # sends that one again with every heartbeat.
        self.generation = 0
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=info.name)
        self._devices: dict[Device, str] = {}
        self._layout = Layout(info, portal, stack)
        self._witness = Witness(info.name, coordinator)
        self._warmth = Warmth(times.warm)
        # Whether a change of the devices ended half way, which their status may not show.
        self._is_unfinished = False
        # Guards the five below; held for moments, never while anything is waited for.
        self._lock = threading.Lock()
        self._users: set[str] = set()
        self._up: Future[None] | None = None
        self._timer: threading.Timer | None = None
        self._news: Placement | None = None
        self._mending: Future[None] | None = None

    @property
    def users(self) -> frozenset[str]:
        """VMs that want the image."""
        with self._lock:
            return frozenset(self._users)

    @property
    def devices(self) -> Mapping[Device, str]:
        """Paths of the image's devices, as far as they are there."""
        return self._devices

    @property
    def is_warm(self) -> bool:
        """Whether VMs read from the cache itself."""
        return self._layout.warm

    def acquire(self, user: str) -> Mapping[Device, str]:
        """Want the image; return its devices once they are up.

        Callers side by side share one bring-up, and its error.
        """
        with self._lock:
            self._users.add(user)
            self._stop_timer()
            if self._up is None or (self._up.done() and self._up.exception()):
                self._up = self._worker.submit(self._bring_up)
            up = self._up
        try:
            up.result()
        except BaseException:
            with self._lock:
                self._users.discard(user)
            raise
        return self._devices

    def release(self, user: str) -> None:
        """Want the image no longer; the last one starts the keep time."""
        with self._lock:
            self._users.discard(user)
            if not self._users and self._up is not None:
                self._start_timer(self.times.keep)

    def apply(self, placement: Placement) -> None:
        """Move to a newer placement, soon."""
        with self._lock:
            waiting, self._news = self._news, placement
        if waiting is None:
            self._worker.submit(self._logged, self._apply_news)

    def report(self, seen: Mapping[str, Table]) -> ImageReport:
        """Return what this node has done with the image.

        :param seen: what ``look`` returned
        """
        cached = self.figures(seen)
        sent = transport.sent(self.portal)
        return ImageReport(self.generation, sent, cached.hits, cached.misses)

    def figures(self, seen: Mapping[str, Table]) -> Figures:
        """Return what the cache has done for the image.

        :param seen: what ``look`` returned
        """
        return self._layout.figures(seen)

    def member(self) -> Member:
        """Return the image's part of the cache group."""
        return self._layout.member()

    def names(self) -> set[str]:
        """Return the devices whose status tells how the image is."""
        return self._layout.names()

    # These run on the caller's thread: the image's own may be waiting for that very parent.

    def give_up(self, silent: Collection[tuple[str, int]]) -> None:
        """Have reads go elsewhere that wait for a parent, or standby, whose kernel is silent.

        :param silent: addresses and ports
        """
        placement = self.placement
        if placement is not None:
            self._witness.give_up(placement, silent)

    def verified(self) -> Sequence[plan.Verity]:
        """Return what holds back wrong bytes of parents and standbys."""
        if self.placement is None or not self._layout.is_verified():
            return ()
        steps = self._layout.connect(self.placement)
        return [step for step in steps if isinstance(step, plan.Verity)]

    def check_parents(self, wrong: Collection[Device]) -> bool:
        """Tell Volt of each parent, and standby, that does not answer or sends wrong bytes.

        :param wrong: those of any image's ``verified`` that wrong bytes came to
        :returns: whether Volt knows of all who are silent; else this should be called again
        """
        placement = self.placement
        if placement is None:
            return True
        self._witness.check_bytes({one.argument for one in wrong if one.image == self.info.name})
        return self._witness.check_answers(placement)

    def rejoin(self) -> None:
        """Take a place again: Volt has lost this host's."""
        self._worker.submit(self._logged, self._rejoin)

    def rejoin_now(self) -> None:
        """Take a place again, and return once it is used."""
        self._worker.submit(self._rejoin).result()

    def use(self, placement: Placement) -> None:
        """Move to a placement, and return once it is used."""
        self._worker.submit(self._use, placement).result()

    def restore(self) -> None:
        """Bring back what is missing, try again what failed, take away what is too much."""
        self._worker.submit(self._restore).result()

    def is_moving(self) -> bool:
        """Tell whether the image is being attached, or left."""
        with self._lock:
            return self._up is not None and not self._up.done()

    def faults(self) -> Sequence[tuple[str, Device]]:
        """Return what is not as it should be with the image's devices: a code, and which."""
        placement = self.placement
        if placement is None:
            return []
        # a device may be in a plan twice, first alone and then with what lies below
        wanted = {step.device: step for step in self._layout.whole(placement)}
        found = []
        for step in wanted.values():
            layer = self.stack.layer(step)
            if isinstance(step, plan.Cache):
                if not self._layout.is_caching(look([self])):
                    found.append(("cache.absent", step.device))
            elif isinstance(layer, Multipath | ImageLayer) and layer.has_failed():
                found.append(("path.failed", step.device))
            elif not layer.is_up():
                found.append(("image.incomplete", step.device))
        below, above = self.stack.paths(self.info.name)
        extra = {step.device for step in (*below, *above)} - wanted.keys()
        return [*found, *(("path.orphan", device) for device in extra)]

    def mend(self, seen: Mapping[str, Table]) -> None:
        """Use paths again that failed and are back, and a cache that is.

        One that is not done yet is enough: parents that do not answer take it longer than a
        heartbeat, and what Volt says shall not have to wait for many of them.

        :param seen: what ``look`` returned
        """
        with self._lock:
            if self._mending is None or self._mending.done():
                self._mending = self._worker.submit(self._logged, lambda: self._mend(seen))

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

    # From here on everything runs on the worker.

    def _bring_up(self) -> None:
        begin = time.monotonic()
        name, layout = self.info.name, self._layout
        self._clear_earlier()
        found = self._layout.export().is_up() or bool(self._running())
        try:
            self._devices = self.stack.up(layout.serve())
            placement = self.coordinator.join(name, self.portal)
            # children hear of this place as soon as we do
            self._layout.export().require(placement.proof)
            layout.fetch_hashes(self.coordinator)
            layout.recall()
            steps = (*layout.hashes(), *layout.assemble(), *layout.origin())
            self._devices = self.stack.up(steps, self._devices)
            self._connect(placement, begin + self.times.attach)
        except BaseException:
            # A stack that was there before may carry running VMs: it is left as it is.
            if not found:
                self._undo()
            raise
        LOG.info("image %s is up after %.2f s", name, time.monotonic() - begin)
        self._worker.submit(self._logged, self._connect_standby)

    def _clear_earlier(self) -> None:
        """Take away what the kernel has of an earlier image of the same name."""
        mine = {step.device for step in self._layout.serve()}
        if any(void.device not in mine for void in self.stack.voids(self.info.name)):
            running = self._running()
            if running:
                raise _remade(self.info.name, running)
            LOG.info("image %s was made anew: giving the earlier one up", self.info.name)
            self.stack.down(self._layout.remains())

    def _connect(self, placement: Placement, deadline: float) -> None:
        """Use a placement, or the newer one that Volt has by the time this one is in use."""
        while True:
            try:
                self.placement = placement
                self._layout.export().require(placement.proof)
                steps = self._layout.connect(placement, standby=False)
                self._devices = self.stack.up(steps, self._devices)
                self.stack.prune(placement.image, self._layout.connect(placement))
                self._tell_ready(placement)
                return
            except PlacementStale:
                LOG.debug("image %s: placed anew meanwhile", placement.image)
            except (ParentUnreachable, KernelFailure) as err:
                if isinstance(err, ParentUnreachable):
                    self._witness.accuse(err.host)
                    if self._make_do(placement, err):
                        return
                if time.monotonic() > deadline:
                    raise
                LOG.warning("image %s: %s; trying again", placement.image, err)
                time.sleep(_RETRY)
            placement = self.coordinator.placement(placement.image)

    def _tell_ready(self, placement: Placement) -> None:
        try:
            self.coordinator.ready(placement.image, placement.generation)
        except CoordinatorUnreachable as err:
            # it sends the placement again with the first heartbeat that reaches it
            LOG.warning("image %s is in use without Volt's knowing: %s", placement.image, err)
            self.generation = 0
        else:
            self.generation = placement.generation

    def _make_do(self, placement: Placement, err: ParentUnreachable) -> bool:
        """Read through standbys where a parent does not answer; tell whether that works.

        Volt does not hear that we are ready, so it goes on sending the placement, until the
        parent is back or we are placed anew.
        """
        feasible = placement.without(err.host)
        while feasible is not None:
            LOG.warning("image %s: %s; using standbys", placement.image, err)
            try:
                steps = self._layout.connect(feasible, standby=False)
                self._devices = self.stack.up(steps, self._devices)
            except ParentUnreachable as also:
                err = also
                feasible = feasible.without(err.host)
            else:
                return True
        return False

    def _connect_standby(self) -> None:
        if self.placement is not None:
            steps = self._layout.connect(self.placement)
            self._devices = self.stack.connect(steps, self._devices)

    def _mend(self, seen: Mapping[str, Table]) -> None:
        if self.placement is None:
            return
        layout = self._layout
        waits = layout.waits(seen)
        try:
            if waits:
                self._connect_standby()
        finally:  # a cache that is back is of use also while a parent does not answer
            if self._is_unfinished or not layout.is_whole(seen):
                steps = (*layout.assemble(), *layout.origin())
                self._devices = self.stack.up(steps, self._devices)
                self._is_unfinished = False
        if not waits:  # else reads may hang that a swap of tables has to wait for
            self._weigh(layout.figures(seen))

    def _weigh(self, figures: Figures) -> None:
        """Have VMs read from the cache once hardly anything is missed, or no longer."""
        layout = self._layout
        cache = self._devices[Device(self.info.name, "cache")]
        # a device's block size must not change under VMs
        fits = sysfs.block_size(cache) == plan.SECTOR
        warm = self._warmth.look(figures, layout.warm) and fits
        if warm == layout.warm:
            return
        way = "from the cache" if warm else "through the page cache"
        LOG.info("image %s: VMs read it %s", self.info.name, way)
        layout.warm = warm
        # VMs may miss a few sectors only while something below the cache can fetch these
        below, top = layout.assemble(), layout.origin()
        self._devices = self.stack.up(below + top if warm else top + below, self._devices)

    def _restore(self) -> None:
        if self.placement is None:
            return
        layout = self._layout
        layout.fetch_hashes(self.coordinator)
        self._devices = self.stack.up(layout.own())
        self._layout.export().require(self.placement.proof)
        self._connect_standby()
        self.stack.prune(self.info.name, self._layout.connect(self.placement))

    def _apply_news(self) -> None:
        with self._lock:
            placement, self._news = self._news, None
        if placement is not None:
            self._use(placement)

    def _use(self, placement: Placement) -> None:
        if self.placement is not None and placement.generation != self.generation:
            LOG.info("image %s: placement %s", placement.image, placement.generation)
            self._connect(placement, time.monotonic() + self.times.attach)
            self._connect_standby()

    def _rejoin(self) -> None:
        if self.placement is None:
            return
        if self.coordinator.image(self.info.name).identity != self.info.identity:
            # who joined now would feed the earlier image to others
            self._idle()
            raise _remade(self.info.name, self._running())
        placement = self.coordinator.join(self.info.name, self.portal)
        self._connect(placement, time.monotonic() + self.times.attach)
        self._connect_standby()

    def _leave(self) -> None:
        name = self.info.name
        with self._lock:
            if self._users:
                raise _in_use(name, self._users)
            if self._up is None:
                return
            self._stop_timer()
            self._up = None
        try:
            self._part()
        except BaseException as err:
            with self._lock:
                if self._up is None:
                    # whoever wants the image now must have it brought up and placed again
                    self._up = Future()
                    self._up.set_exception(err)
                    self._start_timer(max(self.times.keep, _RETRY))
            raise
        LOG.info("left image %s", name)

    def _part(self) -> None:
        """Have the children moved, wait until they have, then take all down.

        Children that are leaving too stay logged in until they go themselves, and may be
        waiting for this host in turn. So it is Volt who knows when nobody needs it.
        """
        name = self.info.name
        running = self._running()
        if running:
            raise _in_use(name, running)
        self.coordinator.leave(name)
        export = self._layout.export()
        wait_until(
            lambda: not export.children() or not self.coordinator.needed(name),
            self.times.leave,
            f"image {name}: children moving on",
            every=_ASK,
        )
        self.stack.down(self._layout.remains())
        self._devices = {}
        self.coordinator.remove(name)
        self.placement = None
        self.generation = 0

    def _running(self) -> set[str]:
        """VMs that the kernel has: after a restart there may be more than users."""
        devices = self.stack.present().get(self.info.name, [])
        return {one.argument for one in devices if one.role == "vm"}

    def _undo(self) -> None:
        with contextlib.suppress(ExceptionGroup, VirtmanError):
            self.stack.down(self._layout.remains())
        self.placement = None
        self.generation = 0
        self._devices = {}
        with contextlib.suppress(VirtmanError):
            self.coordinator.remove(self.info.name)

    def _logged(self, work: Callable[[], None]) -> None:
        """Run work that nobody waits for; the next heartbeat brings it again."""
        try:
            work()
        except VirtmanError as err:
            self._is_unfinished = True
            LOG.warning("image %s: %s", self.info.name, err)
        except Exception:
            self._is_unfinished = True
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
            self._worker.submit(self._logged, self._idle)

    def _idle(self) -> None:
        with contextlib.suppress(DeviceBusy):
            self._leave()


def look(attachments: Iterable[Attachment]) -> Mapping[str, Table]:
    """Return the status of what tells how images are, by name; all of it by one root verb."""
    return statuses({name for one in attachments for name in one.names()})


def _remade(image: str, vms: Iterable[str]) -> ImageMismatch:
    names = ", ".join(sorted(vms)) or "none"
    return ImageMismatch(
        f"image {image} was deleted and made anew in Volt; VMs on the earlier one: {names}; "
        "destroy them first"
    )


def _in_use(image: str, vms: Iterable[str]) -> DeviceBusy:
    names = ", ".join(sorted(vms))
    return DeviceBusy(f"image {image} is in use by {names}; destroy them first")
