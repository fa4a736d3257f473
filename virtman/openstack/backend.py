"""Which disks of servers are VirtMan's, and what nova does with one of them.

Only the disk called ``disk`` can be: swap, ephemeral, config and rescue disks are what ``[libvirt]
images_type`` says, in the folder of their server. Whose a root disk is, is noted in its server's
``system_metadata`` when it is made. That decides ever after, not an option.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any

import nova.conf
from nova import exception
from nova.compute import task_states
from nova.virt import images
from nova.virt.image import model
from nova.virt.libvirt import imagebackend
from nova.virt.libvirt import utils as libvirt_utils
from oslo_utils import strutils

from virtman.errors import ImageUnknown, ImportFailed
from virtman.model import naming
from virtman.openstack import flavors, wanted
from virtman.openstack.cinder import VolumeFailed
from virtman.openstack.disks import Disks

CONF = nova.conf.CONF

MARK = "virtman_image"
"""Key of a server's ``system_metadata``; the value is the image's name."""

ROOT = "disk"

_KIND = "virtman"
_ROLE = "vm"
# Only now an empty disk may come into being; at all other times one that is not there is lost.
_BUILDING = (task_states.SPAWNING, task_states.REBUILD_SPAWNING)


def image_of(instance: Any) -> str | None:
    """Return the image of a server's disk, or None if that is not VirtMan's."""
    return (instance.system_metadata or {}).get(MARK) or None


def source_of(instance: Any) -> str:
    """Return the image that a new disk of a server is made of.

    That is a golden volume for a server by volume type, unless it gets another image of Glance's:
    by a rebuild, or when it was shelved.
    """
    golden = flavors.image_of(instance.flavor)
    if golden and (not instance.image_ref or instance.image_ref in golden):
        return golden
    return wanted.name_of(instance.image_ref)


def is_device(path: object) -> bool:
    """Tell whether a path of a guest's XML, which may have none, is that of a VM's disk."""
    folder, name = os.path.split(str(path))
    device = naming.parse(name)
    return f"{folder}/" == naming.MAPPER and device is not None and device.role == _ROLE


def is_wanted(instance: Any) -> bool:
    """Tell whether a new root disk is to be VirtMan's, as flavor and image say."""
    if flavors.image_of(instance.flavor):
        return True
    image = instance.system_metadata.get("image_virtman_root_disk")
    is_allowed = strutils.bool_from_string(image, default=True)
    return bool(instance.image_ref) and flavors.allows(instance.flavor) and is_allowed


class RootDisk(imagebackend.Image):  # type: ignore[misc]
    """A root disk that is VirtMan's."""

    def __init__(
        self,
        disks: Disks,
        images: wanted.WantedImages,
        instance: Any = None,
        disk_name: str | None = None,
        path: str | None = None,
        disk_info_mapping: Any = None,
    ) -> None:
        image = image_of(instance) or source_of(instance)
        device = path or naming.Device(image, _ROLE, instance.uuid).node
        super().__init__(
            device, "block", "raw", is_block_dev=True, disk_info_mapping=disk_info_mapping
        )
        self.path: str = device
        self.disks = disks
        self.images = images
        self.instance = instance
        self.driver_io = "native"

    def exists(self) -> bool:
        """Tell whether the server has its disk."""
        return self.disks.exists(self.instance.uuid)

    def cache(
        self, fetch_func: Any, filename: str, size: int | None = None, *args: Any, **kwargs: Any
    ) -> None:
        """Make the disk: nothing is downloaded, so there is no file to share, nor a lock."""
        self.create_image(fetch_func, filename, size, *args, **kwargs)

    def create_image(
        self,
        prepare_template: Any,
        base: str,
        size: int | None,
        safe: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Make the disk of a server that is being built; that of another one has to be there.

        :param size: bytes; None for those of the image
        """
        if self.exists():
            if size:
                self.resize_image(size)
            return
        if self.instance.task_state not in _BUILDING:
            raise exception.DiskNotFound(location=self.path)
        image_id, image = kwargs["image_id"], source_of(self.instance)
        self._refuse(image_id, kwargs.get("trusted_certs"))
        try:
            self._create(image, base, size)
        except (ImportFailed, ImageUnknown, VolumeFailed, wanted.ImageLate) as err:
            # Another node would not do better.
            raise exception.ImageUnacceptable(image_id=image_id or image, reason=str(err)) from err

    def resize_image(self, size: int) -> None:
        """Make the disk longer; one that came back by a revert may be longer already."""
        self.disks.grow(self.instance.uuid, size)

    def get_disk_size(self, name: str) -> int:
        """Return the bytes of the disk."""
        return self.disks.size(self.instance.uuid)

    def libvirt_info(self, cache_mode: str, *args: Any, **kwargs: Any) -> Any:
        """Return the disk for the guest's XML; it has to be there.

        The page cache is left out, whatever the file system of other disks can: only so the guest
        may use native I/O, and another node the disk as soon as this one does not.
        """
        self.path = self.disks.path(self.instance.uuid)
        return super().libvirt_info("none", *args, **kwargs)

    def snapshot_extract(
        self,
        target: str,
        out_format: str,
        still: contextlib.AbstractContextManager[None] | None = None,
    ) -> None:
        """Write the disk as of now to a file, while the guest goes on.

        :param still: is entered while that moment is
        """
        with contextlib.ExitStack() as stack:
            with still or contextlib.nullcontext():
                device = stack.enter_context(self.disks.snapshot(self.instance.uuid))
            images.convert_image(device, target, self.driver_format, out_format, run_as_root=True)

    def get_model(self, connection: Any) -> Any:
        """Return where files are injected."""
        return model.LocalBlockImage(self.path)

    def _can_fallocate(self) -> bool:
        return False

    def _refuse(self, image_id: str, trusted_certs: Any) -> None:
        """Refuse what nova does while it downloads, or with a file, and nobody does here."""
        for asked, what in (
            (trusted_certs, "does not check the signatures of images"),
            ((self.disk_info_mapping or {}).get("encrypted"), "does not encrypt root disks"),
        ):
            if asked:
                raise exception.ImageUnacceptable(
                    image_id=image_id,
                    reason=f"VirtMan {what}; choose a flavor with virtman:root_disk=false",
                )

    def _create(self, image: str, base: str, size: int | None) -> None:
        volume = 0
        if wanted.is_of_glance(image):
            length = self.images.size(image)
            self.verify_base_size(base, size, base_size=length)
            size = size or length
        else:
            # The disk is as large as the volume, which may be a little larger than was asked for.
            volume, size = self.instance.flavor.root_gb, None
        self.instance.system_metadata[MARK] = image
        self.instance.save()
        self.path = self.disks.create(self.instance.uuid, image, volume, size=size)


class Backend(imagebackend.Backend):  # type: ignore[misc]
    """Chooses by the server, and only then by the option."""

    def __init__(self, use_cow: bool, disks: Disks, images: wanted.WantedImages) -> None:
        super().__init__(use_cow)
        self.BACKEND[_KIND] = functools.partial(RootDisk, disks, images)

    def by_name(
        self, instance: Any, name: str, image_type: str | None = None, disk_info_mapping: Any = None
    ) -> Any:
        """Return a disk of a server, by its name."""
        if name == ROOT and (image_of(instance) or self._is_new(instance, image_type)):
            image_type = _KIND
        return super().by_name(instance, name, image_type, disk_info_mapping)

    def by_libvirt_path(self, instance: Any, path: str, image_type: str | None = None) -> Any:
        """Return a disk of a server, by its path."""
        return super().by_libvirt_path(instance, path, _KIND if is_device(path) else image_type)

    def _is_new(self, instance: Any, image_type: str | None) -> bool:
        """Tell whether a disk of a server is about to be made, and is to be VirtMan's.

        One that is built again after its node was lost may have kept its disk, on storage that
        all nodes share.
        """
        if instance.task_state not in _BUILDING or not is_wanted(instance):
            return False
        if self.backend(image_type).is_file_in_instance_path():
            folder = libvirt_utils.get_instance_path(instance)
            return not os.path.exists(os.path.join(folder, ROOT))
        return not super().by_name(instance, ROOT, image_type).exists()
