"""Nova's libvirt driver, with the root disks of servers by VirtMan.

These are servers that boot from an image, and those by volume type (see volume_type). The driver
is loaded by ``[DEFAULT] compute_driver = virtman.LibvirtDriver``. Nova itself is as it was
released, so this is where nova's steps meet the agent's. All that is not about such a server is
left to the driver that it extends.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import nova.conf
from nova import context as nova_context
from nova import exception, objects, utils
from nova.compute import manager, power_state, task_states, vm_states
from nova.compute import utils as compute_utils
from nova.virt.libvirt import driver, imagebackend
from nova.virt.libvirt import utils as libvirt_utils
from nova.volume import cinder
from oslo_utils import fileutils

from virtman.api.client import Client
from virtman.errors import AgentUnreachable, ProfileUnbound, ProfileUnknown, VirtmanError
from virtman.openstack import backend, flavors, golden, guard, older, options, wanted
from virtman.openstack.backend import image_of
from virtman.openstack.cinder import API_VERSION, Cinder
from virtman.openstack.departures import Departures
from virtman.openstack.disks import Disks
from virtman.openstack.live_driver import LiveDriver
from virtman.openstack.recovery_driver import RecoveryDriver
from virtman.openstack.releases import RELEASES
from virtman.openstack.sources import Sources
from virtman.openstack.volumes import Volumes
from virtman.openstack.volumes_driver import VolumesDriver

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

DISK_GB = "DISK_GB"

_RESTART = 30.0
"""Seconds in which an agent that is started anew listens again."""

_ENDING = (task_states.DELETING, task_states.SOFT_DELETING)


class LibvirtDriver(RecoveryDriver, VolumesDriver):
    """The driver of one node."""

    def __init__(self, virtapi: Any, read_only: bool = False) -> None:
        self.release = RELEASES[guard.check(methods(), RELEASES)]
        options.register(CONF)
        super().__init__(virtapi, read_only)
        conf = CONF.virtman
        self.node = CONF.host
        self.agent = Client(conf.agent_socket, patience=_RESTART)
        self.images = wanted.WantedImages(self.agent, conf.image_timeout)
        goldens = golden.Goldens(_cinder, conf.volume_type, self.node, conf.golden_timeout)
        sources = Sources(self.images, goldens, conf.use_vmtsnapshot)
        self.disks = Disks(self.agent, sources, conf.served_timeout, conf.ready_timeout)
        folder = Path(CONF.state_path) / "virtman"
        self.volumes = Volumes(self.agent, folder / "volumes")
        self.departing = Departures(folder / "departures")
        self.image_backend = backend.Backend(CONF.use_cow_images, self.disks, self.images)

    def init_host(self, host: str) -> None:
        """Begin: end what was begun, and take disks away that nobody could take away."""
        super().init_host(host)
        older.adopt(nova_context.get_admin_context(), host)
        self.take_up(host)
        self._sweep()

    def manage_image_cache(self, context: Any, all_instances: Any) -> None:
        """Do what is due now and then: take files away, and disks that are nobody's any more."""
        super().manage_image_cache(context, all_instances)
        self._sweep()

    def _sweep(self) -> None:
        try:
            self.settle(self.node)
            self.disks.sweep(_deleted(one["vm"] for one in self.agent.list()).__contains__)
        except Exception as err:  # the agent's, or Cinder's
            LOG.warning("what servers left that were deleted may still be there: %s", err)

    # What the node has.

    def update_provider_tree(
        self, provider_tree: Any, nodename: str, allocations: Any = None
    ) -> None:
        """Tell Placement what there is, and that disks can be VirtMan's here.

        While nobody knows how much space there is, it is as much as before: servers have theirs. A
        node whose agent has never said so gets no servers with such disks.
        """
        known = provider_tree.data(nodename)
        before = known.inventory
        if older.RESOURCE_CLASS in before and allocations is None:
            raise exception.ReshapeNeeded()
        super().update_provider_tree(provider_tree, nodename, allocations=allocations)
        found = provider_tree.data(nodename).inventory
        if DISK_GB in before and DISK_GB not in found:
            found[DISK_GB] = before[DISK_GB]
        if older.RESOURCE_CLASS in before:
            older.reshape(found, known.uuid, allocations)
        provider_tree.update_inventory(nodename, found)
        if DISK_GB in found:
            provider_tree.add_traits(nodename, flavors.TRAIT)

    def _get_local_gb_info(self) -> dict[str, int]:  # static in nova, which always calls self
        try:
            total, used = self.disks.space(), self.disks.used()
        except AgentUnreachable as err:
            LOG.warning("nobody knows the space for disks: %s", err)
            total = used = 0
        return {"total": total, "used": used, "free": max(0, total - used)}

    def cache_image(self, context: Any, image_id: str) -> bool:
        """Have an image made before its first server; tell whether the node did not read it yet.

        Without a profile nothing tells what to fetch, and to attach it later takes seconds.
        """
        image = wanted.name_of(image_id)
        self.images.size(image)
        is_new = all(one["image"] != image for one in self.agent.images())
        with contextlib.suppress(ProfileUnbound, ProfileUnknown):
            self.agent.warm(image)
        return is_new

    def _get_instance_disk_info_from_config(
        self, guest_config: Any, block_device_info: Any
    ) -> list[dict[str, Any]]:
        """Return the disks that nova copies, converts and makes anew: files."""
        files = copy.copy(guest_config)
        files.devices = [
            one
            for one in guest_config.devices
            if not backend.is_device(getattr(one, "source_path", None))
        ]
        disks: list[dict[str, Any]] = super()._get_instance_disk_info_from_config(
            files, block_device_info
        )
        return disks

    # How a disk ends.

    def _cleanup(self, context: Any, instance: Any, *args: Any, **kwargs: Any) -> None:
        """Take the disk of a server away that leaves it behind, but lives on.

        One that is deleted loses it with its files: see ``delete_instance_files``.
        """
        if (
            kwargs.get("cleanup_instance_disks")
            and image_of(instance)
            and not _is_ending(instance)
            and instance.task_state not in (task_states.RESIZE_REVERTING, task_states.MIGRATING)
        ):
            self.disks.destroy(instance.uuid)
            self._forget(instance)
        super()._cleanup(context, instance, *args, **kwargs)

    def delete_instance_files(self, instance: Any) -> bool:
        """Take away what a server has on this node; tell whether all of it is gone.

        Nova asks again later if not, and also for servers that were deleted while this node was
        down.
        """
        gone: bool = super().delete_instance_files(instance)
        if image_of(instance) and _is_ending(instance):
            try:
                self.disks.destroy(instance.uuid)
            except VirtmanError as err:
                LOG.warning("server %s is deleted, its disk is still there: %s", instance.uuid, err)
                return False
        return gone

    def instance_on_disk(self, instance: Any) -> bool:
        """Tell whether a server's data are on this node, whatever else is in a shared folder."""
        if image_of(instance):
            return self.disks.exists(instance.uuid)
        found: bool = super().instance_on_disk(instance)
        return found

    def _forget(self, instance: Any) -> None:
        """Note that a server has no disk, unless it is built anew on another node meanwhile."""
        if instance.host not in (None, self.node):
            return
        instance.system_metadata.pop(backend.MARK, None)
        with contextlib.suppress(exception.InstanceNotFound):
            instance.save()

    # How a disk goes to another node.

    def migrate_disk_and_power_off(
        self,
        context: Any,
        instance: Any,
        dest: str,
        flavor: Any,
        network_info: Any,
        block_device_info: Any = None,
        timeout: int = 0,
        retry_interval: int = 0,
    ) -> str:
        """Send a stopped server away: its files first, its disk last."""
        sent: str = super().migrate_disk_and_power_off(
            *(context, instance, dest, flavor, network_info),
            *(block_device_info, timeout, retry_interval),
        )
        migration = _move_of(context, instance)
        if migration is None:
            return sent
        try:
            self.disks.move(instance.uuid, migration.dest_compute)
        except Exception as err:
            LOG.exception("the disk of server %s did not leave", instance.uuid)
            self.finish_revert_migration(
                *(context, instance, network_info, migration, block_device_info),
                power_on=instance.vm_state != vm_states.STOPPED,
                **self.release.reverts_with(context, instance),
            )
            self._remove_sent(dest, instance)
            raise exception.InstanceFaultRollback(inner_exception=err) from err
        return sent

    def finish_revert_migration(
        self, context: Any, instance: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Have a guest again where it was, also if nova did not come to note its old flavor."""
        with contextlib.ExitStack() as stack:
            if image_of(instance) and not instance.old_flavor:
                stack.enter_context(utils.temporary_mutation(instance, old_flavor=instance.flavor))
            super().finish_revert_migration(context, instance, *args, **kwargs)

    def destroy(self, context: Any, instance: Any, *args: Any, **kwargs: Any) -> None:
        """Take a guest away; in a revert its disk goes back first, with what was written here."""
        if instance.task_state == task_states.RESIZE_REVERTING:
            migration = _move_of(context, instance)
            if migration is not None:
                self._destroy(instance)
                self.disks.move(instance.uuid, migration.source_compute)
        super().destroy(context, instance, *args, **kwargs)

    def _remove_sent(self, dest: str, instance: Any) -> None:
        """Take files away that are on another node in vain; what prevents that is logged."""
        folder = libvirt_utils.get_instance_path(instance)
        try:
            if not self._is_path_shared_with(dest, folder):
                self._remotefs.remove_dir(dest, folder)
        except Exception as err:
            LOG.warning("host %s still has files of server %s: %s", dest, instance.uuid, err)

    def rescue(self, context: Any, instance: Any, *args: Any, **kwargs: Any) -> None:
        """Boot a server from another disk.

        What the server's own is made of says how that is attached. Nova looks for the image, or for
        the volume of one that has none; a golden volume is neither. What is not there, as a
        snapshot is not, is as noted at the server.
        """
        source = image_of(instance)
        if source and not instance.image_ref and not wanted.is_of_glance(source):
            made_of = next(iter(golden.made_of(source).values()))
            with utils.temporary_mutation(instance, image_ref=made_of):
                super().rescue(context, instance, *args, **kwargs)
        else:
            super().rescue(context, instance, *args, **kwargs)

    # Images of servers.

    def snapshot(self, context: Any, instance: Any, image_id: str, update_task_state: Any) -> None:
        """Make an image of a server's disk, while the guest goes on."""
        if not image_of(instance):
            super().snapshot(context, instance, image_id, update_task_state)
            return
        form = CONF.libvirt.snapshot_image_format or "qcow2"
        name = self._image_api.get(context, image_id)["name"]
        metadata = self._create_snapshot_metadata(instance.image_meta, instance, form, name)
        update_task_state(task_state=task_states.IMAGE_PENDING_UPLOAD)
        fileutils.ensure_tree(CONF.libvirt.snapshots_directory)
        with utils.tempdir(dir=CONF.libvirt.snapshots_directory) as folder:
            path = os.path.join(folder, image_id)
            disk = self.image_backend.by_name(instance, backend.ROOT)
            disk.snapshot_extract(path, form, self._still(context, instance))
            update_task_state(
                task_state=task_states.IMAGE_UPLOADING,
                expected_state=task_states.IMAGE_PENDING_UPLOAD,
            )
            with libvirt_utils.file_open(path, "rb") as data, compute_utils.disk_ops_semaphore:
                self._image_api.update(context, image_id, metadata, data)

    @contextlib.contextmanager
    def _still(self, context: Any, instance: Any) -> Iterator[None]:
        """Have the guest write nothing, if it runs and has an agent for that; as nova does."""
        guest = self._host.get_guest(instance)
        if guest.get_power_state(self._host) != power_state.RUNNING:
            yield
            return
        image = instance.image_meta
        try:
            self._set_quiesced(context, instance, image, True)
        except exception.NovaException as err:
            if image.properties.get("os_require_quiesce", False):
                raise
            LOG.info("server %s writes on while its disk is copied: %s", instance.uuid, err)
            yield
            return
        try:
            yield
        finally:
            self._set_quiesced(context, instance, image, False)


def methods() -> guard.Methods:
    """Return what of nova is overridden here, is called, or calls what is overridden."""
    found: Mapping[str, Any] = {
        **guard.overridden(LibvirtDriver, driver.LibvirtDriver),
        **guard.overridden(LiveDriver, driver.LibvirtDriver),
        **guard.overridden(RecoveryDriver, driver.LibvirtDriver),
        **guard.overridden(VolumesDriver, driver.LibvirtDriver),
        **guard.overridden(backend.RootDisk, imagebackend.Image),
        **guard.overridden(backend.Backend, imagebackend.Backend),
        **guard.named(
            driver.LibvirtDriver,
            *("_create_and_inject_local_root", "_create_image", "_create_snapshot_metadata"),
            *("_destroy", "_get_instance_disk_info", "_is_path_shared_with", "_live_migration"),
            *("_set_quiesced", "_try_fetch_image_cache", "_undefine_domain"),
            *("cleanup", "finish_migration", "swap_volume"),
        ),
        **guard.named(
            manager.ComputeManager,
            *("_delete_allocation_after_move", "_do_live_migration", "_post_live_migration"),
            *("_post_live_migration_update_host", "_reset_live_migration"),
            *("_rollback_live_migration", "_set_instance_obj_error_state"),
            *("_set_migration_status", "pre_start_hook"),
        ),
        **guard.named(manager.ComputeVirtAPI, "__init__"),
        **guard.named(imagebackend.Image, "verify_base_size"),
        **guard.named(imagebackend.Backend, "backend"),
    }
    return found


def _cinder() -> Cinder:
    """Return Cinder, as nova's own account: golden volumes belong to no user."""
    context = nova_context.get_admin_context()
    return Cinder(cinder.cinderclient(context, microversion=API_VERSION))


def _deleted(servers: Iterable[str]) -> set[str]:
    """Return those of which nova knows that they were deleted for good."""
    if not (asked := list(servers)):
        return set()
    context = nova_context.get_admin_context(read_deleted="yes")
    filters = {"deleted": True, "soft_deleted": False, "uuid": asked}
    found = objects.InstanceList.get_by_filters(context, filters, expected_attrs=[])
    return {one.uuid for one in found}


def _is_ending(instance: Any) -> bool:
    return bool(
        (instance.obj_attr_is_set("deleted") and instance.deleted)
        or instance.task_state in _ENDING
        or instance.vm_state == vm_states.SOFT_DELETED
    )


def _move_of(context: Any, instance: Any) -> Any:
    """Return the migration that takes a server's disk to another node; None if none does."""
    if not image_of(instance):
        return None
    migration = objects.Migration.get_by_id_and_instance(
        context, instance.migration_context.migration_id, instance.uuid
    )
    return None if migration.source_compute == migration.dest_compute else migration
