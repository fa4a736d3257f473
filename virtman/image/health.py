"""How an image's devices are, mostly told by one look at the status of all of them.

What was seen, ``seen`` below, has statuses by name, without those of devices that are not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from virtman import sysfs
from virtman.model import lending, plan, planner
from virtman.model.naming import MAPPER, Device
from virtman.model.wanted import Wanted
from virtman.stack.builder import Stack
from virtman.stack.cache import Figures
from virtman.stack.layers.image import ImageLayer
from virtman.stack.layers.multipath import MultipathLayer
from virtman.stack.mapped import Mapped, Seen, Table, failed, failed_paths, path_failures
from virtman.stack.transport import ExportLayer, transport


class Health:
    """One image's.

    :ivar member: its part of the cache group
    """

    def __init__(self, stack: Stack, image: Wanted) -> None:
        self.stack = stack
        self.image = image.image
        self.member = stack.group.member(planner.cache(image))
        self._served = planner.image(replace(image, placement=None))

    def running(self) -> set[str]:
        """Return the VMs that the kernel has: after a restart there may be more than users."""
        devices = self.stack.present().get(self.image, [])
        return {one.argument for one in devices if one.role == "vm"}

    def is_of_another(self) -> bool:
        """Tell whether the kernel has devices of an earlier image of the same name."""
        mine = {step.device for step in self._served}
        return any(void.device not in mine for void in self.stack.voids(self.image))

    def export(self) -> ExportLayer:
        """Return what children log in to."""
        return transport.export(next(one for one in self._served if isinstance(one, plan.Export)))

    def names(self, steps: plan.Plan) -> set[str]:
        """Return whose status tells whether VMs and children can read, and what is kept."""
        return {one.name for one in self._ways(steps)} | {self.member.device} - {""}

    def all_names(self, steps: plan.Plan) -> set[str]:
        """Return whose status tells what is wrong with any device."""
        seen = (step for step in steps if isinstance(self.stack.layer(step), Seen))
        return {str(step.device) for step in seen} | {self.member.device} - {""}

    def waits(self, steps: plan.Plan, seen: Mapping[str, Table], cut_off: Set[str]) -> bool:
        """Tell whether a path to a parent has failed or would, so that reads may hang.

        The kernel calls a path failed once a read went there. Until then its session tells.

        :param cut_off: names of parents who have lost the connection
        """
        portals = (step.portal for step in steps if isinstance(step, plan.Path))
        names = {portal.name for portal in portals if portal}
        return self.failed_paths(steps, seen) > 0 or not names.isdisjoint(cut_off)

    def failed_paths(self, steps: plan.Plan, seen: Mapping[str, Table]) -> int:
        """Return how many paths to parents and standbys do not work."""
        return sum(len(failed_paths(status)) for status in _multipaths(steps, seen))

    def path_failures(self, steps: plan.Plan, seen: Mapping[str, Table]) -> int:
        """Return how often they have failed, as far as the kernel remembers."""
        return sum(path_failures(status) for status in _multipaths(steps, seen))

    def is_whole(self, steps: plan.Plan, seen: Mapping[str, Table]) -> bool:
        """Tell whether all is there and works but, perhaps, paths to parents."""
        for way in self._ways(steps):
            status = seen.get(way.name, [])
            feeds = isinstance(way, MultipathLayer) and bool(status) and status[0][2] == "multipath"
            if not feeds and not way.is_well(status):
                return False
        return not any(isinstance(step, plan.Cache) for step in steps) or self.is_caching(seen)

    def has_failed(self, steps: plan.Plan, seen: Mapping[str, Table]) -> bool:
        """Tell whether reads of the image, or of its leaves, have met an error."""
        kinds = (plan.Multipath, plan.Image, plan.Lent)
        tops = {str(step.device) for step in steps if isinstance(step, kinds)}
        return any(failed(seen.get(name, [])) for name in tops)

    def is_mixture_wrong(self, seen: Mapping[str, Table]) -> bool:
        """Tell whether reads of what others lend have met an error, or wrong bytes."""
        image, mixed = (str(Device(self.image, role)) for role in ("image", "mixed"))
        return sysfs.number(f"{MAPPER}{mixed}") in failed_paths(seen.get(image, []))

    def lenders(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return which of the images that may lend something do so now, as the kernel has it."""
        roles = ("image", "mixed", "mixture")
        image, mixed, mixture = (Mapped(str(Device(self.image, role))) for role in roles)
        if not image.lies_on(mixed.node):
            return ()
        # one may lend to others, and not to this image yet
        lent = {name: Mapped(str(lending.device_of(name))).node for name in names}
        return tuple(name for name, node in lent.items() if mixture.lies_on(node))

    def lends(self) -> bool:
        """Tell whether the kernel has what others read of the image."""
        return Mapped(str(lending.device_of(self.image))).exists()

    def is_caching(self, seen: Mapping[str, Table]) -> bool:
        """Tell whether what is read is kept."""
        return self.member.is_caching(seen.get(self.member.device, []))

    def figures(self, seen: Mapping[str, Table]) -> Figures:
        """Return what the cache has done."""
        return self.member.figures(seen.get(self.member.device, []))

    def room(self) -> float:
        """Return for which part of the image the cache has room."""
        return self.member.room()

    def kept(self, stripes: int) -> frozenset[int] | None:
        """Return of which stripes the kernel reads through the cache; None if of all."""
        kept, stripe = (Mapped(str(Device(self.image, role))) for role in ("kept", "stripe"))
        table = kept.table()
        if not table:
            return None
        numbers = table[0][3].split()[3::2]  # of paths, size of a region, optional arguments
        past = sysfs.number(stripe.node)
        return frozenset(one for one in range(stripes) if numbers[one] != past)

    def faults(self, steps: plan.Plan, seen: Mapping[str, Table]) -> list[tuple[str, Device]]:
        """Return what is amiss: a code of ``virtman node check``, and which device."""
        # a device may be in a plan twice, first alone and then with what lies below
        wanted = {step.device: step for step in steps}
        found = [(self._fault(step, seen), step.device) for step in wanted.values()]
        below, above = self.stack.paths(self.image)
        extra = {step.device for step in (*below, *above)} - wanted.keys()
        return [
            *(fault for fault in found if fault[0]),
            *(("path.orphan", device) for device in extra),
        ]

    def is_read_from_cache(self, steps: plan.Plan) -> bool:
        """Tell whether VMs read from the cache itself; only these may have two ways."""
        origin = next(step for step in steps if step.device.role == "origin")
        layer = self.stack.layer(origin)
        assert isinstance(layer, ImageLayer)
        return len(layer.path_states()) > 1

    def _fault(self, step: plan.Step, seen: Mapping[str, Table]) -> str:
        if isinstance(step, plan.Cache):
            return "" if self.is_caching(seen) else "cache.absent"
        status = seen.get(str(step.device), [])
        if isinstance(step, plan.Multipath | plan.Image | plan.Lent) and failed(status):
            return "path.failed"
        layer = self.stack.layer(step)
        is_up = layer.is_seen(status) if isinstance(layer, Seen) else layer.is_up()
        return "" if is_up else "image.incomplete"

    def _ways(self, steps: plan.Plan) -> list[Mapped]:
        """Return through what VMs and children read, from where all parents come together."""
        kinds = (plan.Multipath, plan.Stripe, plan.Regions, plan.Lent, plan.Image)
        ways = {step.device: step for step in steps if isinstance(step, kinds)}
        layers = map(self.stack.layer, ways.values())
        return [layer for layer in layers if isinstance(layer, Mapped)]


def _multipaths(steps: plan.Plan, seen: Mapping[str, Table]) -> list[Table]:
    """Return the status of each multipath."""
    tops = {str(step.device) for step in steps if isinstance(step, plan.Multipath)}
    return [seen.get(name, []) for name in tops]
