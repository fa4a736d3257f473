"""Servers by volume type of when nova-compute was patched: they become like those of today.

Their root disks were volumes to nova, which no volume service knew, and were counted in a resource
class of their own. The disks are what they are today, and so is the mark in ``system_metadata``.
Only what nova has of such a server is changed, when nova-compute starts: it need not be stopped.
"""

from __future__ import annotations

import logging
from typing import Any

from nova import objects
from oslo_serialization import jsonutils

from virtman.openstack import backend, flavors, wanted

LOG = logging.getLogger(__name__)

RESOURCE_CLASS = "CUSTOM_VIRTMAN_GB"

_DISK_GB = "DISK_GB"
_DRIVER = "virtman"


def adopt(context: Any, host: str) -> None:
    """Give the older servers of a node local root disks. Repeatable, whatever interrupts it."""
    attributes = ["system_metadata", "flavor"]
    found = objects.InstanceList.get_by_host(context, host, expected_attrs=attributes)
    servers = {one.uuid: one for one in found if _may_be_older(one)}
    if not servers:
        return
    bdms = objects.BlockDeviceMappingList.bdms_by_instance_uuid(context, list(servers))
    for server, instance in servers.items():
        for bdm in filter(_is_older, bdms.get(server, ())):
            _adopt(instance, bdm)
            LOG.info("the root disk of server %s is a local one now", server)


def reshape(inventory: dict[str, Any], node: str, allocations: Any) -> None:
    """Have what servers of a node have in the class of before be theirs in DISK_GB.

    :param inventory: of the node; there is as much as the servers have, whatever is counted later
    :param node: its UUID
    :param allocations: as nova has them from Placement; they are changed
    """
    taken = 0
    for one in allocations.values():
        resources = one["allocations"].get(node, {}).get("resources", {})
        size = resources.get(_DISK_GB, 0) + resources.pop(RESOURCE_CLASS, 0)
        if size:
            resources[_DISK_GB] = size
        taken += size
    disk = inventory.setdefault(_DISK_GB, {"total": 0, "reserved": 0, "max_unit": 0})
    disk["total"] = max(disk["total"], taken + disk["reserved"])
    disk["max_unit"] = max(disk["max_unit"], disk["total"])


def _may_be_older(instance: Any) -> bool:
    image = backend.image_of(instance)
    return image is not None and not wanted.is_of_glance(image)


def _is_older(bdm: Any) -> bool:
    """Tell whether a disk is a volume of which VirtMan alone knows."""
    info = jsonutils.loads(bdm.connection_info or "{}")
    return isinstance(info, dict) and info.get("driver_volume_type") == _DRIVER


def _adopt(instance: Any, bdm: Any) -> None:
    image = backend.image_of(instance) or ""
    for name in ("flavor", "old_flavor", "new_flavor"):
        if getattr(instance, name):
            flavor = flavors.of_server(getattr(instance, name), image, bdm.volume_size)
            setattr(instance, name, flavor)
    instance.save()
    # Last: by this it is known that all is done.
    bdm.source_type, bdm.destination_type = "image", "local"
    bdm.image_id = bdm.snapshot_id = bdm.volume_type = bdm.volume_size = None
    bdm.connection_info = None
    bdm.save()
