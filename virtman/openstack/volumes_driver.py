"""The node's cache group before volumes of Cinder's: where nova's steps meet ``volumes``.

A volume has its cache from when a guest gets it, at an attach or a start, until it is disconnected.
One that is connected for anything else has none: the destination of a live migration would keep
what it reads while the source still writes, and what a volume is swapped for is written anew.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import nova.conf
from nova import exception
from nova.virt import block_device
from nova.virt.libvirt import driver
from oslo_utils import excutils, uuidutils

from virtman.openstack.volumes import Volumes, is_cacheable

CONF = nova.conf.CONF


class VolumesDriver(driver.LibvirtDriver):  # type: ignore[misc]
    """The part of the driver that is about volumes of Cinder's.

    :ivar volumes: of the node
    """

    volumes: Volumes

    def __init__(self, virtapi: Any, read_only: bool = False) -> None:
        super().__init__(virtapi, read_only)
        # Whether this thread gives a guest its volumes.
        self._giving = threading.local()

    def attach_volume(self, *args: Any, **kwargs: Any) -> None:
        """Give a guest a volume, through the cache if that may be."""
        with self._through_the_cache():
            super().attach_volume(*args, **kwargs)

    def _get_guest_storage_config(self, *args: Any, **kwargs: Any) -> Any:
        with self._through_the_cache():
            return super()._get_guest_storage_config(*args, **kwargs)

    def _connect_volume(
        self, context: Any, connection_info: Any, instance: Any, encryption: Any = None
    ) -> None:
        # It may be connected already: a rescue disconnects nothing.
        self._uncache(connection_info)
        super()._connect_volume(context, connection_info, instance, encryption=encryption)
        volume = _id_of(connection_info)
        if not volume or not self._is_to_be_cached(connection_info):
            return
        try:
            self.volumes.connect(connection_info["data"], volume)
        except Exception:
            with excutils.save_and_reraise_exception():
                super()._disconnect_volume(
                    context, connection_info, instance, encryption=encryption
                )

    def _disconnect_volume(
        self, context: Any, connection_info: Any, instance: Any, *args: Any, **kwargs: Any
    ) -> None:
        self._uncache(connection_info)
        super()._disconnect_volume(context, connection_info, instance, *args, **kwargs)

    def extend_volume(
        self, context: Any, connection_info: Any, instance: Any, requested_size: int
    ) -> None:
        """Refuse to have a volume grow below its cache."""
        volume = _id_of(connection_info)
        if volume and self.volumes.is_cached(volume):
            raise exception.VolumeExtendFailed(
                volume_id=volume,
                reason="it is cached by VirtMan: the server sees the new size when it is started "
                "again, or rebooted hard",
            )
        super().extend_volume(context, connection_info, instance, requested_size)

    @contextlib.contextmanager
    def _through_the_cache(self) -> Iterator[None]:
        self._giving.now = True
        try:
            yield
        finally:
            self._giving.now = False

    def _is_to_be_cached(self, connection_info: Any) -> bool:
        return (
            getattr(self._giving, "now", False)
            and CONF.virtman.use_cachegroup
            and is_cacheable(connection_info)
        )

    def _uncache(self, connection_info: Any) -> None:
        """Take away the cache of a volume, whatever the option says by now."""
        volume = _id_of(connection_info)
        if volume:
            self.volumes.disconnect(connection_info["data"], volume)


def _id_of(connection_info: Any) -> str | None:
    found: str = block_device.get_volume_id(connection_info)
    return found if uuidutils.is_uuid_like(found) else None
