"""How an image's devices come, change and go on this node: one plan, carried out in one place.

An image is in one of these phases::

    absent ──> opening ──> fed ──> leaving ──> absent
       ^          │  ^    │   ^       │
       └─ undone ─┘  │  local ┘       │
                     └─ wanted again ─┘

An image is local once a copy of all of it is on record here: then it is read from that, and needs
no parents. Should the copy turn out wrong, or be given back, parents feed it again.

Whatever is to change, a placement, the parents in use, from where VMs read, or a device that is
missing, is said in a ``Wanted``; ``_reconcile`` has the devices so.

Nothing here is safe for threads: the image's own runs it all, while others read what is public.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path

from virtman import sysfs
from virtman.coordinator.interface import Coordinator, ImageInfo
from virtman.errors import (
    CoordinatorUnreachable,
    DeviceBusy,
    ImageMismatch,
    KernelFailure,
    ParentUnreachable,
    PlacementStale,
    VirtmanError,
)
from virtman.image import hashes
from virtman.image.copies import Copies
from virtman.image.health import Health
from virtman.image.hit_rate import Warmth
from virtman.image.lenders import Lenders
from virtman.image.parents import Witness
from virtman.model import feeding, keeping, lending, plan, planner, sizes
from virtman.model.address import Portal
from virtman.model.layer_format import Description
from virtman.model.naming import Device
from virtman.model.placement import Feed, Placement
from virtman.model.wanted import Parents, Wanted
from virtman.stack.builder import Built, Stack
from virtman.stack.layer import wait_until
from virtman.stack.layers.verity import corrupt
from virtman.stack.mapped import Table, statuses
from virtman.stack.reads import Reads
from virtman.stack.transport import transport

LOG = logging.getLogger(__name__)

RETRY = 1.0
"""Seconds between two tries of what failed."""

_ASK = 0.25
_ORDER = 10.0
"""Seconds for which a new parent may read from others than it shall, if who fed us still does."""
_USES = {
    "(copy)": "all of it is copied here: give that back first ('virtman image release')",
    "(scrub)": "a scrub reads it: try again after that",
}


@dataclass(frozen=True)
class Times:
    """Seconds: how long an unused image is kept, and how long a change may take.

    :ivar warm: how long hardly a read may miss the cache before VMs read from that; 0 for never
    """

    keep: float
    attach: float
    leave: float
    warm: float


class Phase(enum.Enum):
    """Where an image is in its life on this node."""

    ABSENT = "this agent has brought nothing of it up"
    OPENING = "it is served, and waits for a place in the trees"
    FED = "it has a place, and parents feed it, or will once they answer"
    LOCAL = "it has a place, and all of it is here"
    LEAVING = "its children are moved, then its devices go"


class Life:
    """One image's.

    :ivar wanted: what its devices are to be
    :ivar steps: all that has to be there for that, once the standbys are connected too
    :ivar devices: paths of those that are there; empty before the first, and from when they go
    :ivar generation: of the placement in use; 0 if there is none, or Volt does not know
    :ivar reads: counts what VMs read; None if the image was here before or can have no profile
    """

    def __init__(
        self,
        info: ImageInfo,
        portal: Portal,
        stack: Stack,
        coordinator: Coordinator,
        times: Times,
        witness: Witness,
        copies: Copies,
        lenders: Lenders,
    ) -> None:
        self.info = info
        self.copies = copies
        self.stack = stack
        self.coordinator = coordinator
        self.times = times
        self.witness = witness
        self.lenders = lenders
        self.phase = Phase.ABSENT
        upper = str(hashes.file(stack.folder, info.name))
        self.wanted = Wanted(
            info.name,
            info.size,
            info.stripes,
            info.identity,
            info.tree,
            portal,
            upper,
            verify=stack.verify,
            lies_on=info.layer.parent if info.layer else "",
            basis=str(lenders.path) if lenders.names else "",
            memory=info.has_memory,
        )
        self.steps: plan.Plan = ()
        self.devices: Mapping[Device, str] = {}
        # Of the placement that is in use, not of one that could not be reached yet: Volt
        # sends that one again with every heartbeat.
        self.generation = 0
        self.reads: Reads | None = None
        self.health = Health(stack, self.wanted)
        self._warmth = Warmth(times.warm)
        # Whether lenders had wrong bytes; then it reads from none until it has left.
        self._distrusts = False
        # What is known to be done of the plan; nothing while a change is under way or has failed.
        self._done: frozenset[plan.Step] = frozenset()

    @property
    def is_attached(self) -> bool:
        """Tell whether there are devices to look after, and Volt counts on this node."""
        return self.phase in (Phase.FED, Phase.LOCAL, Phase.LEAVING)

    @property
    def is_here(self) -> bool:
        """Tell the same, and that the devices have not begun to go."""
        return self.is_attached and bool(self.devices)

    # What may happen to it, one after another.

    def open(self) -> None:
        """Bring the image up: first what children log in to, then a place, then parents.

        One that is here already, as when leaving it failed, stays attached meanwhile.
        """
        begin = time.monotonic()
        self._give_up_earlier()
        found = self.health.export().is_up() or bool(self.health.running())
        earlier = self.phase, self.wanted, self.steps
        self._done = frozenset()
        if not found:
            self._warmth.begin()
        if not self.is_here:
            self.phase = Phase.OPENING
            copy, local = self.copies.of(self.info)
            self.wanted = replace(self.wanted, placement=None, copy=copy, local=local)
        try:
            self._reconcile(replace(self.wanted, parents=Parents.NONE))
            hashes.fetch(self.wanted, self.coordinator)
            placement = self.coordinator.join(self.info.name, self.wanted.portal)
            self._reconcile(self._as_found(replace(self.wanted, placement=placement)))
            self.phase = Phase.LOCAL if self.wanted.local else Phase.FED
            # A stack that was there before keeps its standbys: no table is swapped under its VMs.
            parents = Parents.ALL if found else Parents.FIRST
            self._follow(placement, begin + self.times.attach, parents)
            if not found:  # standbys need not answer for that either
                self._borrow_more(parents)
            self._count_reads(found)
        except BaseException:
            # A stack that was there before may carry running VMs: it is left as it is.
            if not found:
                self._undo()
            elif self.phase is Phase.OPENING:
                self.phase, self.wanted, self.steps = earlier
            raise
        LOG.info("image %s is up after %.2f s", self.info.name, time.monotonic() - begin)

    def use(self, placement: Placement) -> None:
        """Move to a placement."""
        if self.is_here and placement.generation != self.generation:
            LOG.info("image %s: placement %s", placement.image, placement.generation)
            self._follow(placement, time.monotonic() + self.times.attach)
            self.connect()

    def rejoin(self) -> None:
        """Take a place again: Volt has lost this host's."""
        if self.is_here:
            placement = self.coordinator.join(self.info.name, self.wanted.portal)
            self._follow(placement, time.monotonic() + self.times.attach)
            self.connect()

    def connect(self) -> None:
        """Have all parents connected, those too who only take over.

        :raises ParentUnreachable: of who does not answer, or is cut off, once all the others are
            connected
        """
        if self.is_here:
            built = self._reconcile(replace(self.wanted, parents=Parents.ALL))
            if built.silent:
                raise built.failure()

    def let_go(self, copy: str) -> None:
        """Read from a copy of all of it, and from no parent any more; it is on record as whole.

        Whatever fails is tried again with the next heartbeat.

        :param copy: path of its file
        """
        if self.phase is Phase.FED and self.is_here:
            begin = time.monotonic()
            local = replace(self.wanted, warm=False, copy=copy, local=True, lenders=())
            try:
                self._reconcile(replace(local, parents=Parents.ALL))
            finally:  # not before: who hears that it is local looks for no session any more
                self.phase = Phase.LOCAL
            took = time.monotonic() - begin
            LOG.info("image %s needs no parents any more, after %.2f s", self.info.name, took)

    def lend(self) -> bool:
        """Have images that are based on this one read from it; tell whether they can."""
        if self.phase not in (Phase.FED, Phase.LOCAL) or not self.is_here or self._waits():
            return False
        if not self.wanted.lends:
            LOG.info("image %s: others read from it what they have too", self.info.name)
            self._reconcile(replace(self.wanted, parents=Parents.ALL, lends=True))
        return True

    def give_back(self, lender: str) -> None:
        """Read nothing from another image any more, which is about to leave.

        :raises DeviceBusy: while reads may hang, for which a swap of tables would wait
        """
        if lender not in self.wanted.lenders:
            return
        if self._waits():
            raise DeviceBusy(
                f"image {lender} lends blocks to image {self.info.name}, whose parents do not "
                "answer now; try again once they do"
            )
        self._borrow(tuple(name for name in self.wanted.lenders if name != lender))

    def lie_on(self, parent: ImageInfo, said: Description | None) -> None:
        """Have what VMs of a layer start from, over the parent's base, which is there.

        It waits for parents while the kernel reads where the layer has what.

        :param said: what the layer says of itself, if anything
        :raises ImageMismatch: if the layer is of another image than has the parent's name now
        """
        if said is None or (said.parent, said.origin) != (parent.name, parent.origin):
            was = f"{said.parent} with the origin {said.origin}" if said else "none"
            raise ImageMismatch(
                f"layer {self.info.name} is of image {was}, not of image {parent.name} as it is "
                "now: commit the VM again, or give the earlier image its name back in Volt"
            )
        step = planner.base(self.wanted)
        self.stack.up((step,), {one: one.node for one in step.below})

    def take_back(self) -> None:
        """Have parents feed it again instead of its copy.

        :raises ParentUnreachable: if they do not, and Volt has no others; then it stays on its copy
        """
        if self.phase is not Phase.LOCAL or not self.is_here:
            return
        local = replace(self.wanted, parents=Parents.ALL)
        fed = replace(local, local=False)
        while (built := self._fed_again(fed)).unfed:
            self.phase, self._done = Phase.LOCAL, frozenset()
            self._reconcile(local)
            fed = replace(fed, placement=self._newer(fed.placement, built.failure()))
        LOG.warning("image %s: parents feed it again", self.info.name)

    def mend(self, seen: Mapping[str, Table], cut_off: Set[str]) -> None:
        """Use paths again that failed and are back, and a cache that is; finish what was begun.

        :param seen: status of the devices of ``health.names``
        :param cut_off: names of parents who have lost the connection
        """
        if not self.is_here:
            return
        if self.phase is Phase.LOCAL and self.health.has_failed(self.steps, seen):
            try:
                self.take_back()
            except ParentUnreachable as err:
                LOG.error("image %s: its copy is wrong or cannot be read; %s", self.info.name, err)
        waits = self.health.waits(self.steps, seen, cut_off)
        if not waits and self.phase is Phase.FED:
            self._mix(seen)
        if not self.health.is_whole(self.steps, seen):
            self._done = frozenset()
        if waits or not self._done:
            self.connect()
        # else reads may hang that a swap of tables has to wait for
        if not waits and self.phase is not Phase.LOCAL:
            self._keep(seen)
            self._weigh(seen)

    def count_anew(self) -> Reads:
        """Count what VMs read from now on."""
        counter = Reads(self.info.name, self.info.size)
        counter.begin()
        self.reads = counter
        return counter

    def restore(self) -> None:
        """Bring back what is missing, try again what failed, take away what is too much."""
        if self.is_here:
            self._done = frozenset()
            hashes.fetch(self.wanted, self.coordinator)
            self.connect()

    def leave(self) -> None:
        """Have the children moved, wait until they have, then take all down.

        Children that are leaving too stay logged in until they go themselves, and may be
        waiting for this host in turn. So it is Volt who knows when nobody needs it.

        :raises DeviceBusy: while VMs run on it
        """
        name, export = self.info.name, self.health.export()
        running = self.health.running()
        if running:
            raise in_use(name, running)
        if self.is_attached:
            self.phase = Phase.LEAVING
        self.coordinator.leave(name)
        wait_until(
            lambda: not export.children() or not self.coordinator.needed(name),
            self.times.leave,
            f"image {name}: children moving on",
            every=_ASK,
        )
        self._take_down()
        self.coordinator.remove(name)
        self._forget()

    def is_remade(self) -> bool:
        """Tell whether Volt has another image of this name by now."""
        return self.coordinator.image(self.info.name).identity != self.info.identity

    # How that is done.

    def _reconcile(
        self, wanted: Wanted, silent: Mapping[str, ParentUnreachable] | None = None
    ) -> Built:
        """Have the devices as wanted, as far as parents answer: the one way in which they change.

        What is done already is left alone; but not what depends on parents.

        :param silent: those who did not answer just now
        """
        self.wanted = wanted
        self.steps = planner.image(replace(wanted, parents=Parents.ALL))
        steps = planner.image(wanted)
        done, self._done = self._done, frozenset()
        missing = tuple(step for step in steps if step not in done or feeding.is_fed(step))
        lent = {one: one.node for one in map(lending.device_of, wanted.lenders)}
        built = self.stack.up(missing, {**self.devices, **lent}, silent)
        self.devices = built.paths
        # Not before all are there: it takes a while to leave a parent that died. Nor while what is
        # wanted gives no answer, for then reads go on as they did.
        if wanted.parents is Parents.ALL and not built.unfed:
            self.stack.prune(wanted.image, self.steps, planner.spent(wanted))
        self._done = frozenset(step for step in steps if step.device not in built.lost)
        return built

    def _fed_again(self, fed: Wanted) -> Built:
        """Turn to parents if they answer; these may leave even while we do."""
        assert fed.placement is not None
        built = self.stack.up(feeding.steps(fed, fed.placement), self.devices)
        if built.unfed:  # no read shall wait for them
            return built
        self.phase = Phase.FED
        return self._reconcile(fed)

    def _newer(self, placement: Placement | None, failure: ParentUnreachable) -> Placement:
        """Return what Volt has in place of a placement; raise the failure if it has nothing."""
        try:
            newer = self.coordinator.placement(self.info.name)
        except VirtmanError as err:
            raise failure from err
        if placement is not None and newer.generation == placement.generation:
            raise failure
        return newer

    def _follow(
        self, placement: Placement, deadline: float, parents: Parents = Parents.FIRST
    ) -> None:
        """Use a placement, or the newer one that Volt has by the time this one is in use.

        :param parents: whom to connect for that; standbys need not answer
        """
        name = self.info.name
        failure: VirtmanError | None = None
        patience = time.monotonic() + _ORDER
        while True:
            early = self._early(placement, patience)
            try:
                now = placement.but(early)
                wanted = replace(self.wanted, placement=now, parents=parents)
                built = self._reconcile(wanted)
                if built.unfed or now.parents() & built.missing:
                    built = self._make_do(built)
                if not built.unfed:
                    # else Volt goes on sending it, until they are back or we are placed anew
                    if now.parents().isdisjoint(built.missing):
                        self._tell_ready(placement, early)
                    if not early:
                        return
                    placement = self._once_it_is_time(placement, early, patience)
                    continue
                failure = built.failure()
            except PlacementStale:
                LOG.debug("image %s: placed anew meanwhile", name)
            except KernelFailure as err:
                failure = err
            if failure is not None:
                if time.monotonic() > deadline:
                    raise failure
                LOG.warning("image %s: %s; trying again", name, failure)
                time.sleep(RETRY)
            placement, failure = self.coordinator.placement(name), None

    def _early(self, placement: Placement, patience: float) -> Mapping[int, Feed]:
        """Return in which stripes it is too early to follow a placement, and what to keep there.

        :param patience: until when somebody is waited for
        """
        early = placement.early(
            self.wanted.placement, lambda parent: transport.is_connected(parent.portal)
        )
        if early and time.monotonic() > patience:
            LOG.warning(
                "image %s: reading from %s, though they turned to no new parents within %.0f s",
                self.info.name, _parents(placement, early), _ORDER,
            )  # fmt: skip
            return {}
        return early

    def _once_it_is_time(
        self, placement: Placement, early: Mapping[int, Feed], patience: float
    ) -> Placement:
        """Return the placement once it can be followed in more stripes, or is another one."""
        LOG.info(
            "image %s: stripes %s follow once their parents have turned to new ones: %s",
            self.info.name, ", ".join(map(str, sorted(early))), _parents(placement, early),
        )  # fmt: skip
        while True:
            time.sleep(_ASK)
            newer = self.coordinator.placement(self.info.name)
            if newer.generation != placement.generation or self._early(newer, patience) != early:
                return newer

    def _make_do(self, built: Built) -> Built:
        """Read through standbys where a parent does not answer, or is cut off."""
        for host in built.missing:
            self.witness.accuse(host)
        everybody = replace(self.wanted, parents=Parents.ALL)
        made = self._reconcile(everybody, built.silent)
        if not made.unfed:
            LOG.warning("image %s: %s; using standbys", self.info.name, built.failure())
        return made

    def _tell_ready(self, placement: Placement, early: Collection[int]) -> None:
        """Say that a placement is in use, but for the stripes in which it is too early."""
        stripes = set(range(self.info.stripes)).difference(early) if early else None
        try:
            self.coordinator.ready(placement.image, placement.generation, stripes)
        except CoordinatorUnreachable as err:
            # it sends the placement again with the first heartbeat that reaches it
            LOG.warning("image %s is in use without Volt's knowing: %s", placement.image, err)
            self.generation = 0
        else:
            if stripes is None:
                self.generation = placement.generation

    def _mix(self, seen: Mapping[str, Table]) -> None:
        """Read from others what they have too, or from none if that went wrong."""
        lenders = self.wanted.lenders
        if lenders and self.health.is_mixture_wrong(seen):
            self._distrusts = bool(corrupt([lending.mixed(self.wanted)[-1]]))
            fault = "has wrong bytes" if self._distrusts else "cannot be read"
            LOG.log(
                logging.ERROR if self._distrusts else logging.WARNING,
                "image %s is read from its parents: what it has in common with %s %s there",
                self.info.name, ", ".join(lenders), fault,
            )  # fmt: skip
            self._borrow(())
        else:
            self._borrow_more(Parents.ALL)

    def _borrow_more(self, parents: Parents) -> None:
        """Read from others what they have too, as far as they are here; without them it goes on.

        One that is warm has what it needs; and what is mixed comes in whole blocks, which is not
        what VMs read from a cache.
        """
        before = self.wanted
        if before.local or before.warm or not before.is_verified or self._distrusts:
            return
        more = self.lenders.willing(but=before.lenders)
        if more:
            try:
                self._borrow((*before.lenders, *more), parents)
            except VirtmanError as err:
                LOG.warning("image %s: reading from others: %s", self.info.name, err)
                self._borrow(before.lenders, parents)

    def _borrow(self, lenders: tuple[str, ...], parents: Parents = Parents.ALL) -> None:
        LOG.info("image %s: it reads from images: %s", self.info.name, ", ".join(lenders) or "none")
        self._reconcile(replace(self.wanted, parents=parents, lenders=lenders))

    def _waits(self) -> bool:
        seen = statuses(self.health.names(self.steps))
        return self.health.waits(self.steps, seen, transport.cut_off())

    def _weigh(self, seen: Mapping[str, Table]) -> None:
        """Have VMs read from the cache once hardly anything is missed, or no longer."""
        if self.wanted.lenders or self.wanted.kept is not None:
            return
        cache = self.devices[Device(self.info.name, "cache")]
        # a device's block size must not change under VMs
        fits = sysfs.block_size(cache) == sizes.SECTOR
        warm = self._warmth.look(self.health.figures(seen), self.wanted.warm) and fits
        if warm != self.wanted.warm:
            way = "from the cache" if warm else "through the page cache"
            LOG.info("image %s: VMs read it %s", self.info.name, way)
            self._reconcile(replace(self.wanted, parents=Parents.ALL, warm=warm))

    def _keep(self, seen: Mapping[str, Table]) -> None:
        """Have the cache keep what the node owns in a ring, and more as far as there is room."""
        placement, before = self.wanted.placement, self.wanted.kept
        if placement is None or placement.owns is None or not self.health.is_caching(seen):
            return
        kept = keeping.kept(placement.owns, self.info.stripes, self.health.room())
        if kept != before:
            which = "all" if kept is None else ", ".join(map(str, sorted(kept)))
            LOG.info("image %s: its cache keeps these stripes: %s", self.info.name, which)
            warm = self.wanted.warm and kept is None
            self._reconcile(replace(self.wanted, parents=Parents.ALL, kept=kept, warm=warm))

    def _count_reads(self, found: bool) -> None:
        """Count what VMs read from the first one on; after that, nobody knows what they read.

        Without a hash tree nothing would bind a boot profile to the image's data.
        """
        self.reads = None
        try:
            if found:  # an agent that died may have left a count
                Reads(self.info.name, self.info.size).end()
            elif self.info.tree is not None and self.phase is not Phase.LOCAL:
                self.count_anew()
        except VirtmanError as err:
            LOG.warning("image %s: %s", self.info.name, err)

    def _as_found(self, wanted: Wanted) -> Wanted:
        """Have all read as they do now, if they do: an agent that starts changes nothing."""
        wanted = replace(wanted, lends=self.health.lends())
        if wanted.local:
            return wanted
        # without the file there are none, whatever there was before it was left, or half left
        is_told = Path(wanted.basis).is_file()
        lenders = self.health.lenders(self.lenders.names) if is_told else ()
        wanted = replace(wanted, lenders=lenders, kept=self.health.kept(wanted.stripes))
        return replace(wanted, warm=self.health.is_read_from_cache(planner.image(wanted)))

    def _give_up_earlier(self) -> None:
        """Take away what the kernel has of an earlier image of the same name."""
        if self.health.is_of_another():
            running = self.health.running()
            if running:
                raise remade(self.info.name, running)
            LOG.info("image %s was made anew: giving the earlier one up", self.info.name)
            self.wanted = replace(self.wanted, copy=self.copies.path(self.info.name))
            self._take_down()

    def _take_down(self) -> None:
        """Take away all devices that the kernel may have of the image."""
        self._done, self.devices, self.reads = frozenset(), {}, None
        voids = self.stack.voids(self.info.name)
        self.stack.down(planner.remains(self.wanted, voids, *self.stack.paths(self.info.name)))

    def _undo(self) -> None:
        with contextlib.suppress(ExceptionGroup, VirtmanError):
            self._take_down()
        self._forget()
        with contextlib.suppress(VirtmanError):
            self.coordinator.remove(self.info.name)

    def _forget(self) -> None:
        self.phase, self._distrusts, self.generation = Phase.ABSENT, False, 0
        away = replace(self.wanted, placement=None, parents=Parents.NONE, warm=False, local=False)
        self.wanted = replace(away, lenders=(), lends=False, kept=None)


def _parents(placement: Placement, stripes: Iterable[int]) -> str:
    return ", ".join(sorted({placement.feeds[one].parent.host for one in stripes}))


def remade(image: str, vms: Iterable[str]) -> ImageMismatch:
    """Return the error of one that is another in Volt by now."""
    names = ", ".join(sorted(vms)) or "none"
    return ImageMismatch(
        f"image {image} was deleted and made anew in Volt; VMs on the earlier one: {names}; "
        "destroy them first"
    )


def in_use(image: str, users: Iterable[str]) -> DeviceBusy:
    """Return the error of one that somebody wants; who is no VM has a name in parentheses."""
    wanted = sorted(users)
    vms = [one for one in wanted if not one.startswith("(")]
    if vms:
        return DeviceBusy(f"image {image} is in use by {', '.join(vms)}; destroy them first")
    lies = "image {} lies on it: drop that first"
    what = "; ".join(_USES.get(one, lies.format(one[1:-1])) for one in wanted)
    return DeviceBusy(f"image {image} is in use: {what}")
