"""Live migrations over which nova-compute died, ended by the one that is started anew.

On the source, a guest that libvirt had sent by then follows its disk, and nova does what it does
after that; any other guest stays, and nova rolls back. Nova itself only forgets such a migration:
the server would be where its guest and its disk are not. On the destination, guests are awaited
again.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Any

from nova import context as nova_context
from nova import exception, objects
from nova.compute import task_states
from nova.objects import fields
from nova.objects.base import NovaObject
from nova.virt.libvirt import driver

from virtman.errors import VirtmanError
from virtman.openstack.backend import image_of
from virtman.openstack.live_driver import LiveDriver

LOG = logging.getLogger(__name__)

_PAUSE = 0.5


class RecoveryDriver(LiveDriver):
    """The part of the driver that is about guests which others before it sent or awaited."""

    def take_up(self, host: str) -> None:
        """End what was begun here, before nova looks at its servers."""
        context = nova_context.get_admin_context()
        for server, needed in self.departing.all().items():
            try:
                self._take_up(context, server, needed)
            except Exception:
                LOG.exception("the migration of server %s is left as it is", server)
        for instance in _arriving(context, host):
            if image_of(instance):
                self._await(instance)

    def settle(self, host: str) -> None:
        """Have disks stay of which nobody could tell that when their servers did not leave."""
        context = nova_context.get_admin_context()
        for server in self.departing.all():
            instance = _find(context, server)
            if instance is None or instance.host != host:
                self.departing.drop(server)
            elif instance.task_state != task_states.MIGRATING:
                self._settle(instance)

    def _settle(self, instance: Any) -> None:
        try:
            self._keep(instance)
        except VirtmanError as err:
            LOG.warning("server %s still has a disk that leaves: %s", instance.uuid, err)

    def _take_up(self, context: Any, server: str, needed: Mapping[str, Any]) -> None:
        instance = _find(context, server)
        if instance is None:
            return
        load = functools.partial(NovaObject.obj_from_primitive, context=context)
        data = load(needed["migrate_data"])
        if instance.task_state == task_states.MIGRATING:
            self._end(context, instance, data, needed, load(needed["source_bdms"]))
        elif instance.host == needed["host"]:
            self._let_go(context, instance, data.migration.id)

    def _end(
        self, context: Any, instance: Any, data: Any, needed: Mapping[str, Any], bdms: Any
    ) -> None:
        """Do what nova does once it knows what became of a migration."""
        host = needed["host"]
        LOG.warning("nova-compute died while server %s migrated to %s", instance.uuid, host)
        manager = self.virtapi._compute
        # It does so itself a moment later; before that nothing can be freed.
        manager.pre_start_hook(objects.Service.get_by_compute_host(context, instance.host))
        has_left = self._has_left(instance)
        try:
            if self.live.take_up(instance.uuid, host, has_left=has_left):
                manager._post_live_migration_update_host(
                    context, instance, host, needed["block_migration"], data, source_bdms=bdms
                )
            else:
                manager._rollback_live_migration(context, instance, host, data, source_bdms=bdms)
        except Exception:
            LOG.exception("server %s is in error", instance.uuid)
            manager._set_migration_status(data.migration, "error")
            instance.refresh()
            manager._set_instance_obj_error_state(instance, clean_task_state=True)

    def _let_go(self, context: Any, instance: Any, migration_id: int) -> None:
        """Have a server that is on the other node hold no room on this one."""
        migration = objects.Migration.get_by_id(context, migration_id)
        if migration.status == "running":
            manager = self.virtapi._compute
            manager._set_migration_status(migration, "completed")
            manager._delete_allocation_after_move(context, instance, migration)

    def _has_left(self, instance: Any) -> bool:
        """Tell whether libvirt has sent a guest; have it not go on with that.

        Should it do so all the same, its guest finds no disk, and nova on the other node ends it.
        """
        libvirt = driver.libvirt
        try:
            guest = self._host.get_guest(instance)
        except exception.InstanceNotFound:
            return False
        busy = libvirt.VIR_DOMAIN_JOB_UNBOUNDED, libvirt.VIR_DOMAIN_JOB_COMPLETED
        deadline = self.disks.now() + self.disks.ready_timeout
        while (
            guest.is_active() and guest.get_job_info().type in busy and self.disks.now() < deadline
        ):
            try:
                guest.abort_job()
            except libvirt.libvirtError as err:
                LOG.warning("server %s could not be kept here: %s", instance.uuid, err)
            self.disks.pause(_PAUSE)
        reason = guest._domain.state()[1]
        return not guest.is_active() and reason == libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED


def _find(context: Any, server: str) -> Any:
    try:
        return objects.Instance.get_by_uuid(
            context, server, expected_attrs=["flavor", "info_cache", "metadata", "system_metadata"]
        )
    except exception.InstanceNotFound:
        return None


def _arriving(context: Any, host: str) -> list[Any]:
    """Return servers whose guests may be here, and paused: also if nova's source gave up."""
    filters = {
        "host": host,
        "migration_type": fields.MigrationType.LIVE_MIGRATION,
        "status": ["running", "error"],
    }
    migrations = objects.MigrationList.get_by_filters(context, filters)
    coming = {one.instance_uuid: one.status for one in migrations if one.dest_compute == host}
    if not coming:
        return []
    found = objects.InstanceList.get_by_filters(
        context, {"deleted": False, "uuid": list(coming)}, expected_attrs=["system_metadata"]
    )
    return [
        one
        for one in found
        if one.host == host
        or (one.task_state == task_states.MIGRATING and coming[one.uuid] == "running")
    ]
