"""How a node follows the placements of an image: no parent is left before another one feeds it.

A placement may be one that cannot be followed yet, as the new parents turn to new ones themselves;
of which a parent does not answer, so that standbys do; or one that is stale by the time it is in
use. Volt is told of what is in use, and asked for what is newer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from virtman.coordinator.interface import Coordinator
from virtman.errors import (
    CoordinatorUnreachable,
    KernelFailure,
    ParentUnreachable,
    PlacementStale,
    VirtmanError,
)
from virtman.image.assembly import Assembly
from virtman.image.parents import Witness
from virtman.model.placement import Feed, Placement
from virtman.model.wanted import Parents
from virtman.stack.builder import Built
from virtman.stack.transport import transport

LOG = logging.getLogger(__name__)

RETRY = 1.0
"""Seconds between two tries of what failed."""

_ASK = 0.25
_ORDER = 10.0
"""Seconds for which a new parent may read from others than it shall, if who fed us still does."""


class Following:
    """One image's.

    :ivar generation: of the placement in use; 0 if there is none, or Volt does not know
    """

    def __init__(self, assembly: Assembly, coordinator: Coordinator, witness: Witness) -> None:
        self._assembly = assembly
        self._coordinator = coordinator
        self._witness = witness
        self._image = assembly.wanted.image
        # Of the placement that is in use, not of one that could not be reached yet: Volt
        # sends that one again with every heartbeat.
        self.generation = 0

    def follow(
        self, placement: Placement, deadline: float, parents: Parents = Parents.FIRST
    ) -> None:
        """Use a placement, or the newer one that Volt has by the time this one is in use.

        :param deadline: time until which what fails is tried again
        :param parents: whom to connect for that; standbys need not answer
        """
        failure: VirtmanError | None = None
        patience = time.monotonic() + _ORDER
        while True:
            early = self._early(placement, patience)
            try:
                now = placement.but(early)
                wanted = replace(self._assembly.wanted, placement=now, parents=parents)
                built = self._assembly.have(wanted)
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
                LOG.debug("image %s: placed anew meanwhile", self._image)
            except KernelFailure as err:
                failure = err
            if failure is not None:
                if time.monotonic() > deadline:
                    raise failure
                LOG.warning("image %s: %s; trying again", self._image, failure)
                time.sleep(RETRY)
            placement, failure = self._coordinator.placement(self._image), None

    def newer(self, placement: Placement | None, failure: ParentUnreachable) -> Placement:
        """Return what Volt has in place of a placement; raise the failure if it has nothing."""
        try:
            newer = self._coordinator.placement(self._image)
        except VirtmanError as err:
            raise failure from err
        if placement is not None and newer.generation == placement.generation:
            raise failure
        return newer

    def _early(self, placement: Placement, patience: float) -> Mapping[int, Feed]:
        """Return in which stripes it is too early to follow a placement, and what to keep there.

        :param patience: until when somebody is waited for
        """
        early = placement.early(
            self._assembly.wanted.placement, lambda parent: transport.is_connected(parent.portal)
        )
        if early and time.monotonic() > patience:
            LOG.warning(
                "image %s: reading from %s, though they turned to no new parents within %.0f s",
                self._image, _parents(placement, early), _ORDER,
            )  # fmt: skip
            return {}
        return early

    def _once_it_is_time(
        self, placement: Placement, early: Mapping[int, Feed], patience: float
    ) -> Placement:
        """Return the placement once it can be followed in more stripes, or is another one."""
        LOG.info(
            "image %s: stripes %s follow once their parents have turned to new ones: %s",
            self._image, ", ".join(map(str, sorted(early))), _parents(placement, early),
        )  # fmt: skip
        while True:
            time.sleep(_ASK)
            newer = self._coordinator.placement(self._image)
            if newer.generation != placement.generation or self._early(newer, patience) != early:
                return newer

    def _make_do(self, built: Built) -> Built:
        """Read through standbys where a parent does not answer, or is cut off."""
        for host in built.missing:
            self._witness.accuse(host)
        everybody = replace(self._assembly.wanted, parents=Parents.ALL)
        made = self._assembly.have(everybody, built.silent)
        if not made.unfed:
            LOG.warning("image %s: %s; using standbys", self._image, built.failure())
        return made

    def _tell_ready(self, placement: Placement, early: Collection[int]) -> None:
        """Say that a placement is in use, but for the stripes in which it is too early."""
        stripes = set(range(self._assembly.wanted.stripes)).difference(early) if early else None
        try:
            self._coordinator.ready(placement.image, placement.generation, stripes)
        except CoordinatorUnreachable as err:
            # it sends the placement again with the first heartbeat that reaches it
            LOG.warning("image %s is in use without Volt's knowing: %s", placement.image, err)
            self.generation = 0
        else:
            if stripes is None:
                self.generation = placement.generation


def _parents(placement: Placement, stripes: Iterable[int]) -> str:
    return ", ".join(sorted({placement.feeds[one].parent.host for one in stripes}))
