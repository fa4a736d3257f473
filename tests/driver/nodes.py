"""Compute nodes with the driver, and stand-ins for their agents, files and images."""

import importlib.metadata
import itertools
import os
import shutil

import fixtures
from nova import conf, objects
from nova import context as nova_context
from nova.tests.functional.libvirt import base
from nova.virt.libvirt import driver as stock
from nova.virt.libvirt import guest as libvirt_guest
from nova.virt.libvirt import imagebackend
from oslo_utils import units

from tests.functional.virtman.openstack.doubles import FakeAgent
from virtman.errors import VolumeUnknown, VolumeUnusable
from virtman.openstack import options

CONF = conf.CONF
IMAGE = "155d900f-4e14-4e4c-a73d-069cbf4541e6"
OTHER_IMAGE = "a2459075-d96c-40d5-893e-577ff92e721c"
DRIVER = "nova.virt.libvirt.driver.LibvirtDriver"

_ASKED = ("config_drive", "trusted_image_certificates")

# What the fixtures replace, and is tested here.
_REAL = {
    f"{DRIVER}._create_image": stock.LibvirtDriver._create_image,
    "nova.virt.libvirt.imagebackend.Backend.backend": imagebackend.Backend.backend,
}


class Agent(FakeAgent):
    """The agent of a node with images of half a gigabyte, and space for 500 GiB.

    :ivar sent: how far disks are that leave live
    :ivar caches: cached devices by those that they are before
    :ivar refuses: whether nothing gets a cache
    """

    def __init__(self):
        super().__init__()
        self.device = "/dev/mapper/virtman_{image}_vm_{vm}"
        self.length = units.Gi // 2
        self.room = {"free": 505 * units.Gi, "promised": 0}
        self.sent = "ready"
        self.caches = {}
        self.refuses = False

    def attach(self, device):
        self._answer()
        if self.refuses or device in self.caches:
            raise VolumeUnusable(device)
        self.caches[device] = f"/dev/mapper/virtman-volume_{os.path.basename(device)}"
        return {"device": self.caches[device]}

    def detach(self, device):
        self._answer()
        if self.caches.pop(device, None) is None:
            raise VolumeUnknown(device)

    def migrate(self, vm, host, live=False):
        super().migrate(vm, host, live)
        if live:
            self.waits[vm] = self.sent


class Files(fixtures.Fixture):
    """Files of servers, as they come to be on a node.

    :ivar fetched: images that were downloaded
    :ivar converted: of which devices images were made, and in which formats
    :ivar sent: which files went to which hosts
    """

    def setUp(self):
        super().setUp()
        self.fetched = []
        self.converted = []
        self.sent = []
        for name, stand_in in {
            "nova.virt.libvirt.utils.fetch_image": self.fetch,
            "nova.virt.libvirt.utils.fetch_raw_image": self.fetch,
            "nova.virt.libvirt.utils.copy_image": self.copy,
            "nova.virt.images.convert_image": self.convert,
            "nova.virt.disk.api.get_disk_size": os.path.getsize,
            "nova.virt.libvirt.imagebackend.Flat.correct_format": lambda self: None,
            "nova.virt.libvirt.imagebackend.Flat.resize_image": lambda self, size: None,
            "nova.virt.libvirt.imagebackend._update_utime_ignore_eacces": lambda path: None,
            "nova.virt.configdrive.ConfigDriveBuilder.make_drive": lambda self, path: touch(path),
            f"{DRIVER}._create_ephemeral": self.make,
            f"{DRIVER}._create_swap": self.make,
            f"{DRIVER}._is_path_shared_with": lambda self, dest, path: False,
        }.items():
            self.useFixture(fixtures.MonkeyPatch(name, stand_in))
        for name in ("create_dir", "remove_dir"):
            self.useFixture(
                fixtures.MockPatch(f"nova.virt.libvirt.volume.remotefs.RemoteFilesystem.{name}")
            )
        self.useFixture(fixtures.MockPatch("nova.privsep.path.utime"))

    def fetch(self, context, target, image_id, trusted_certs=None):
        self.fetched.append(image_id)
        touch(target, units.Mi)

    def convert(self, source, target, in_format, out_format, run_as_root=False):
        self.converted.append((source, in_format, out_format))
        touch(target)

    def copy(self, src, dest, host=None, **_):
        if host is None:
            shutil.copyfile(src, dest)
        elif not os.path.exists(src):
            raise FileNotFoundError(src)
        else:
            self.sent.append((os.path.basename(src), host))

    @staticmethod
    def make(*args, target=None, **_):
        touch(target)


def touch(path, size=0):
    with open(path, "wb") as file:
        file.truncate(size)


class NodesCase(base.ServersTestBase):
    """Nodes ``a`` and ``b``, once they are started.

    :ivar agents: of the nodes, by name
    :ivar folders: where nova on the nodes keeps what survives a reboot, by name
    """

    api_major_version = "v2.1"
    microversion = "latest"
    ADMIN_API = True
    CAST_AS_CALL = False

    def setUp(self):
        self.folders = {}
        self.agents = {name: Agent() for name in ("a", "b")}
        for agent in self.agents.values():
            agent.peers = self.agents
        self.flags(use_cow_images=False)
        self.flags(images_type="flat", group="libvirt")
        super().setUp()
        options.register(CONF)
        self.flags(instances=-1, cores=-1, ram=-1, group="quota")
        folder = self.useFixture(fixtures.TempDir()).path
        self.flags(snapshots_directory=folder, group="libvirt")
        for name, method in _REAL.items():
            self.useFixture(fixtures.MonkeyPatch(name, method))
        self.files = self.useFixture(Files())
        # The fixtures replace methods that the guard compares; it has tests of its own.
        release = importlib.metadata.version("nova")
        self.useFixture(fixtures.MockPatch("virtman.openstack.guard.check", return_value=release))
        self.useFixture(
            fixtures.MonkeyPatch(
                "virtman.openstack.driver.Client", lambda *_, **__: self.agents[CONF.host]
            )
        )
        self.numbers = itertools.count(1)

    def _setup_compute_service(self):
        self.flags(compute_driver="virtman.LibvirtDriver")

    def start_compute(self, hostname="a", *args, **kwargs):
        folder = self.folders.setdefault(hostname, self.useFixture(fixtures.TempDir()).path)
        self.flags(state_path=folder)
        return super().start_compute(hostname, *args, **kwargs)

    def flavor(self, disk=3, **more):
        # No flavor fills a node.
        sizes = {"vcpu": 1, "memory_mb": 64, "disk": disk, "ephemeral": 0} | more
        return self._create_flavor(name=f"flavor{next(self.numbers)}", **sizes)

    def body(self, **more):
        """Return a request, with ``more`` as the fixture builds it or as the API knows it."""
        asked = {name: more.pop(name) for name in _ASKED if name in more}
        return self._build_server(**{"networks": "none", "image_uuid": IMAGE} | more) | asked

    def boot(self, state="ACTIVE", **more):
        made = self.api.post_server({"server": self.body(**more)})
        return self._wait_for_state_change(made, state)

    def act(self, server, action, body=None, **expected):
        """Have something done with a server, and wait until that is over."""
        self.api.post_server_action(server["id"], {action: body})
        return self._wait_for_server_parameter(
            server, {"OS-EXT-STS:task_state": None} | expected, max_retries=50
        )

    def take_down(self, host):
        """Have a node be down, as the API sees it."""
        self.computes[host].stop()
        service = self.api.get_services(host=host, binary="nova-compute")[0]["id"]
        self.api.put_service(service, {"forced_down": True})

    def places(self, server):
        """Return the nodes that have a disk of a server."""
        return [host for host, agent in self.agents.items() if server["id"] in agent.vms]

    def disk(self, server):
        """Return the one disk of a server."""
        (host,) = self.places(server)
        return self.agents[host].vms[server["id"]]

    def made(self, server):
        """Return how often a disk of a server came into being."""
        return sum(vm == server["id"] for agent in self.agents.values() for vm, *_ in agent.made)

    def guest(self, host, server):
        connection = self.computes[host].driver._host.get_connection()
        return libvirt_guest.Guest(connection.lookupByUUIDString(server["id"]))

    def opened(self, host, server):
        """Return what a guest has as disks, without the folders of files."""
        devices = self.guest(host, server).get_config().devices
        paths = [one.source_path for one in devices if one.root_name == "disk"]
        return {path if path.startswith("/dev/") else os.path.basename(path) for path in paths}

    def instance(self, server):
        return objects.Instance.get_by_uuid(
            nova_context.get_admin_context(), server["id"], expected_attrs=["system_metadata"]
        )

    def mark(self, server):
        return self.instance(server).system_metadata.get("virtman_image")

    def assert_stock(self, host, server):
        """A server is as without VirtMan."""
        self.assertEqual([], self.places(server))
        self.assertIsNone(self.mark(server))
        self.assertIn("disk", self.opened(host, server))
