"""Nova's own unit tests of what the driver extends, with our classes in the place of nova's.

``exclusions.txt`` names those that cannot pass, and says why.
"""

import importlib.metadata

from nova import objects
from nova.virt import libvirt
from nova.virt.libvirt import driver as stock
from nova.virt.libvirt import imagebackend
from oslo_utils import units

from tests.functional.virtman.openstack.doubles import FakeAgent
from virtman.openstack import backend, guard

RELEASE = importlib.metadata.version("nova")
NAMES = (
    "nova.tests.unit.virt.libvirt.test_driver",
    "nova.tests.unit.virt.libvirt.test_imagebackend",
    "nova.tests.unit.compute.test_compute",
    "nova.tests.unit.compute.test_compute_mgr",
)


class Backend(backend.Backend):
    """Ours, made as nova makes its own."""

    def __init__(self, use_cow, disks=None, images=None):
        super().__init__(use_cow, disks, images)


def agent():
    """Return the agent of a node that has space."""
    made = FakeAgent()
    made.room = {"free": 10 * units.Gi, "promised": 0}
    return made


def image_of(instance):
    """Return the image of a server's disk; stand-ins for servers have none."""
    is_server = isinstance(instance, objects.Instance) and "system_metadata" in instance
    return _image_of(instance) if is_server else None


# Before anybody imports them by name.
_image_of, backend.image_of = backend.image_of, image_of
imagebackend.Backend = backend.Backend = Backend
# The tests replace methods that it compares; it has tests of its own.
guard.check = lambda *_: RELEASE

from virtman.openstack import driver  # noqa: E402

driver.Client = lambda *_, **__: agent()
# These ask the database, which most of nova's tests do not have; they have tests of their own.
driver.older.adopt = driver.LibvirtDriver.take_up = lambda *_: None
# What tests replace for a while must be the class's own, or it is bound when it comes back.
for name, method in vars(stock.LibvirtDriver).items():
    if isinstance(method, staticmethod) and name not in vars(driver.LibvirtDriver):
        setattr(driver.LibvirtDriver, name, method)
stock.LibvirtDriver = libvirt.LibvirtDriver = driver.LibvirtDriver


def load_tests(loader, tests, pattern):
    """Return nova's tests, by their own names."""
    return loader.loadTestsFromNames(NAMES)
