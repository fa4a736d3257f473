"""Live migration of servers whose root disk is VirtMan's: where nova's steps meet ``live``.

The source sends most of the disk before libvirt begins to send the memory. The guest arrives
paused: its last writes may still be on their way, and it goes on as soon as they are there. Should
they not get there, the guest is started again where it was.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from nova import exception
from nova.compute import power_state, vm_states
from nova.virt.libvirt import driver
from nova.virt.libvirt import utils as libvirt_utils

from virtman.errors import VirtmanError
from virtman.openstack.backend import image_of, is_device
from virtman.openstack.departures import Departures
from virtman.openstack.disks import Disks
from virtman.openstack.live import LiveMigrations

LOG = logging.getLogger(__name__)

_PAUSE = 0.5


class Departure:
    """A guest that leaves, of which nova asks as of any guest.

    :ivar wanted: nobody has called it off
    :ivar handed: its disk is the other node's
    :ivar ended: is set once the guest has left with its disk, or has not
    :ivar failure: why it has not
    """

    def __init__(self, guest: Any, live: LiveMigrations, server: str, host: str) -> None:
        self.guest = guest
        self.live = live
        self.server = server
        self.host = host
        self.wanted = True
        self.handed = False
        self.ended = threading.Event()
        self.failure: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.guest, name)

    def migrate(self, *args: Any, flags: int, **kwargs: Any) -> None:
        """Have libvirt send the guest, and hand its disk over once it has left.

        There the guest must not run before its disk has come; here it must stay known until then.
        Memory that is fetched after the fact needs a guest that runs.
        """
        if not self.wanted:
            raise exception.MigrationError(reason="it was called off")
        libvirt = driver.libvirt
        flags &= ~(libvirt.VIR_MIGRATE_POSTCOPY | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE)
        self.guest.migrate(*args, flags=flags | libvirt.VIR_MIGRATE_PAUSED, **kwargs)
        self.live.hand_over(self.server, self.host)
        self.handed = True

    def get_job_info(self) -> Any:
        """Return how far libvirt is; a guest has not left before its disk has."""
        libvirt = driver.libvirt
        info = self.guest.get_job_info()
        if info.type == libvirt.VIR_DOMAIN_JOB_UNBOUNDED and not self.live.is_ready(self.server):
            try:
                self.guest.abort_job()
            except libvirt.libvirtError as err:
                LOG.warning("server %s could not be kept here: %s", self.server, err)
        if info.type == libvirt.VIR_DOMAIN_JOB_COMPLETED:
            self.ended.wait()
        if self.failure is not None:
            info.type = libvirt.VIR_DOMAIN_JOB_FAILED
        return info


class LiveDriver(driver.LibvirtDriver):  # type: ignore[misc]
    """The part of the driver that is about guests which leave and arrive without being stopped.

    :ivar disks: of the node
    :ivar departing: servers that leave it, also those of which nobody knows yet whether they did
    """

    disks: Disks
    departing: Departures

    def __init__(self, virtapi: Any, read_only: bool = False) -> None:
        super().__init__(virtapi, read_only)
        self._departures: dict[str, Departure] = {}
        # Servers that are on their way here.
        self._arriving: set[str] = set()
        # So that nobody finds a guest paused that goes on a moment later.
        self._resuming = threading.Lock()

    @property
    def live(self) -> LiveMigrations:
        """The disks of the node while their servers leave or come."""
        return LiveMigrations(self.disks)

    # On the source.

    def check_can_live_migrate_source(
        self, context: Any, instance: Any, dest_check_data: Any, block_device_info: Any = None
    ) -> Any:
        """Refuse what only nova could send, which would send the root disk along."""
        found = super().check_can_live_migrate_source(
            context, instance, dest_check_data, block_device_info
        )
        if image_of(instance) and found.is_shared_instance_path:
            raise exception.MigrationPreCheckError(
                reason=f"server {instance.uuid}, whose root disk is VirtMan's, stays where it is: "
                "instances_path is shared with that host"
            )
        return found

    def _is_shared_block_storage(
        self, instance: Any, dest_check_data: Any, block_device_info: Any = None
    ) -> bool:
        """Tell whether nova copies no disk, and takes none away.

        Other disks than the root disk are files, which it copies; a user may also tell it to copy.
        """
        if not image_of(instance):
            shared: bool = super()._is_shared_block_storage(
                instance, dest_check_data, block_device_info
            )
            return shared
        told = "block_migration" in dest_check_data and dest_check_data.block_migration
        return not (told or self._get_instance_disk_info(instance, block_device_info))

    def _live_migration_copy_disk_paths(
        self, context: Any, instance: Any, guest: Any
    ) -> tuple[list[str], list[str]]:
        """Return the disks that nova copies, their paths and their devices in the guest."""
        found = super()._live_migration_copy_disk_paths(context, instance, guest)
        copied = [one for one in zip(*found, strict=True) if not is_device(one[0])]
        return [path for path, _ in copied], [device for _, device in copied]

    def live_migration(
        self,
        context: Any,
        instance: Any,
        dest: str,
        post_method: Any,
        recover_method: Any,
        block_migration: bool = False,
        migrate_data: Any = None,
    ) -> None:
        """Send a disk first, then its guest."""
        arguments = context, instance, dest, post_method, recover_method
        if not image_of(instance):
            super().live_migration(*arguments, block_migration, migrate_data)
            return
        needed = {
            "host": dest,
            "block_migration": block_migration,
            "migrate_data": migrate_data.obj_to_primitive(),
            "source_bdms": post_method.keywords["source_bdms"].obj_to_primitive(),
        }
        departure = Departure(self._host.get_guest(instance), self.live, instance.uuid, dest)
        self._departures[instance.uuid] = departure
        status = self._send(departure, migrate_data, needed)
        if status:
            del self._departures[instance.uuid]
            recover_method(context, instance, dest, migrate_data, migration_status=status)
            return
        try:
            super().live_migration(*arguments, block_migration, migrate_data)
        finally:
            self._departures.pop(instance.uuid, None)
        if departure.handed:
            self.departing.drop(instance.uuid)

    def live_migration_abort(self, instance: Any) -> None:
        """Have a server stay; before libvirt has begun it is enough not to begin."""
        departure = self._departures.get(instance.uuid)
        if (
            departure is not None
            and departure.wanted
            and instance.uuid not in (self.active_migrations)
        ):
            departure.wanted = False
            return
        super().live_migration_abort(instance)

    def _send(self, departure: Departure, migrate_data: Any, needed: Mapping[str, Any]) -> str:
        """Send a disk until little is left; return what became of the migration if it is over.

        A config drive goes first: libvirt copies nothing that is read-only, as each CD-ROM is, and
        nova makes an empty file there.

        :param needed: for the rest of the way, should somebody else have to end it
        """
        try:
            self.departing.put(departure.server, needed)
            there = migrate_data.target_connect_addr or departure.host
            for disk in departure.guest.get_all_disks():
                if disk.readonly and disk.source_type == "file" and disk.source_path:
                    libvirt_utils.copy_image(disk.source_path, disk.source_path, host=there)
            self.live.begin(departure.server, departure.host)
            self.live.await_ready(departure.server, lambda: departure.wanted)
        except Exception:
            LOG.exception("the disk of server %s cannot leave", departure.server)
            return "failed"
        return "" if departure.wanted else "cancelled"

    def _live_migration_operation(
        self,
        context: Any,
        instance: Any,
        dest: str,
        block_migration: bool,
        migrate_data: Any,
        guest: Any,
        device_names: Any,
    ) -> None:
        arguments = context, instance, dest, block_migration, migrate_data
        departure = self._departures.get(instance.uuid)
        if departure is None:
            super()._live_migration_operation(*arguments, guest, device_names)
            return
        try:
            super()._live_migration_operation(*arguments, departure, device_names)
        except Exception as err:  # nova has logged it, and who watches rolls back
            departure.failure = err
        finally:
            departure.ended.set()

    def _live_migration_monitor(self, context: Any, instance: Any, guest: Any, *args: Any) -> None:
        watched = self._departures.get(instance.uuid, guest)
        super()._live_migration_monitor(context, instance, watched, *args)

    def rollback_live_migration_at_source(
        self, context: Any, instance: Any, migrate_data: Any
    ) -> None:
        """Have a server go on where it was, with its disk."""
        stays = False
        if image_of(instance):
            try:
                stays = self._keep(instance)
            except VirtmanError as err:
                LOG.error("server %s did not leave, its disk may have: %s", instance.uuid, err)
        super().rollback_live_migration_at_source(context, instance, migrate_data)
        if stays:
            guest = self._host.get_guest(instance)
            if not guest.is_active():
                guest.launch()

    def _keep(self, instance: Any) -> bool:
        """Have a disk stay; tell whether there is one.

        :raises VirtmanError: if nobody can tell; the server is still on record
        """
        stays = self.live.keep(instance.uuid)
        self.departing.drop(instance.uuid)
        return stays

    def post_live_migration(
        self, context: Any, instance: Any, block_device_info: Any, migrate_data: Any = None
    ) -> None:
        """Forget a guest that has left."""
        if image_of(instance):
            self._undefine_domain(instance)
        super().post_live_migration(context, instance, block_device_info, migrate_data)

    # On the destination.

    def pre_live_migration(
        self,
        context: Any,
        instance: Any,
        block_device_info: Any,
        network_info: Any,
        disk_info: Any,
        migrate_data: Any,
    ) -> Any:
        """Await a guest, and let it go on as soon as its disk has followed it."""
        found = super().pre_live_migration(
            context, instance, block_device_info, network_info, disk_info, migrate_data
        )
        if image_of(instance):
            self._await(instance)
        return found

    def rollback_live_migration_at_destination(
        self, context: Any, instance: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Await a guest no longer; the source may have taken hold of its image for this node."""
        self._arriving.discard(instance.uuid)
        self.disks.doubt()
        super().rollback_live_migration_at_destination(context, instance, *args, **kwargs)

    def post_live_migration_at_destination(
        self, context: Any, instance: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Let a guest go on, before nova looks at it; while the agent is silent, it is awaited."""
        if image_of(instance):
            self._resume(instance)
        super().post_live_migration_at_destination(context, instance, *args, **kwargs)

    def _await(self, instance: Any) -> None:
        self._arriving.add(instance.uuid)
        threading.Thread(target=self._await_guest, args=(instance,), daemon=True).start()

    def _await_guest(self, instance: Any) -> None:
        while instance.uuid in self._arriving:
            try:
                if self.disks.exists(instance.uuid):
                    self._resume(instance)
            except Exception as err:
                LOG.debug("server %s is awaited: %s", instance.uuid, err)
            self.disks.pause(_PAUSE)

    def _resume(self, instance: Any) -> None:
        """Let a guest go on whose disk has come; it is awaited no longer then."""
        if not self.live.await_disk(instance.uuid):
            return
        if instance.vm_state != vm_states.PAUSED:
            with self._resuming:
                guest = self._host.get_guest(instance)
                if guest.get_power_state(self._host) == power_state.PAUSED:
                    guest.resume()
        self._arriving.discard(instance.uuid)
