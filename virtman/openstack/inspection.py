"""Whether the file of an image is what Glance says, and may be given to qemu-img.

Whoever uploads an image chooses each of its bytes. A file may be of another format than it is
registered with, and a format may name other files of this host, or servers, which a VM of the image
would read then: a backing file, a data file, extents, a parent. So nothing is probed by qemu-img,
and nothing is converted that is not complete by itself.
"""

from __future__ import annotations

from pathlib import Path

from oslo_utils.imageutils import format_inspector
from oslo_utils.imageutils.format_inspector import FileInspector

from virtman.errors import VirtmanError
from virtman.openstack.glance import Image

RAW = {"raw": frozenset({"raw", "gpt", "iso"}), "iso": frozenset({"iso"})}
"""Formats whose bytes are those of the disk, and what is seen in files of them."""

CONVERTED = {"qcow2": "qcow2", "vhd": "vpc", "vhdx": "vhdx", "vmdk": "vmdk", "vdi": "vdi"}
"""What qemu-img calls the formats that it converts."""

# Metadata of VHDX is looked for in what follows a chunk: it is aligned to no less than this.
_CHUNK = 64 * 1024
_VHD_TYPE = slice(60, 64)
_VHD_DYNAMIC = b"\0\0\0\3"


class ImageUnusable(VirtmanError):
    """The image is wrong, or not one that can be read here; it stays so until it is replaced."""

    code = "virtman.openstack.image"


def check_claims(image: Image, limit: int) -> None:
    """Refuse what Glance's own words rule out, before anything is downloaded.

    :param limit: bytes that the disk may have
    """
    if image.container_format != "bare":
        raise ImageUnusable(
            f"image {image.id} has container format {image.container_format or 'none'}; unpack it, "
            "and upload the disk as bare"
        )
    if image.disk_format not in RAW and image.disk_format not in CONVERTED:
        known = ", ".join((*RAW, *CONVERTED))
        raise ImageUnusable(
            f"image {image.id} has disk format {image.disk_format or 'none'}, which is not one of "
            f"{known}; convert it and upload it again"
        )
    if image.size <= 0:
        raise ImageUnusable(f"image {image.id} is empty; upload it again")
    if image.disk_format in RAW:
        check_size(image, image.size, limit)


def check_size(image: Image, size: int, limit: int) -> None:
    """Refuse a disk that is longer than it may be."""
    if size > limit:
        raise ImageUnusable(
            f"image {image.id} is a disk of {size} bytes, and {limit} are allowed; make it "
            "smaller, or raise the limit"
        )


def inspect(image: Image, file: Path) -> int:
    """Return how long the disk in a file says it is.

    :raises ImageUnusable: if the file is not what Glance says, or reaches for anything outside
    """
    try:
        found = _inspector(image, file)
        found.safety_check()
    except format_inspector.SafetyCheckFailed as err:
        reasons = "; ".join(str(reason) for reason in err.failures.values())
        raise ImageUnusable(
            f"image {image.id} is not safe to use: {reasons}; convert it to a file that is "
            "complete by itself, and upload that"
        ) from err
    except (OSError, ImageUnusable):
        raise
    except Exception as err:
        # The inspectors read what anybody may have written, and fail over it in many ways.
        raise ImageUnusable(
            f"image {image.id} is damaged, or of no known format: {err}; upload it again"
        ) from err
    kind = str(found)
    if kind not in RAW.get(image.disk_format, {image.disk_format}):
        raise ImageUnusable(
            f"image {image.id} is registered as {image.disk_format} but is {kind}; upload it again "
            "with the disk format that it has"
        )
    if image.disk_format in RAW:
        return file.stat().st_size
    # The inspector does not mind these, and qemu-img reads zeros where the parent has data.
    if kind == "vhd" and found.region("header").data[_VHD_TYPE] != _VHD_DYNAMIC:
        raise ImageUnusable(
            f"image {image.id} is no dynamic VHD; merge it with its parent and upload it again"
        )
    # A VMDK of that size is no disk to qemu, but a list of files that are one.
    if found.virtual_size <= 0:
        raise ImageUnusable(f"image {image.id} is a disk of no size; upload it again")
    return found.virtual_size


def _inspector(image: Image, file: Path) -> FileInspector:
    with open(file, "rb") as opened:
        wrapper = format_inspector.InspectWrapper(opened)
        while wrapper.formats is None and wrapper.read(_CHUNK):
            pass
        wrapper.close()
    found = {str(one): one for one in wrapper.formats or ()}
    # Images of CDs that start from a USB stick as well have a partition table in front.
    if found.keys() == {"iso", "gpt"}:
        return found["iso"]
    if len(found) != 1:
        raise ImageUnusable(
            f"image {image.id} is of several formats at once: {', '.join(sorted(found))}; upload "
            "one that is of one"
        )
    return next(iter(found.values()))
