"""The releases of nova that the driver was written for: a file each, of digests of methods."""

from virtman.openstack.releases import nova34

RELEASES = {nova34.NAME: nova34.METHODS}
