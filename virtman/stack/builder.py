"""Carries a plan out: each device over those below it, and down again in reverse."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from virtman.errors import KernelFailure, ModulesMissing, ParentUnreachable, VirtmanError
from virtman.model import naming, plan
from virtman.model.naming import CACHE_GROUP, Device
from virtman.stack import mapped
from virtman.stack.cache import CacheGroup, Member, bcache, dmcache, flashcache, none
from virtman.stack.layer import Layer
from virtman.stack.layers.hashes import Hashes
from virtman.stack.layers.image import Image
from virtman.stack.layers.instance import Instance
from virtman.stack.layers.multipath import Multipath
from virtman.stack.layers.reader import File, Reader
from virtman.stack.layers.regions import Regions
from virtman.stack.layers.store import Store
from virtman.stack.layers.stripe import Stripe
from virtman.stack.layers.verity import Verity
from virtman.stack.layers.void import Void
from virtman.stack.transport import transport

LOG = logging.getLogger(__name__)

_MODULES = (
    "dm-mod", "dm-multipath", "dm-service-time", "dm-round-robin", "dm-queue-length", "dm-switch",
    "dm-snapshot", "dm-verity", "loop",
)  # fmt: skip
# Roles of devices that are held back on purpose at times.
_HELD = ("image", "origin", "vm")
_DRIVERS: Mapping[str, Callable[[Sequence[str], Path], CacheGroup]] = {
    "bcache": bcache.BcacheGroup,
    "dmcache": dmcache.DmCacheGroup,
    "flashcache": flashcache.FlashCacheGroup,
    "none": none.NoGroup,
}


class Stack:
    """The layers of this node. Holds no state: the kernel does.

    :param driver: what caches
    :param cache_devices: local block devices of the cache group
    :param folder: where small files of the stack may live; they survive a reboot
    :param verify: whether what parents send is held against the images' hash trees
    :param selector: of the stripes' multipath
    :param shared: whether parent and standby share a stripe's reads
    """

    def __init__(
        self,
        driver: str,
        cache_devices: Sequence[str],
        folder: Path,
        *,
        verify: bool = True,
        selector: str = "service-time",
        shared: bool = False,
    ) -> None:
        self.folder = folder
        self.verify = verify
        self.group = _DRIVERS[driver](cache_devices, folder)
        self.modules = (*_MODULES, *transport.modules, *self.group.modules)
        self._make: Mapping[type[plan.Step], Callable[..., Layer]] = {
            plan.Path: transport.path,
            plan.Verity: Verity,
            plan.Hashes: Hashes,
            plan.Multipath: lambda step: Multipath(step, selector, shared=shared),
            plan.Stripe: Stripe,
            plan.Cache: self.group.member,
            plan.Image: Image,
            plan.Void: Void,
            plan.Regions: Regions,
            plan.Export: transport.export,
            plan.Reader: Reader,
            plan.File: File,
            plan.Store: Store,
            plan.Instance: Instance,
        }

    def layer(self, step: plan.Step) -> Layer:
        """Return what carries out one step."""
        return self._make[type(step)](step)

    def member(self, steps: plan.Plan) -> Member:
        """Return the image's member of the cache group."""
        return self.group.member(next(step for step in steps if isinstance(step, plan.Cache)))

    def up(self, steps: plan.Plan, made: Mapping[Device, str] | None = None) -> dict[Device, str]:
        """Bring devices up in order; those that are up already are left alone.

        :param made: devices that earlier plans brought up
        :returns: the path of each device so far
        """
        paths = dict(made or {})
        for step in steps:
            begin = time.monotonic()
            below = [paths[device] for device in step.below]
            paths[step.device] = self.layer(step).up(below)
            LOG.debug("%s is up after %.3f s", step.device, time.monotonic() - begin)
        return paths

    def connect(self, steps: plan.Plan, made: Mapping[Device, str]) -> dict[Device, str]:
        """Bring up paths to parents, and what lies on them, as far as the parents answer.

        A multipath lies on those of its paths that are up; without any it stays as it is.

        :param steps: of ``plan.connect``
        :raises ParentUnreachable: of who does not answer, once all the others are connected
        """
        paths, lost = dict(made), set[Device]()
        silent: dict[str, ParentUnreachable] = {}
        for step in steps:
            below = tuple(one for one in step.below if one not in lost)
            is_cut_off = below != step.below and not isinstance(step, plan.Multipath)
            # that a host does not answer may take seconds to see, for each path anew
            if is_cut_off or (step.device.argument in silent and not self.layer(step).is_up()):
                lost.add(step.device)
                continue
            try:
                paths = self.up((replace(step, below=below),), paths)
            except ParentUnreachable as err:
                lost.add(step.device)
                silent[err.host] = err
        if silent:
            raise ParentUnreachable("; ".join(map(str, silent.values())), next(iter(silent)))
        return paths

    def down(self, steps: plan.Plan) -> None:
        """Take devices away in reverse, each one tried whatever became of the others.

        First all I/O that waits is failed, bottom to top: a device can only go once
        nothing is on its way through it.

        :raises ExceptionGroup: of what could not be taken away
        """
        failures: list[Exception] = []
        # a device may be in a plan twice, first alone and then with what lies below
        unique = list({step.device: step for step in steps}.values())
        for step in unique:
            self.layer(step).release()
        for step in reversed(unique):
            try:
                self.layer(step).down()
            except (VirtmanError, OSError) as err:
                failures.append(err)
        if failures:
            raise ExceptionGroup(f"taking down {unique[0].device.image}", failures)

    def present(self) -> dict[str, list[Device]]:
        """Devices of ours that the kernel has, by image."""
        found: dict[str, list[Device]] = {}
        for device in map(naming.parse, mapped.names()):
            if device is not None:
                found.setdefault(device.image, []).append(device)
        for path in _strays():
            found.setdefault(path.device.image, [])
        return found

    def paths(self, image: str) -> tuple[plan.Plan, plan.Plan]:
        """Return the paths of an image that the kernel has, be it only their sessions.

        :returns: those below the leaves of the hash tree, and those above
        """
        below, above = plan.found(self.present().get(image, []))
        return (*(path for path in _strays() if path.device.image == image), *below), above

    def voids(self, image: str) -> tuple[plan.Void, ...]:
        """Return the voids that the kernel has for images of this name: one, or none."""
        devices = self.present().get(image, [])
        return tuple(plan.Void(device, 0, ()) for device in devices if device.role == "void")

    def forget_lost(self) -> None:
        """Forget whom this node read from before it was booted, secrets and all."""
        transport.forget_lost()

    def wake(self) -> None:
        """Let devices go on that an agent held back as it died, in the middle of a swap.

        To be called while nothing is swapped.
        """
        try:
            names = mapped.names()
        except KernelFailure as err:  # the module is loaded later
            LOG.info("nothing can be held back: %s", err)
            return
        for name in names:
            device = naming.parse(name)
            if name == CACHE_GROUP or (device is not None and device.role not in _HELD):
                try:
                    mapped.wake(name)
                except VirtmanError as err:
                    LOG.warning("%s", err)

    def prune(self, image: str, steps: plan.Plan) -> None:
        """Take away the paths of an image that ``steps`` no longer names."""
        wanted = {step.device for step in steps}
        below, above = self.paths(image)
        for step in reversed((*below, *above)):
            if step.device not in wanted:
                self.layer(step).down()


def _strays() -> list[plan.Path]:
    """Sessions to hosts of ours whose device has gone, or never came: each holds its parent."""
    return [
        plan.Path(Device(portal.image, "path0", portal.host), 0, (), portal)
        for portal in transport.idle()
    ]


def check_modules(names: Iterable[str]) -> None:
    """Load the kernel modules that the stack is made of.

    :raises ModulesMissing: naming those that this kernel does not have
    """
    missing = mapped.load_modules(names)
    if missing:
        raise ModulesMissing(
            f"the running kernel has no module {', '.join(missing)}: install the package with "
            "this kernel's extra modules (Debian: linux-image-$(uname -r); Ubuntu: "
            "linux-modules-extra-$(uname -r)) or boot a kernel that has them, then run "
            "'depmod -a' and try again"
        )
