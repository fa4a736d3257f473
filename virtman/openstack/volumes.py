"""Ordinary volumes of a compute node's servers, before which nova puts the node's cache group.

It is written through: what a server wrote is on the volume, so any other node may go on with it.
What a cache holds is right only as long as nobody writes past it. So it begins empty whenever a
volume is connected, and whoever connects or disconnects one takes away what came before.

Which volume has a cache is written down on the node, by volume, and nowhere else: paths such as
``/dev/sdb`` are another volume's after a reboot, and on another node.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from virtman import atomic_file
from virtman.api.client import Client
from virtman.errors import DeviceBusy, VirtmanError, VolumeUnknown

LOG = logging.getLogger(__name__)

Data = MutableMapping[str, Any]
"""What a connection_info of nova has as its ``data``; ``device_path`` is what the server gets."""


def is_cacheable(info: MutableMapping[str, Any]) -> bool:
    """Tell whether a connected volume may have a cache.

    Not one that others may write to at the same time; nor one that is encrypted, as what decrypts
    it replaces the link to the device; nor one that is only read, as the cache opens it to write.
    """
    data = info["data"]
    return (
        not info.get("multiattach", False)
        and data.get("encrypted") is False  # Cinder always says
        and data.get("access_mode") != "ro"
        and str(data.get("device_path") or "").startswith("/dev/")
    )


class Volumes:
    """The cached volumes of one node.

    :param folder: survives a reboot; has a file for each cached volume, with its path
    """

    def __init__(self, agent: Client, folder: Path) -> None:
        self.agent = agent
        self.folder = folder
        # Guards the files, while more than one of them is looked at.
        self._guard = threading.Lock()

    def connect(self, data: Data, volume: str) -> None:
        """Put an empty cache before a volume that was just connected.

        It goes on without one if the agent cannot be asked, or refuses.

        :param data: gets the path of the cached device
        :raises VirtmanError: if it may have a cache that cannot be taken away
        """
        volume = str(uuid.UUID(volume))
        path = str(data["device_path"])
        self._release(volume)
        try:
            self._detach(path)  # left by another volume that had this path
        except DeviceBusy:
            raise
        except VirtmanError as err:
            LOG.warning("volume %s is not cached: %s", volume, err)
            return
        self._put(volume, path)
        try:
            data["device_path"] = self.agent.attach(path)["device"]
        except VirtmanError as err:
            self._release(volume)
            LOG.warning("volume %s is not cached: %s", volume, err)
        else:
            LOG.info("volume %s is cached: %s", volume, data["device_path"])

    def disconnect(self, data: Data, volume: str) -> None:
        """Take the cache of a volume away, if it has one on this node. Repeatable.

        :param data: gets the volume's own path
        :raises DeviceBusy: while a server uses it; nothing is changed then
        """
        path = self._release(str(uuid.UUID(volume)))
        if path is not None:
            data["device_path"] = path

    def is_cached(self, volume: str) -> bool:
        """Tell whether a volume has a cache on this node."""
        return self._file(str(uuid.UUID(volume))).exists()

    def _release(self, volume: str) -> str | None:
        try:
            path = self._file(volume).read_text()
        except FileNotFoundError:
            return None
        self._detach(path)
        self._file(volume).unlink(missing_ok=True)
        return path

    def _detach(self, path: str) -> None:
        with contextlib.suppress(VolumeUnknown):
            self.agent.detach(path)

    def _put(self, volume: str, path: str) -> None:
        """Write down that a path is this volume's, and so nobody else's any more."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._guard:
            for other in self.folder.iterdir():
                if not atomic_file.is_partial(other) and other.read_text() == path:
                    other.unlink()
            atomic_file.write(self._file(volume), path.encode())

    def _file(self, volume: str) -> Path:
        return self.folder / volume
