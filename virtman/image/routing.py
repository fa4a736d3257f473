"""From where VMs read an image, beside its parents: its own cache, and images that have the same.

It reads from other images what these have too, through a mixture above its cache, for as long as
what comes is right. Once hardly anything misses the cache, VMs read that itself. And a node that
owns stripes of a ring keeps these.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from virtman import sysfs
from virtman.errors import VirtmanError
from virtman.image.assembly import Assembly
from virtman.image.health import Health
from virtman.image.hit_rate import Warmth
from virtman.image.lenders import Lenders
from virtman.model import keeping, lending, sizes
from virtman.model.naming import Device
from virtman.model.wanted import Parents
from virtman.stack.layers.verity import corrupt
from virtman.stack.mapped import Table

LOG = logging.getLogger(__name__)


class Routing:
    """One image's.

    :param warm: seconds for which hardly a read may miss the cache before VMs read from it; 0 for
        never
    """

    def __init__(self, assembly: Assembly, health: Health, lenders: Lenders, warm: float) -> None:
        self._assembly = assembly
        self._health = health
        self._lenders = lenders
        self._image = assembly.wanted.image
        self._warmth = Warmth(warm)
        # Whether lenders had wrong bytes; then it reads from none until it has left.
        self._distrusts = False

    def begin(self) -> None:
        """Know nothing of devices that are made anew."""
        self._warmth.begin()

    def forget(self) -> None:
        """Trust lenders again: the image has left."""
        self._distrusts = False

    def mix(self, seen: Mapping[str, Table]) -> None:
        """Read from others what they have too, or from none if that went wrong."""
        lenders = self._assembly.wanted.lenders
        if lenders and self._health.is_mixture_wrong(seen):
            self._distrusts = bool(corrupt([lending.mixed(self._assembly.wanted)[-1]]))
            fault = "has wrong bytes" if self._distrusts else "cannot be read"
            LOG.log(
                logging.ERROR if self._distrusts else logging.WARNING,
                "image %s is read from its parents: what it has in common with %s %s there",
                self._image, ", ".join(lenders), fault,
            )  # fmt: skip
            self.borrow(())
        else:
            self.borrow_more(Parents.ALL)

    def borrow_more(self, parents: Parents) -> None:
        """Read from others what they have too, as far as they are here; without them it goes on.

        One that is warm has what it needs; and what is mixed comes in whole blocks, which is not
        what VMs read from a cache.
        """
        before = self._assembly.wanted
        if before.local or before.warm or not before.is_verified or self._distrusts:
            return
        more = self._lenders.willing(but=before.lenders)
        if more:
            try:
                self.borrow((*before.lenders, *more), parents)
            except VirtmanError as err:
                LOG.warning("image %s: reading from others: %s", self._image, err)
                self.borrow(before.lenders, parents)

    def borrow(self, lenders: tuple[str, ...], parents: Parents = Parents.ALL) -> None:
        """Read from these images what they have too, and from no others."""
        LOG.info("image %s: it reads from images: %s", self._image, ", ".join(lenders) or "none")
        self._assembly.have(replace(self._assembly.wanted, parents=parents, lenders=lenders))

    def weigh(self, seen: Mapping[str, Table]) -> None:
        """Have VMs read from the cache once hardly anything is missed, or no longer."""
        wanted = self._assembly.wanted
        if wanted.lenders or wanted.kept is not None:
            return
        cache = self._assembly.devices[Device(self._image, "cache")]
        # a device's block size must not change under VMs
        fits = sysfs.block_size(cache) == sizes.SECTOR
        warm = self._warmth.look(self._health.figures(seen), wanted.warm) and fits
        if warm != wanted.warm:
            way = "from the cache" if warm else "through the page cache"
            LOG.info("image %s: VMs read it %s", self._image, way)
            self._assembly.have(replace(wanted, parents=Parents.ALL, warm=warm))

    def keep(self, seen: Mapping[str, Table]) -> None:
        """Have the cache keep what the node owns in a ring, and more as far as there is room."""
        wanted = self._assembly.wanted
        placement = wanted.placement
        if placement is None or placement.owns is None or not self._health.is_caching(seen):
            return
        kept = keeping.kept(placement.owns, wanted.stripes, self._health.room())
        if kept != wanted.kept:
            which = "all" if kept is None else ", ".join(map(str, sorted(kept)))
            LOG.info("image %s: its cache keeps these stripes: %s", self._image, which)
            warm = wanted.warm and kept is None
            self._assembly.have(replace(wanted, parents=Parents.ALL, kept=kept, warm=warm))
