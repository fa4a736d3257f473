"""What an image that is made known has in common with others that this host serves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from virtman.coordinator.client import VoltClient
from virtman.coordinator.interface import ImageInfo
from virtman.errors import ImageUnknown, InvalidRequest, SuspendedForeign
from virtman.kept_tree import Hashes, KeptTree
from virtman.model import naming, suspended
from virtman.model.basis import OTHERS, Basis, Other, compare, encode, sample
from virtman.model.hashtree import BLOCK

_FRACTION = 20
"""Of an image's blocks one in so many, at least, must be in another that is found by itself."""


@dataclass(frozen=True)
class New:
    """An image that is made known.

    :ivar size: its bytes
    :ivar kept: its hash tree, which it has if it has hashes
    :ivar project: whose VMs alone may have what is in it; empty if all may
    """

    image: str
    size: int
    kept: KeptTree
    hashes: Hashes | None
    project: str = ""

    def may_have(self, info: ImageInfo) -> bool:
        """Tell whether it may have blocks of another image: memory stays in its project."""
        return suspended.is_for(info.project, self.project)


def others(
    new: New,
    names: Sequence[str],
    coordinator: VoltClient,
    is_served: Callable[[str], bool],
) -> list[ImageInfo]:
    """Return the images on which one is based: these, and those on which these are.

    A host reads from another image what that one has itself. What that one has from a third, it has
    to read there. So the third one comes first, as long as hosts have it, and there is room for it
    beside those that are named. The first of these go before later ones: in a line of versions that
    is the one with nearly all of the blocks.

    :param is_served: tells whether this host has an image's hash tree
    :raises ImageUnknown: if Volt does not know one of these
    :raises InvalidRequest: if an image would be based on itself, or too many are named
    :raises SuspendedForeign: if one has memory of another project
    """
    image = new.image
    if image in names:
        raise InvalidRequest(f"image {image} cannot be based on itself")
    named = {naming.check("image", name): coordinator.image(name) for name in names}
    if len(named) > OTHERS:
        raise InvalidRequest(
            f"image {image} would be based on {', '.join(named)}: {OTHERS} images are the most"
        )
    for name, info in named.items():
        if not new.may_have(info):
            raise SuspendedForeign(
                f"image {image} cannot be based on {name}, which has memory of VMs of project "
                f"{info.project}: others do not read that"
            )
    found: dict[str, ImageInfo] = {}
    free = OTHERS - len(named)
    for name, info in named.items():
        for lower in info.based.images if info.based else ():
            if not free or lower in (image, *named, *found) or not is_served(lower):
                continue
            with contextlib.suppress(ImageUnknown):
                if coordinator.users(lower):
                    found[lower] = coordinator.image(lower)
                    free -= 1
        found[name] = info
    return list(found.values())


def nearest(new: New, served: Mapping[str, KeptTree], coordinator: VoltClient) -> tuple[str, ...]:
    """Return the served image with which one has most in common; none if that is next to nothing.

    One that is based on the image itself is none, nor is one with another project's memory.

    :param served: hash trees, by name, of images that this host serves
    """
    if new.hashes is None:
        return ()
    with new.kept.mapped() as leaves:
        mine = sample(leaves, _blocks(new.size))
    found: tuple[int, str] = (max(1, len(mine) // _FRACTION), "")
    for name, tree in served.items():
        with contextlib.suppress(ImageUnknown, FileNotFoundError), tree.mapped() as leaves:
            info = coordinator.image(name)
            if info.tree is None or not new.may_have(info):
                continue
            if not _lies_on(info, new.image, coordinator):
                found = max(found, (len(mine & sample(leaves, _blocks(info.size))), name))
    return (found[1],) if found[1] else ()


def basis(new: New, compared: Sequence[tuple[ImageInfo, memoryview]], runs: int) -> bytes:
    """Return, encoded, what an image has in common with others.

    :param compared: the others, and their leaves
    :param runs: pieces at most that it may have of them
    :raises InvalidRequest: if one of the images has no hash tree
    """
    trees = {info.name: info.tree for info, _ in compared}
    for one, tree in {new.image: new.hashes, **trees}.items():
        if tree is None:
            raise InvalidRequest(f"image {one} has no hash tree: nothing tells what others share")
    assert new.hashes is not None
    told = [(leaves, _blocks(info.size)) for info, leaves in compared]
    with new.kept.mapped() as leaves:
        found = compare(leaves, _blocks(new.size), told, runs)
    named = tuple(Other(info.name, info.tree.root) for info, _ in compared if info.tree)
    return encode(Basis(new.hashes[0].root, named, found))


def _lies_on(info: ImageInfo, image: str, coordinator: VoltClient) -> bool:
    """Tell whether one image is based on another, or on one that is."""
    seen, ahead = {info.name}, [info]
    while ahead:
        based = ahead.pop().based
        for name in based.images if based else ():
            if name == image:
                return True
            if name not in seen:
                seen.add(name)
                with contextlib.suppress(ImageUnknown):
                    ahead.append(coordinator.image(name))
    return False


def _blocks(size: int) -> int:
    return -(-size // BLOCK)
