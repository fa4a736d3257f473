"""Which images of VirtMan's are a project's.

Volt knows no projects, and golden volumes are in that of nova's account. What is a project's is
what an image is made of, and the image's name says that: ``snapshot-<id>``, or
``image-<id>-<GiB>`` of one of Glance's. Cinder and Glance list those that the user may see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MADE_OF = (re.compile("(snapshot)-(.+)"), re.compile("(image)-(.+)-[0-9]+"))


@dataclass(frozen=True)
class Image:
    """An image of a project.

    :ivar id: what Volt calls it
    :ivar kind: of what it is made: a "snapshot" of Cinder's, or an "image" of Glance's
    :ivar source: the id of that
    :ivar size: bytes
    :ivar hosts: how many compute nodes read it; which ones is not a tenant's concern
    """

    id: str
    kind: str
    source: str
    name: str
    size: int
    hosts: int
    created_at: str


def of_project(
    images: Sequence[Mapping[str, Any]], seen: Mapping[str, Callable[[], Iterable[Any]]]
) -> list[Image]:
    """Return the images that are made of what the user may see.

    :param images: all of Volt's
    :param seen: lists what there is of each kind; asked only if an image is of that kind
    """
    made_of = {image["name"]: of for image in images if (of := _made_of(image["name"]))}
    kinds = sorted({kind for kind, _ in made_of.values()})
    names = {(kind, one.id): one.name or one.id for kind in kinds for one in seen[kind]()}
    return [
        Image(image["name"], *of, names[of], image["size"], image["hosts"], image["created_at"])
        for image in images
        if (of := made_of.get(image["name"])) in names
    ]


def _made_of(name: str) -> tuple[str, str] | None:
    """Return kind and id."""
    found = next(filter(None, (pattern.fullmatch(name) for pattern in _MADE_OF)), None)
    return found and (found[1], found[2])
