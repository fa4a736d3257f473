"""Which images of VirtMan's are a project's.

Volt knows no projects, and golden volumes are in that of nova's account. What is a project's is
the snapshot: Cinder lists those that the user may see, and an image is named after its snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_OF_SNAPSHOTS = "snapshot-"


@dataclass(frozen=True)
class Image:
    """An image of a project.

    :ivar id: of the snapshot
    :ivar size: bytes
    :ivar hosts: how many compute nodes read it; which ones is not a tenant's concern
    """

    id: str
    name: str
    size: int
    hosts: int
    created_at: str


def of_project(snapshots: Iterable[Any], images: Iterable[Mapping[str, Any]]) -> list[Image]:
    """Return the images of these snapshots, in their order."""
    known = {image["name"]: image for image in images}
    return [
        Image(one.id, one.name or one.id, image["size"], image["hosts"], image["created_at"])
        for one in snapshots
        if (image := known.get(_OF_SNAPSHOTS + one.id))
    ]
