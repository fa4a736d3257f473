"""What an image that is made known has in common with others that this host serves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

from virtman.coordinator.client import VoltClient
from virtman.coordinator.interface import ImageInfo
from virtman.errors import ImageUnknown, InvalidRequest
from virtman.kept_tree import Hashes, KeptTree
from virtman.model import naming
from virtman.model.basis import OTHERS, Basis, Other, compare, encode, sample
from virtman.model.hashtree import BLOCK

_FRACTION = 20
"""Of an image's blocks one in so many, at least, must be in another that is found by itself."""


def others(
    image: str,
    names: Sequence[str],
    coordinator: VoltClient,
    is_served: Callable[[str], bool],
) -> list[ImageInfo]:
    """Return the images on which one is based: these, and those on which these are.

    A host reads from another image what that one has itself. What that one has from a third, it has
    to read there. So the third one comes first, as long as hosts have it.

    :param is_served: tells whether this host has an image's hash tree
    :raises ImageUnknown: if Volt does not know one of these
    :raises InvalidRequest: if an image would be based on itself, or on too many
    """
    found: dict[str, ImageInfo] = {}
    for name in names:
        if naming.check("image", name) == image:
            raise InvalidRequest(f"image {image} cannot be based on itself")
        info = coordinator.image(name)
        for lower in info.based.images if info.based else ():
            with contextlib.suppress(ImageUnknown):
                if lower != image and is_served(lower) and coordinator.users(lower):
                    found.setdefault(lower, coordinator.image(lower))
        found.setdefault(name, info)
    if len(found) > OTHERS:
        raise InvalidRequest(
            f"image {image} would be based on {', '.join(found)}: {OTHERS} images are the most"
        )
    return list(found.values())


def nearest(
    size: int, kept: KeptTree, served: Iterable[tuple[str, KeptTree]], coordinator: VoltClient
) -> str | None:
    """Return the served image with which one has most in common; None if that is next to nothing.

    :param size: bytes of the one
    :param kept: its hash tree
    :param served: names, and hash trees, of images that this host serves
    """
    with kept.mapped() as leaves:
        mine = sample(leaves, _blocks(size))
    found: tuple[int, str] = (max(1, len(mine) // _FRACTION), "")
    for name, tree in served:
        with contextlib.suppress(ImageUnknown, FileNotFoundError):
            info = coordinator.image(name)
            if info.tree is not None:
                with tree.mapped() as leaves:
                    found = max(found, (len(mine & sample(leaves, _blocks(info.size))), name))
    return found[1] or None


def basis(
    image: str,
    size: int,
    hashes: Hashes | None,
    kept: KeptTree,
    compared: Sequence[tuple[ImageInfo, memoryview]],
    runs: int,
) -> bytes:
    """Return, encoded, what an image has in common with others.

    :param kept: its hash tree, whose root is among the hashes
    :param compared: the others, and their leaves
    :param runs: pieces at most that it may have of them
    :raises InvalidRequest: if one of the images has no hash tree
    """
    for one, tree in ((image, hashes), *((info.name, info.tree) for info, _ in compared)):
        if tree is None:
            raise InvalidRequest(f"image {one} has no hash tree: nothing tells what others share")
    assert hashes is not None
    told = [(leaves, _blocks(info.size)) for info, leaves in compared]
    with kept.mapped() as new:
        found = compare(new, _blocks(size), told, runs)
    named = tuple(Other(info.name, info.tree.root) for info, _ in compared if info.tree)
    return encode(Basis(hashes[0].root, named, found))


def _blocks(size: int) -> int:
    return -(-size // BLOCK)
