"""What the keeper does on its host: os-brick below, and a source of VirtMan above."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from virtman import source
from virtman.coordinator.auth import Access
from virtman.coordinator.client import VoltClient
from virtman.coordinator.interface import Shape
from virtman.errors import ImageUnknown
from virtman.kept_tree import KeptTree
from virtman.openstack.cinder import Connection
from virtman.source import Storage

_TIMEOUT = 30.0


class Served:
    """Images that this host serves; Volt knows them.

    :param hashed: whether each image is read for a hash tree before it can be used
    """

    def __init__(self, where: Storage, volt: str, access: Access, *, hashed: bool) -> None:
        self.where = where
        self.volt = volt
        self.access = access
        self.hashed = hashed

    def add(
        self,
        image: str,
        path: str,
        told: Callable[[str, int, int], None] = lambda *_: None,
        kept: KeptTree | None = None,
        beside: Mapping[str, KeptTree] | None = None,
    ) -> None:
        """Serve a file or block device, and tell Volt; repeatable.

        An image that Volt does not know is based on the one with which it has most in common.

        :param told: is told how far it is: a step, and how many bytes of how many are done of it
        :param kept: its kept tree; the source has one if this is none
        :param beside: kept trees of others that are served here, by name, but for the source's own
        """
        hashed = 0

        def progress(more: int, size: int) -> None:
            nonlocal hashed
            hashed += more
            told("hashing", hashed, size)

        source.add(
            *(image, path, self.where, self.volt, self.access, Shape()),
            hashed=self.hashed,
            kept=kept,
            base=source.Base(is_found=True, beside=beside or {}) if self._is_new(image) else None,
            progress=progress,
        )

    def _is_new(self, image: str) -> bool:
        """Tell whether Volt does not know an image; what it knows of one stays as it is."""
        try:
            VoltClient(self.volt, self.where.host, _TIMEOUT, self.access).image(image)
        except ImageUnknown:
            return True
        return False

    def remove(self, image: str) -> None:
        """Make Volt forget an image, which it refuses while hosts use it; then stop serving."""
        with contextlib.suppress(ImageUnknown):
            source.remove(image, self.where.host, self.volt, self.access)


class Brick:
    """Volumes of Cinder as local devices, by os-brick in this process, which is root.

    :param ip: by which storage reaches this host
    :param locks: folder of the locks that all users of os-brick on this host should share
    """

    def __init__(self, host: str, ip: str, locks: str, *, multipath: bool) -> None:
        # Only the keeper needs os-brick: it comes with the extra "openstack".
        import os_brick  # noqa: PLC0415
        from os_brick.initiator import connector  # noqa: PLC0415
        from os_brick.privileged import default  # noqa: PLC0415
        from oslo_concurrency import lockutils  # noqa: PLC0415
        from oslo_config import cfg  # noqa: PLC0415

        cfg.CONF([], project="virtman-golden", default_config_files=[])
        lockutils.set_defaults(locks)
        os_brick.setup(cfg.CONF)
        default.set_client_mode(False)
        self.connector = connector
        self.host = host
        self.ip = ip
        self.multipath = multipath

    def properties(self) -> Mapping[str, Any]:
        """Return what Cinder must know of this host."""
        found: Mapping[str, Any] = self.connector.get_connector_properties(
            "", self.ip, self.multipath, False, host=self.host
        )
        return found

    def connect(self, connection: Connection) -> str:
        """Return the path of a volume's device."""
        return str(self._protocol(connection).connect_volume(dict(connection.data))["path"])

    def disconnect(self, connection: Connection) -> None:
        """Let go of the device."""
        self._protocol(connection).disconnect_volume(dict(connection.data), None, force=True)

    def _protocol(self, connection: Connection) -> Any:
        return self.connector.InitiatorConnector.factory(
            connection.protocol.upper(), "", use_multipath=self.multipath, do_local_attach=True
        )
