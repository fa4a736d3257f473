"""How an image comes to this node, is fed, and leaves it.

An image is in one of these phases::

    absent ──> opening ──> fed ──> leaving ──> absent
       ^          │  ^    │   ^       │
       └─ undone ─┘  │  local ┘       │
                     └─ wanted again ─┘

An image is local once a copy of all of it is on record here: then it is read from that, and needs
no parents. Should the copy turn out wrong, or be given back, parents feed it again.

Nothing here is safe for threads: the image's own runs it all, while others read what is public.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import time
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path

from virtman.coordinator.interface import Coordinator, ImageInfo
from virtman.errors import (
    DeviceBusy,
    ImageMismatch,
    ParentUnreachable,
    VirtmanError,
)
from virtman.image import hashes
from virtman.image.assembly import Assembly
from virtman.image.copies import Copies
from virtman.image.following import Following
from virtman.image.health import Health
from virtman.image.lenders import Lenders
from virtman.image.parents import Witness
from virtman.image.routing import Routing
from virtman.model import feeding, planner
from virtman.model.address import Portal
from virtman.model.layer_format import Description
from virtman.model.placement import Placement
from virtman.model.wanted import Parents, Wanted
from virtman.stack.builder import Built, Stack
from virtman.stack.layer import wait_until
from virtman.stack.mapped import Table, statuses
from virtman.stack.reads import Reads
from virtman.stack.transport import transport

LOG = logging.getLogger(__name__)

_ASK = 0.25
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

    :ivar assembly: its devices
    :ivar following: the placement in use
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
        self._stack = stack
        self.phase = Phase.ABSENT
        self.reads: Reads | None = None
        self._coordinator = coordinator
        self._times = times
        self._copies = copies
        self._lenders = lenders
        upper = str(hashes.file(stack.folder, info.name))
        wanted = Wanted(
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
        self.assembly = Assembly(stack, wanted)
        self.health = Health(stack, wanted)
        self.following = Following(self.assembly, coordinator, witness)
        self._routing = Routing(self.assembly, self.health, lenders, times.warm)

    @property
    def is_attached(self) -> bool:
        """Tell whether there are devices to look after, and Volt counts on this node."""
        return self.phase in (Phase.FED, Phase.LOCAL, Phase.LEAVING)

    @property
    def is_here(self) -> bool:
        """Tell the same, and that the devices have not begun to go."""
        return self.is_attached and bool(self.assembly.devices)

    # What may happen to it, one after another.

    def open(self) -> None:
        """Bring the image up: first what children log in to, then a place, then parents.

        One that is here already, as when leaving it failed, stays attached meanwhile.
        """
        begin = time.monotonic()
        self._give_up_earlier()
        found = self.health.export().is_up() or bool(self.health.running())
        earlier = self.phase, self.assembly.wanted, self.assembly.steps
        self.assembly.doubt()
        if not found:
            self._routing.begin()
        if not self.is_here:
            self.phase = Phase.OPENING
            copy, local = self._copies.of(self.info)
            fresh = replace(self.assembly.wanted, placement=None, copy=copy, local=local)
            self.assembly.wanted = fresh
        try:
            self.assembly.have(replace(self.assembly.wanted, parents=Parents.NONE))
            hashes.fetch(self.assembly.wanted, self._coordinator)
            placement = self._coordinator.join(self.info.name, self.assembly.wanted.portal)
            self.assembly.have(self._as_found(replace(self.assembly.wanted, placement=placement)))
            self.phase = Phase.LOCAL if self.assembly.wanted.local else Phase.FED
            # A stack that was there before keeps its standbys: no table is swapped under its VMs.
            parents = Parents.ALL if found else Parents.FIRST
            self.following.follow(placement, begin + self._times.attach, parents)
            if not found:  # standbys need not answer for that either
                self._routing.borrow_more(parents)
            self._count_reads(found)
        except BaseException:
            # A stack that was there before may carry running VMs: it is left as it is.
            if not found:
                self._undo()
            elif self.phase is Phase.OPENING:
                self.phase, self.assembly.wanted, self.assembly.steps = earlier
            raise
        LOG.info("image %s is up after %.2f s", self.info.name, time.monotonic() - begin)

    def use(self, placement: Placement) -> None:
        """Move to a placement."""
        if self.is_here and placement.generation != self.following.generation:
            LOG.info("image %s: placement %s", placement.image, placement.generation)
            self.following.follow(placement, time.monotonic() + self._times.attach)
            self.connect()

    def rejoin(self) -> None:
        """Take a place again: Volt has lost this host's."""
        if self.is_here:
            placement = self._coordinator.join(self.info.name, self.assembly.wanted.portal)
            self.following.follow(placement, time.monotonic() + self._times.attach)
            self.connect()

    def connect(self) -> None:
        """Have all parents connected, those too who only take over.

        :raises ParentUnreachable: of who does not answer, or is cut off, once all the others are
            connected
        """
        if self.is_here:
            built = self.assembly.have(replace(self.assembly.wanted, parents=Parents.ALL))
            if built.silent:
                raise built.failure()

    def let_go(self, copy: str) -> None:
        """Read from a copy of all of it, and from no parent any more; it is on record as whole.

        Whatever fails is tried again with the next heartbeat.

        :param copy: path of its file
        """
        if self.phase is Phase.FED and self.is_here:
            begin = time.monotonic()
            local = replace(self.assembly.wanted, warm=False, copy=copy, local=True, lenders=())
            try:
                self.assembly.have(replace(local, parents=Parents.ALL))
            finally:  # not before: who hears that it is local looks for no session any more
                self.phase = Phase.LOCAL
            took = time.monotonic() - begin
            LOG.info("image %s needs no parents any more, after %.2f s", self.info.name, took)

    def lend(self) -> bool:
        """Have images that are based on this one read from it; tell whether they can."""
        if self.phase not in (Phase.FED, Phase.LOCAL) or not self.is_here or self._waits():
            return False
        if not self.assembly.wanted.lends:
            LOG.info("image %s: others read from it what they have too", self.info.name)
            self.assembly.have(replace(self.assembly.wanted, parents=Parents.ALL, lends=True))
        return True

    def give_back(self, lender: str) -> None:
        """Read nothing from another image any more, which is about to leave.

        :raises DeviceBusy: while reads may hang, for which a swap of tables would wait
        """
        if lender not in self.assembly.wanted.lenders:
            return
        if self._waits():
            raise DeviceBusy(
                f"image {lender} lends blocks to image {self.info.name}, whose parents do not "
                "answer now; try again once they do"
            )
        others = tuple(name for name in self.assembly.wanted.lenders if name != lender)
        self._routing.borrow(others)

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
        step = planner.base(self.assembly.wanted)
        self._stack.up((step,), {one: one.node for one in step.below})

    def take_back(self) -> None:
        """Have parents feed it again instead of its copy.

        :raises ParentUnreachable: if they do not, and Volt has no others; then it stays on its copy
        """
        if self.phase is not Phase.LOCAL or not self.is_here:
            return
        local = replace(self.assembly.wanted, parents=Parents.ALL)
        fed = replace(local, local=False)
        while (built := self._fed_again(fed)).unfed:
            self.phase = Phase.LOCAL
            self.assembly.doubt()
            self.assembly.have(local)
            fed = replace(fed, placement=self.following.newer(fed.placement, built.failure()))
        LOG.warning("image %s: parents feed it again", self.info.name)

    def mend(self, seen: Mapping[str, Table], cut_off: Set[str]) -> None:
        """Use paths again that failed and are back, and a cache that is; finish what was begun.

        :param seen: status of the devices of ``health.names``
        :param cut_off: names of parents who have lost the connection
        """
        if not self.is_here:
            return
        if self.phase is Phase.LOCAL and self.health.has_failed(self.assembly.steps, seen):
            try:
                self.take_back()
            except ParentUnreachable as err:
                LOG.error("image %s: its copy is wrong or cannot be read; %s", self.info.name, err)
        waits = self.health.waits(self.assembly.steps, seen, cut_off)
        if not waits and self.phase is Phase.FED:
            self._routing.mix(seen)
        if not self.health.is_whole(self.assembly.steps, seen):
            self.assembly.doubt()
        if waits or not self.assembly.is_done:
            self.connect()
        # else reads may hang that a swap of tables has to wait for
        if not waits and self.phase is not Phase.LOCAL:
            self._routing.keep(seen)
            self._routing.weigh(seen)

    def count_anew(self) -> Reads:
        """Count what VMs read from now on."""
        counter = Reads(self.info.name, self.info.size)
        counter.begin()
        self.reads = counter
        return counter

    def restore(self) -> None:
        """Bring back what is missing, try again what failed, take away what is too much."""
        if self.is_here:
            self.assembly.doubt()
            hashes.fetch(self.assembly.wanted, self._coordinator)
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
        self._coordinator.leave(name)
        wait_until(
            lambda: not export.children() or not self._coordinator.needed(name),
            self._times.leave,
            f"image {name}: children moving on",
            every=_ASK,
        )
        self._take_down()
        self._coordinator.remove(name)
        self._forget()

    def is_remade(self) -> bool:
        """Tell whether Volt has another image of this name by now."""
        return self._coordinator.image(self.info.name).identity != self.info.identity

    # How that is done.

    def _fed_again(self, fed: Wanted) -> Built:
        """Turn to parents if they answer; these may leave even while we do."""
        assert fed.placement is not None
        built = self._stack.up(feeding.steps(fed, fed.placement), self.assembly.devices)
        if built.unfed:  # no read shall wait for them
            return built
        self.phase = Phase.FED
        return self.assembly.have(fed)

    def _waits(self) -> bool:
        seen = statuses(self.health.names(self.assembly.steps))
        return self.health.waits(self.assembly.steps, seen, transport.cut_off())

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
        lenders = self.health.lenders(self._lenders.names) if is_told else ()
        wanted = replace(wanted, lenders=lenders, kept=self.health.kept(wanted.stripes))
        return replace(wanted, warm=self.health.is_read_from_cache(planner.image(wanted)))

    def _give_up_earlier(self) -> None:
        """Take away what the kernel has of an earlier image of the same name."""
        if self.health.is_of_another():
            running = self.health.running()
            if running:
                raise remade(self.info.name, running)
            LOG.info("image %s was made anew: giving the earlier one up", self.info.name)
            self.assembly.wanted = replace(
                self.assembly.wanted, copy=self._copies.path(self.info.name)
            )
            self._take_down()

    def _take_down(self) -> None:
        self.reads = None
        self.assembly.take_down()

    def _undo(self) -> None:
        with contextlib.suppress(ExceptionGroup, VirtmanError):
            self._take_down()
        self._forget()
        with contextlib.suppress(VirtmanError):
            self._coordinator.remove(self.info.name)

    def _forget(self) -> None:
        self.phase, self.following.generation = Phase.ABSENT, 0
        self._routing.forget()
        self.assembly.wanted = replace(
            self.assembly.wanted,
            placement=None,
            parents=Parents.NONE,
            warm=False,
            local=False,
            lenders=(),
            lends=False,
            kept=None,
        )


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
