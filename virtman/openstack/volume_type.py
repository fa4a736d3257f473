"""Servers by volume type: what nova-api makes of a request for them.

A request chooses VirtMan by the volume type of its root disk. Its servers get no volume, but a root
disk on their node, like those of servers that boot from an image::

    asked for                          what the servers have
    =========                          =====================
    block device mapping               block device mapping
      source_type: snapshot or image     source_type: image
      destination_type: volume           destination_type: local
      volume_type: virtman             flavor (see flavors)
      volume_size                        root_gb
      snapshot_id or image_id            virtman:image

All that comes after that, in nova-api and elsewhere, is nova's own and the driver's. The patch of
``nova_patches`` calls what is here.
"""

from __future__ import annotations

from typing import Any, NoReturn

import nova.conf
from nova import exception, objects
from nova.virt import hardware
from oslo_utils import units, uuidutils

from virtman.openstack import flavors, options

CONF = nova.conf.CONF
options.register(CONF)

_SOURCES = ("snapshot", "image")


def refuse_replaced(bdms: Any) -> None:
    """Refuse root disks that are replaced by those among an image's properties.

    :param bdms: of a request, as dicts
    :raises InvalidBDMFormat: if one would be VirtMan's
    """
    for bdm in bdms:
        if _is_wanted(bdm) and bdm["source_type"] == "image":
            _refuse(
                f"image {bdm['image_id']} is of a server on volumes: boot from the snapshot of its "
                "root disk"
            )


def adopt(api: Any, context: Any, flavor: Any, image_ref: str | None, image: Any, bdms: Any) -> Any:
    """Have the root disk of a request be VirtMan's if it asks for that; else change nothing.

    Cinder or Glance is asked as the user, once a request.

    :param api: nova's compute API
    :param image_ref: id of the image that the request names, apart from disks
    :param image: what nova knows of what is booted, as a dict
    :param bdms: as objects; they are changed
    :returns: the flavor of the request's servers
    :raises InvalidBDMFormat: if the disk cannot be
    """
    asked = [bdm for bdm in bdms if bdm.source_type in _SOURCES and bdm.volume_type]
    kind = CONF.virtman.volume_type
    if any(bdm.volume_type == kind or uuidutils.is_uuid_like(bdm.volume_type) for bdm in asked):
        known = api.volume_api.get_all_volume_types(context)
        for bdm in asked:
            api._check_requested_volume_type(bdm, bdm.volume_type, known)
    booted = objects.ImageMeta.from_dict(image)
    for bdm in filter(_is_wanted, asked):
        _check(bdm)
        if hardware.get_ephemeral_encryption_constraint(flavor, booted):
            _refuse(f"volume type {bdm.volume_type} does not encrypt, as flavor or image demand")
        accept = _accept_image if bdm.source_type == "image" else _accept_snapshot
        flavor = flavors.of_server(flavor, accept(api, context, bdm, image_ref), bdm.volume_size)
        bdm.source_type, bdm.destination_type = "image", "local"
        bdm.image_id = bdm.snapshot_id = bdm.volume_type = bdm.volume_size = None
    return flavor


def kept(old: Any, new: Any) -> Any:
    """Return the flavor that a server gets by a resize: its root disk stays what it is.

    :param old: of the server
    :param new: asked for
    """
    image = flavors.image_of(old)
    return flavors.of_server(new, image, old.root_gb) if image else new


def heal(request_spec: Any, instance: Any) -> None:
    """Have a request for a server's move be about what the server is now.

    It may be of when its root disk was a volume: see ``older``.
    """
    if flavors.image_of(instance.flavor):
        request_spec.flavor = instance.flavor
        request_spec.is_bfv = False


def _is_wanted(bdm: Any) -> bool:
    return (
        bdm.get("source_type") in _SOURCES
        and bdm.get("destination_type") == "volume"
        and bdm.get("volume_type") == CONF.virtman.volume_type
    )


def _check(bdm: Any) -> None:
    """Refuse what is wrong whatever the disk is made of."""
    name = bdm.volume_type
    if not CONF.virtman.use_vmtsnapshot:
        _refuse(f"volume type {name} is not in use: [virtman] use_vmtsnapshot is off")
    if bdm.boot_index != 0:
        _refuse(f"volume type {name} is for root disks: boot_index must be 0")
    if not bdm.delete_on_termination:
        _refuse(
            f"delete_on_termination must be true with volume type {name}: what the server writes "
            "goes with it"
        )
    if bdm.get("encrypted", False):
        _refuse(f"volume type {name} does not encrypt")
    if bdm.disk_bus:
        _refuse(f"with volume type {name} disk_bus is that of the image, hw_disk_bus")


def _accept_snapshot(api: Any, context: Any, bdm: Any, image_ref: str | None) -> str:
    """Return what VirtMan calls the image of a disk, or refuse it."""
    name = bdm.volume_type
    try:
        snapshot = api.volume_api.get_snapshot(context, bdm.snapshot_id)
    except exception.CinderConnectionFailed:
        raise
    except Exception as err:
        raise exception.InvalidBDMSnapshot(id=bdm.snapshot_id) from err
    size = snapshot["size"]
    if image_ref:
        _refuse(f"with volume type {name} and a snapshot imageRef must be empty")
    if snapshot["status"] != "available":
        _refuse(f"snapshot {snapshot['id']} is {snapshot['status']}, not available")
    if (bdm.volume_size or size) != size:
        _refuse(
            f"with volume type {name} a disk is as large as its snapshot: volume_size must be "
            f"{size}"
        )
    metadata = api.volume_api.get_volume_encryption_metadata(context, snapshot["volume_id"])
    if metadata.get("encryption_key_id"):
        _refuse(f"volume type {name} does not encrypt")
    bdm.volume_size = size
    return f"snapshot-{bdm.snapshot_id.lower()}"


def _accept_image(api: Any, context: Any, bdm: Any, image_ref: str | None) -> str:
    """Return what VirtMan calls the image of a disk, or refuse it.

    A Glance image can have volumes of many sizes; its data never change. Nova has looked at the
    image before: whether it is active, and its min_disk.
    """
    name = bdm.volume_type
    try:
        _, image = api._get_image(context, bdm.image_id)
    except Exception as err:
        raise exception.InvalidBDMImage(id=bdm.image_id) from err
    if image_ref and image_ref != bdm.image_id:
        _refuse(f"with volume type {name} imageRef must be empty, or the image of the root disk")
    if not bdm.volume_size:
        _refuse(f"with volume type {name} a disk of an image needs a volume_size")
    if (image.get("size") or 0) > bdm.volume_size * units.Gi:
        _refuse(f"image {bdm.image_id} has {image['size']} bytes: volume_size must be larger")
    if image["properties"].get("cinder_encryption_key_id"):
        _refuse(f"volume type {name} does not encrypt, and image {bdm.image_id} is encrypted")
    return f"image-{bdm.image_id.lower()}-{bdm.volume_size}"


def _refuse(details: str) -> NoReturn:
    raise exception.InvalidBDMFormat(details=details)
