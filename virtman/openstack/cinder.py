"""What VirtMan asks of Cinder, through any client of its API 3.54 or later."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from virtman.errors import VirtmanError

API_VERSION = "3.54"
"""Since when an attachment can say that it only reads, and need no server."""

_GONE = 404


class VolumeFailed(VirtmanError):
    """Cinder could not make a golden volume, or it is not to be had."""

    code = "virtman.openstack.volume"


@dataclass(frozen=True)
class Volume:
    """A volume.

    :ivar holders: ids of the attachments that are complete, by the server or host whose they are
    """

    id: str
    name: str
    status: str
    created_at: str
    metadata: Mapping[str, str]
    holders: Mapping[str, str]


@dataclass(frozen=True)
class Connection:
    """How a host reaches a volume: os-brick's protocol, and what its connector wants to know."""

    protocol: str
    data: Mapping[str, Any]


class Cinder:
    """Volumes of one project.

    :param client: of ``cinderclient.v3``; made anew for each use by nova, kept by others
    """

    def __init__(self, client: Any) -> None:
        self.client = client

    def named(self, name: str) -> Sequence[Volume]:
        """Return the volumes of this name, the oldest first."""
        return self._found({"name": name})

    def marked(self, key: str) -> Sequence[Volume]:
        """Return the volumes that have this key in their metadata, the oldest first."""
        return [one for one in self._found({}) if key in one.metadata]

    def show(self, volume: str) -> Volume:
        """Return one volume."""
        return _volume(self.client.volumes.get(volume))

    def create(
        self,
        name: str,
        size: int,
        kind: str,
        metadata: Mapping[str, str],
        made_of: Mapping[str, str],
    ) -> Volume:
        """Begin to make a volume.

        :param kind: its volume type
        :param made_of: a snapshot or an image, as ``snapshot_id`` or ``imageRef``
        """
        made = self.client.volumes.create(
            size, name=name, volume_type=kind, metadata=dict(metadata), **made_of
        )
        return _volume(made)

    def delete(self, volume: str) -> None:
        """Delete a volume; Cinder refuses while it has an attachment."""
        with _gone_is_fine():
            self.client.volumes.delete(volume)

    def hold(self, volume: str, holder: str) -> None:
        """Keep a volume from being deleted, without reaching it from anywhere."""
        attachment = self.client.attachments.create(volume, None, holder, mode="ro")
        self.client.attachments.complete(attachment["id"])

    def attach(self, volume: str, holder: str, connector: Mapping[str, Any]) -> Connection:
        """Let a host read a volume; this holds it as well.

        :param connector: what os-brick says of the host
        """
        attachment = self.client.attachments.create(volume, dict(connector), holder, mode="ro")
        self.client.attachments.complete(attachment["id"])
        return _connection(attachment["connection_info"])

    def connection(self, attachment: str) -> Connection:
        """Return how a volume is reached by an attachment that was made earlier."""
        return _connection(self.client.attachments.show(attachment).connection_info)

    def reserved(self, volume: str) -> Sequence[str]:
        """Return the ids of attachments that were begun and are not complete."""
        found = self.client.attachments.list(search_opts={"volume_id": volume})
        return [one.id for one in found if one.status == "reserved"]

    def detach(self, attachment: str) -> None:
        """End an attachment of either kind."""
        with _gone_is_fine():
            self.client.attachments.delete(attachment)

    def _found(self, wanted: Mapping[str, str]) -> Sequence[Volume]:
        found = self.client.volumes.list(detailed=True, search_opts=dict(wanted))
        return sorted(map(_volume, found), key=lambda one: (one.created_at, one.id))


@contextlib.contextmanager
def _gone_is_fine() -> Any:
    try:
        yield
    except Exception as err:
        # Every exception of cinderclient has the status under this name.
        if getattr(err, "code", None) != _GONE:
            raise


def _connection(info: Mapping[str, Any]) -> Connection:
    """Take apart what the attachments API gives in one flat object, and drivers in two."""
    data = dict(info)
    return Connection(data.pop("driver_volume_type"), data)


def _volume(found: Any) -> Volume:
    holders = {one["server_id"]: one["attachment_id"] for one in found.attachments}
    return Volume(
        found.id, found.name, found.status, found.created_at, dict(found.metadata), holders
    )
