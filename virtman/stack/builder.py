"""Carries a plan out: each device over those below it, and down again in reverse."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from virtman import sysfs
from virtman.errors import KernelFailure, ModulesMissing, ParentUnreachable, VirtmanError
from virtman.model import feeding, naming, plan
from virtman.model.naming import CACHE_GROUP, PREFIX, Device
from virtman.stack import mapped
from virtman.stack.cache import CacheGroup, bcache, dmcache, flashcache, none
from virtman.stack.layer import Layer
from virtman.stack.layers.admission import AdmissionLayer
from virtman.stack.layers.base import BaseLayer
from virtman.stack.layers.hashes import HashesLayer
from virtman.stack.layers.image import ImageLayer
from virtman.stack.layers.instance import InstanceLayer
from virtman.stack.layers.lent import LentLayer
from virtman.stack.layers.mixture import MixtureLayer
from virtman.stack.layers.multipath import MultipathLayer
from virtman.stack.layers.over import OverLayer
from virtman.stack.layers.reader import DirectLayer, FileLayer, ReaderLayer
from virtman.stack.layers.regions import RegionsLayer
from virtman.stack.layers.store import StoreLayer
from virtman.stack.layers.stripe import StripeLayer
from virtman.stack.layers.verity import VerityLayer
from virtman.stack.layers.void import VoidLayer
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


@dataclass(frozen=True)
class Built:
    """What came of a plan.

    :ivar paths: of all devices so far
    :ivar lost: what could not be brought up, for a host that did not answer
    :ivar silent: the error of each such host, and of those who are cut off, by its name
    :ivar unfed: multipaths of which no path could be, or all are cut off
    """

    paths: Mapping[Device, str]
    lost: frozenset[Device]
    silent: Mapping[str, ParentUnreachable]
    unfed: frozenset[Device]

    @property
    def missing(self) -> set[str]:
        """Hosts to whom a path could not be brought up."""
        return {device.argument for device in self.lost}

    def failure(self) -> ParentUnreachable:
        """Return what names all hosts that did not answer; there must be one."""
        text = "; ".join(map(str, self.silent.values()))
        return ParentUnreachable(text, next(iter(self.silent)))


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
            plan.Verity: VerityLayer,
            plan.Hashes: HashesLayer,
            plan.Multipath: lambda step: MultipathLayer(step, selector, shared=shared),
            plan.Stripe: StripeLayer,
            plan.Cache: self.group.member,
            plan.Image: ImageLayer,
            plan.Lent: LentLayer,
            plan.Mixture: MixtureLayer,
            plan.Void: VoidLayer,
            plan.Regions: RegionsLayer,
            plan.Export: transport.export,
            plan.Admission: lambda step: AdmissionLayer(step, transport.export(step.export)),
            plan.Reader: ReaderLayer,
            plan.File: FileLayer,
            plan.Direct: DirectLayer,
            plan.Base: BaseLayer,
            plan.Over: OverLayer,
            plan.Store: StoreLayer,
            plan.Instance: InstanceLayer,
        }

    def layer(self, step: plan.Step) -> Layer:
        """Return what carries out one step."""
        return self._make[type(step)](step)

    def up(
        self,
        steps: plan.Plan,
        made: Mapping[Device, str] | None = None,
        silent: Mapping[str, ParentUnreachable] | None = None,
    ) -> Built:
        """Bring devices up in order, as far as parents answer; those that are up are left alone.

        A multipath lies on those of its paths that are up, also on one that was there before and
        is cut off now: it is used again once it is back. Without any other it stays as it is.

        :param made: devices that are up already, with their paths
        :param silent: hosts that did not answer just now: to see that may take seconds, for each
            path anew
        """
        paths, errors = dict(made or {}), dict(silent or {})
        lost, cut, unfed = set[Device](), set[Device](), set[Device]()
        tried = self._connect(steps, errors)
        for step in steps:
            below = [device for device in step.below if device not in lost]
            if isinstance(step, plan.Multipath):
                if cut.issuperset(below):
                    below = []
                if step.below and not below:
                    unfed.add(step.device)
            elif len(below) < len(step.below) or self._is_silent(step, errors):
                lost.add(step.device)
                continue
            elif not cut.isdisjoint(below):
                cut.add(step.device)
            came = tried.get(step.device) or self._tried(step, [paths[one] for one in below])
            if isinstance(came, str):
                paths[step.device] = came
                continue
            errors[came.host] = came
            if self.layer(step).is_up():
                paths[step.device] = step.device.node
                cut.add(step.device)
            else:
                lost.add(step.device)
        return Built(paths, frozenset(lost), errors, frozenset(unfed))

    def _connect(
        self, steps: plan.Plan, silent: Mapping[str, ParentUnreachable]
    ) -> dict[Device, str | ParentUnreachable]:
        """Bring up the paths to several parents at once: each login may wait for its own reason.

        open-iscsi gives a connection a millisecond, and looks at it again a second later: where
        links are busy, a login takes that long.
        """
        parents: dict[str, list[plan.Path]] = {}
        for step in steps:
            if isinstance(step, plan.Path) and step.device.argument not in silent:
                parents.setdefault(step.device.argument, []).append(step)
        if len(parents) < 2:
            return {}
        with ThreadPoolExecutor(len(parents)) as pool:
            came = list(pool.map(self._tried_in_turn, parents.values()))
        return {device: one for each in came for device, one in each.items()}

    def _tried_in_turn(self, steps: Iterable[plan.Path]) -> dict[Device, str | ParentUnreachable]:
        """Bring up the paths to one parent, until it does not answer."""
        came: dict[Device, str | ParentUnreachable] = {}
        for step in steps:
            came[step.device] = one = self._tried(step, ())
            if isinstance(one, ParentUnreachable):
                break
        return came

    def _tried(self, step: plan.Step, below: Sequence[str]) -> str | ParentUnreachable:
        """Bring a device up; return its path, or who did not answer."""
        begin = time.monotonic()
        try:
            path = self.layer(step).up(below)
        except ParentUnreachable as err:
            LOG.debug("%s, after %.3f s: %s", step.device, time.monotonic() - begin, err)
            return err
        LOG.debug("%s is up after %.3f s", step.device, time.monotonic() - begin)
        return path

    def _is_silent(self, step: plan.Step, silent: Mapping[str, ParentUnreachable]) -> bool:
        """Tell whether a step is about a host that does not answer, and was not taken earlier."""
        is_about = isinstance(step, plan.Path | plan.Verity) and step.device.argument in silent
        return is_about and not self.layer(step).is_up()

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
        below, above = feeding.found(self.present().get(image, []))
        return (*(path for path in _strays() if path.device.image == image), *below), above

    def voids(self, image: str) -> tuple[plan.Void, ...]:
        """Return the voids that the kernel has for images of this name: one, or none."""
        devices = self.present().get(image, [])
        return tuple(plan.Void(device, 0, ()) for device in devices if device.role == "void")

    def prepare(self) -> None:
        """Get the node ready for an agent that starts; to be called while nothing else is done.

        What the first image would wait for is loaded, whom this node read from before it was booted
        is forgotten, secrets and all, devices get the nodes that an agent still owed them as it
        died, and those go on that it held back, in the middle of a swap.
        """
        try:
            check_modules(self.modules)
        except VirtmanError as err:
            LOG.warning("no VM can be created: %s", err)
        transport.prepare()
        try:
            names = mapped.names()
        except KernelFailure as err:  # without device mapper
            LOG.info("there are no devices: %s", err)
            return
        for name in sorted({*names, *sysfs.mapper_names()}):
            try:
                if name.startswith(PREFIX):
                    _mend(name)
            except VirtmanError as err:
                LOG.warning("%s", err)

    def prune(self, image: str, steps: plan.Plan, spent: plan.Plan = ()) -> None:
        """Take away the paths of an image that ``steps`` no longer names.

        :param spent: what goes before them, if it is there
        """
        try:
            self.down(spent)
        except ExceptionGroup as err:
            reasons = "; ".join(map(str, err.exceptions))
            raise KernelFailure(f"image {image}: what it needs no more: {reasons}") from err
        wanted = {step.device for step in steps}
        below, above = self.paths(image)
        for step in reversed((*below, *above)):
            if step.device not in wanted:
                self.layer(step).down()


def _mend(name: str) -> None:
    mapped.mend_node(name)
    device = naming.parse(name)
    if name == CACHE_GROUP or (device is not None and device.role not in _HELD):
        mapped.wake(name)


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
