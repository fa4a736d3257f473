"""The six verbs of a node: what happens when a VM's device is wanted, and when it is not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from virtman import naming, plan
from virtman.attachment import Attachment, Times
from virtman.coordinator import Coordinator
from virtman.errors import ImageUnknown, InstanceExists, VirtmanError
from virtman.naming import Device
from virtman.plan import Placement
from virtman.record import Instance, Records
from virtman.stack import Stack, check_modules

LOG = logging.getLogger(__name__)

MODULES = (
    "dm-mod", "dm-multipath", "dm-service-time", "dm-round-robin", "dm-queue-length", "dm-switch",
    "dm-snapshot", "dm-verity", "bcache", "loop", "iscsi_tcp", "sd_mod", "target_core_mod",
    "target_core_file", "iscsi_target_mod",
)  # fmt: skip


@dataclass(frozen=True)
class Host:
    """This node: its name, and where it serves images."""

    name: str
    ip: str
    port: int


class Agent:
    """Creates and destroys VM devices; brings images up and lets go of them."""

    def __init__(
        self, host: Host, stack: Stack, coordinator: Coordinator, records: Records, times: Times
    ) -> None:
        self.host = host
        self.stack = stack
        self.coordinator = coordinator
        self.records = records
        self.times = times
        # Guards the two below; held for moments only.
        self._lock = threading.Lock()
        self._attachments: dict[str, Attachment] = {}
        self._busy: set[str] = set()

    def create(self, vm: str, image: str) -> Instance:
        """Give a VM its device over an image, which is attached first if need be.

        :raises InstanceExists: if there is a VM of this name
        :raises ImageUnknown: if Volt does not have the image
        :raises NoSpace: if its exception store does not fit
        """
        naming.check("VM", vm)
        naming.check("image", image)
        with _Claim(self, vm):
            self.records.check_name(vm)
            check_modules(MODULES)
            attachment = self._attachment(image)
            self.records.check_space(attachment.info.size)
            devices = attachment.acquire(vm)
            try:
                instance = self.records.add(vm, image, attachment.info.size)
                try:
                    self.stack.up(_plan(instance), devices)
                except BaseException:
                    self.stack.down(_plan(instance))
                    self.records.remove(instance)
                    raise
            except BaseException:
                attachment.release(vm)
                raise
        LOG.info("VM %s has %s", vm, device_path(instance))
        return instance

    def destroy(self, vm: str) -> None:
        """Take a VM's device away, and everything that it wrote.

        :raises InstanceUnknown: if there is none
        :raises DeviceBusy: while the device is open; nothing is changed then
        """
        naming.check("VM", vm)
        with _Claim(self, vm):
            instance = self.records.get(vm)
            self.stack.layer(_plan(instance)[0]).down()
            self.records.remove(instance)
        with self._lock:
            attachment = self._attachments.get(instance.image)
        if attachment is not None:
            attachment.release(vm)
        LOG.info("VM %s is gone", vm)

    def list(self) -> Sequence[Instance]:
        """Return the VMs of this node."""
        return self.records.all()

    def attachments(self) -> Sequence[Attachment]:
        """Return the images that are attached, or on their way."""
        with self._lock:
            return [one for one in self._attachments.values() if one.placement is not None]

    def place(self, placements: Sequence[Placement]) -> bool:
        """Move the images that have a newer placement; tell whether all that we have are there.

        :param placements: of this host, in any images
        """
        mine = {one.info.name: one for one in self.attachments()}
        for placement in placements:
            if placement.image in mine:
                mine[placement.image].apply(placement)
        return mine.keys() <= {placement.image for placement in placements}

    def drop(self, image: str) -> None:
        """Leave an image now instead of after its keep time.

        :raises ImageUnknown: if it is not attached here
        :raises DeviceBusy: while VMs use it
        """
        self.attached(image).drop()

    def attached(self, image: str) -> Attachment:
        """Return an image that is attached.

        :raises ImageUnknown: if it is not
        """
        naming.check("image", image)
        with self._lock:
            attachment = self._attachments.get(image)
        if attachment is None or attachment.placement is None:
            raise ImageUnknown(f"image {image} is not attached on this node")
        return attachment

    def recover(self) -> Sequence[str]:
        """Take over what an earlier agent left, or build it again after a reboot.

        :returns: names of VMs and images that could not be served yet; call again for these
        """
        check_modules(MODULES)
        failed = []
        for instance in self.records.all():
            try:
                self._resume(instance)
            except (VirtmanError, OSError) as err:
                LOG.warning("VM %s: %s", instance.vm, err)
                failed.append(instance.vm)
        return [*failed, *self._adopt()]

    def stop(self) -> None:
        """End the threads; devices stay for the next agent."""
        for attachment in self.attachments():
            attachment.stop()

    def _resume(self, instance: Instance) -> None:
        with _Claim(self, instance.vm):
            self.records.get(instance.vm)  # unknown if it was destroyed meanwhile
            attachment, steps = self._attachment(instance.image), _plan(instance)
            if instance.vm not in attachment.users or not self.stack.layer(steps[0]).is_up():
                self.stack.up(steps, attachment.acquire(instance.vm))

    def _adopt(self) -> Sequence[str]:
        """Take over images that no VM uses: their keep time begins anew."""
        failed = []
        used = {instance.image for instance in self.records.all()}
        for image in self.stack.present().keys() - used:
            try:
                attachment = self._attachment(image)
                if not attachment.users and attachment.placement is None:
                    attachment.acquire("")
                    attachment.release("")
            except (VirtmanError, OSError) as err:
                LOG.warning("image %s: %s", image, err)
                failed.append(image)
        return failed

    def _attachment(self, image: str) -> Attachment:
        with self._lock:
            found = self._attachments.get(image)
        if found is not None and found.placement is not None:
            return found
        info = self.coordinator.image(image)
        portal = plan.own_portal(self.host.name, image, self.host.ip, self.host.port)
        with self._lock:
            found = self._attachments.get(image)
            if found is None or (found.info != info and not found.users):
                found = Attachment(info, portal, self.stack, self.coordinator, self.times)
                self._attachments[image] = found
            return found


class _Claim:
    """One verb at a time for one VM."""

    def __init__(self, agent: Agent, vm: str) -> None:
        self.agent = agent
        self.vm = vm

    def __enter__(self) -> None:
        with self.agent._lock:
            if self.vm in self.agent._busy:
                raise InstanceExists(f"VM {self.vm} is being created or destroyed right now")
            self.agent._busy.add(self.vm)

    def __exit__(self, *exc: object) -> None:
        with self.agent._lock:
            self.agent._busy.discard(self.vm)


def device_path(instance: Instance) -> str:
    """Path of the device that a VM boots from."""
    return Device(instance.image, "vm", instance.vm).node


def _plan(instance: Instance) -> plan.Plan:
    return plan.instance(instance.image, instance.size, instance.vm, instance.store)
