"""Where the upper levels of an image's hash tree are on this node, and how they come there."""

from __future__ import annotations

from pathlib import Path

from virtman import atomic_file
from virtman.coordinator.interface import Coordinator
from virtman.errors import ImageMismatch
from virtman.model.hashtree import fits
from virtman.model.wanted import Wanted


def file(folder: Path, image: str) -> Path:
    """Return the file of an image.

    :param folder: survives a reboot
    """
    return folder / f"{image}.upper"


def fetch(wanted: Wanted, coordinator: Coordinator) -> None:
    """Have the upper levels in their file, if the image is verified; they come from Volt.

    :raises ImageMismatch: if these are not those of the image's root hash
    """
    if wanted.tree is None or not wanted.verify:
        return
    here = Path(wanted.upper)
    if here.exists() and fits(here.read_bytes(), wanted.size, wanted.tree):
        return
    upper = coordinator.upper_hashes(wanted.image)
    if not fits(upper, wanted.size, wanted.tree):
        raise ImageMismatch(
            f"Volt's upper hashes of image {wanted.image} do not belong to its root hash: "
            "remove the image from Volt and add it again"
        )
    atomic_file.write(here, upper)
