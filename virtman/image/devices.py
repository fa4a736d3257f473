"""All devices of one image on this node: its plans, with what they need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from virtman import atomic_file
from virtman.coordinator.interface import Coordinator, ImageInfo
from virtman.errors import ImageMismatch
from virtman.model import plan
from virtman.model.address import Portal
from virtman.model.hashtree import fits
from virtman.model.plan import Placement
from virtman.stack.builder import Stack
from virtman.stack.cache import Figures, Member
from virtman.stack.layers.image import Image
from virtman.stack.layers.multipath import Multipath
from virtman.stack.mapped import Mapped, Table, failed
from virtman.stack.transport import Export, transport


class Layout:
    """What of an image has to be there, at each step of its life.

    :param portal: where this node serves the image
    :ivar warm: whether VMs read from the cache itself; see ``virtman.model.plan``
    """

    def __init__(self, info: ImageInfo, portal: Portal, stack: Stack) -> None:
        self.info = info
        self.portal = portal
        self.stack = stack
        self.warm = False

    def serve(self) -> plan.Plan:
        """Return what is up before there is anything to read."""
        info, hashed = self.info, self.info.tree is not None
        return plan.serve(
            info.name, info.size, self.portal, info.stripes, info.identity, hashed=hashed
        )

    def assemble(self) -> plan.Plan:
        """Return what lies below the image, and the image."""
        return self._assemble(warm=self.warm)

    def _assemble(self, *, warm: bool) -> plan.Plan:
        info = self.info
        return plan.assemble(info.name, info.size, info.stripes, info.identity, warm=warm)

    def origin(self) -> plan.Plan:
        """Return what VMs start from."""
        return (plan.origin(self.info.name, self.info.size, warm=self.warm),)

    # How an image is can be told by one look at the status of a few devices: their statuses, by
    # name, without those that are not there, are ``seen`` below.

    def ways(self) -> list[Mapped]:
        """Return the devices through which VMs read, from where all parents come together."""
        leaves = (step for step in self.serve() if isinstance(step, plan.Multipath))
        layers = map(self.stack.layer, (*leaves, *self.assemble(), *self.origin()))
        return [layer for layer in layers if isinstance(layer, Mapped)]

    def member(self) -> Member:
        """Return the image's part of the cache group."""
        return self.stack.member(self.assemble())

    def names(self) -> set[str]:
        """Return what has to be looked at."""
        return {one.name for one in self.ways()} | {self.member().device} - {""}

    def waits(self, seen: Mapping[str, Table]) -> bool:
        """Tell whether a path to a parent has failed, so that reads may hang."""
        feeds = [one for one in self.ways() if isinstance(one, Multipath)]
        return any(failed(seen.get(one.name, [])) for one in feeds)

    def is_whole(self, seen: Mapping[str, Table]) -> bool:
        """Tell whether all ways work, that through the cache among them."""
        works = all(one.is_well(seen.get(one.name, [])) for one in self.ways())
        return works and self.is_caching(seen)

    def is_caching(self, seen: Mapping[str, Table]) -> bool:
        """Tell whether what is read is kept."""
        member = self.member()
        return member.is_caching(seen.get(member.device, []))

    def figures(self, seen: Mapping[str, Table]) -> Figures:
        """Return what the cache has done."""
        member = self.member()
        return member.figures(seen.get(member.device, []))

    def recall(self) -> None:
        """Have VMs read as they do now, if they do: an agent that starts changes nothing."""
        (step,) = self.origin()
        origin = self.stack.layer(step)
        assert isinstance(origin, Image)
        self.warm = len(origin.path_states()) > 1

    def connect(self, placement: Placement, *, standby: bool = True) -> plan.Plan:
        """Return the parents' disks, and the stripes over them."""
        return plan.connect(placement, self.info.tree, verify=self.stack.verify, standby=standby)

    def hashes(self) -> plan.Plan:
        """Return what the paths are verified by, if they are."""
        return self._hashes() if self.is_verified() else ()

    def is_verified(self) -> bool:
        """Tell whether what parents send is held against a hash tree."""
        return self.stack.verify and self.info.tree is not None

    def whole(self, placement: Placement) -> plan.Plan:
        """Return all that has to be there."""
        return (*self.own(), *self.connect(placement))

    def own(self) -> plan.Plan:
        """Return the same but for the parents' disks."""
        return (*self.serve(), *self.hashes(), *self.assemble(), *self.origin())

    def remains(self) -> plan.Plan:
        """Return everything of this image that the kernel may have, bottom to top.

        The voids go last: until then they tell which image all the others belong to.
        """
        name = self.info.name
        below, above = self.stack.paths(name)
        serve = self.serve()
        if self.info.tree is not None:
            upper, hashes = self._hashes()
            below = (upper, *below, *plan.leaves(name, self.info.size), hashes)
        # By a device's name a new agent finds what is left of an image, which a loop device
        # has not: so the voids are last in any case.
        last = (*self.stack.voids(name), *(one for one in serve if isinstance(one, plan.Void)))
        return (*last, *below, *above, *self._assemble(warm=True), *serve, *self.origin())

    def export(self) -> Export:
        """Return what children log in to."""
        step = next(step for step in self.serve() if isinstance(step, plan.Export))
        return transport.export(step)

    def fetch_hashes(self, coordinator: Coordinator) -> None:
        """Have the upper levels of the hash tree in their file; they come from Volt.

        :raises ImageMismatch: if these are not those of the image's root hash
        """
        name, size, tree = self.info.name, self.info.size, self.info.tree
        if tree is None or not self.stack.verify:
            return
        if self._upper.exists() and fits(self._upper.read_bytes(), size, tree):
            return
        upper = coordinator.upper_hashes(name)
        if not fits(upper, size, tree):
            raise ImageMismatch(
                f"Volt's upper hashes of image {name} do not belong to its root hash: "
                "remove the image from Volt and add it again"
            )
        atomic_file.write(self._upper, upper)

    def _hashes(self) -> plan.Plan:
        return plan.hashes(self.info.name, self.info.size, str(self._upper))

    @property
    def _upper(self) -> Path:
        return self.stack.folder / f"{self.info.name}.upper"
