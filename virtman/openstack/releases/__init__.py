"""The releases of nova that the driver was written for: a file each, with what differs there."""

from collections.abc import Mapping
from typing import Any, Protocol

from virtman.openstack.releases import nova33, nova34


class Release(Protocol):
    """What the driver knows of a release.

    :ivar NAME: its version
    :ivar METHODS: digests of methods, by their names; see ``guard``
    """

    NAME: str
    METHODS: dict[str, str]

    def reverts_with(self, context: Any, instance: Any) -> dict[str, Any]:
        """Return what else ``finish_revert_migration`` takes when a server goes on where it was."""


RELEASES: Mapping[str, Release] = {one.NAME: one for one in (nova33, nova34)}
