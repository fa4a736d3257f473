"""What ``[DEFAULT] compute_driver = virtman.LibvirtDriver`` loads: nova looks here for drivers."""

from virtman.openstack.driver import LibvirtDriver

__all__ = ["LibvirtDriver"]
