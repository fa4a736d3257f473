"""What tests of the cloud stand on: one bed with OpenStack for all of them."""

import atexit
import functools
import json
import os
import subprocess
import sys

import testtools

from lab.openstack.bed import OpenStack
from lab.openstack.servers import Servers
from lab.openstack.settings import Nova
from lab.waiting import wait_until

PLAIN = "guest"
LONGER = "guest.longer"
# These have disks that are files, too.
FILES = "guest.files"
LONGER_FILES = "guest.files.longer"
FLAVORS = {
    LONGER: ("--disk", "2"),
    FILES: ("--disk", "1", "--ephemeral", "1", "--swap", "64"),
    LONGER_FILES: ("--disk", "2", "--ephemeral", "1", "--swap", "64"),
}
# Since when a server needs no network.
VERSION = ("--os-compute-api-version", "2.79")


@functools.cache
def cloud():
    """Return the cloud of all tests of this process, started for the first one.

    VIRTMAN_OPENSTACK names a bed that is up already, and stays up.
    """
    name = os.environ.get("VIRTMAN_OPENSTACK")
    made = OpenStack(name or f"test-openstack-{os.getpid()}")
    if not name:
        # A process that ends starts no more threads: another one takes the bed down.
        down = [sys.executable, "-m", "lab", "openstack", "down", "--name", made.bed.name]
        atexit.register(subprocess.run, down, check=True)
        made.up()
    return made


class CloudCase(testtools.TestCase):
    """Each test gives back what it took.

    :cvar nova: which Nova the cloud runs

    The logs of one that failed are in lab.openstack.bed.LOGS.
    """

    nova = Nova.PATCHED

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cloud = cloud()
        if cls.cloud.settings.nova is not cls.nova:
            cls.cloud.switch(cls.nova)
        cls.servers = Servers(cls.cloud)
        cls.nodes = cls.cloud.nodes

    def setUp(self):
        super().setUp()
        self.addOnException(lambda error: self.cloud.keep_logs())
        self.addCleanup(self.give_back)

    def give_back(self):
        """Delete all servers and volumes; then nothing may be left anywhere."""
        self.servers.delete(*(one.id for one in self.servers.all()))
        for volume in self.cloud.client("volume", "list"):
            if volume["Name"].startswith("data"):
                self.cloud.order("volume", "delete", volume["ID"])
        self.servers.wait_nothing_left()
        for node in self.cloud.bed.nodes.values():
            self.assertEqual([], node.kernel_faults())

    def boot(self, name, count, *source):
        """Boot servers by VirtMan; return their ids once they are active.

        :param source: options that say what they are made of; the snapshot if none
        """
        made = self.servers.boot(name, count, *([source] if source else []))
        self.servers.wait(made, "ACTIVE")
        return made

    def assert_right(self, server, boots):
        """Wait for a boot; the guest must have found all of its disk as it should be."""
        report = self.servers.report(server, boots)
        self.assertTrue(report.ok, report)
        return report

    def disk(self, server):
        """Return what the agent of a server's node says of its disk."""
        found = self.servers.node(server).run(["virtman", "vm", "show", "--json", server])
        return json.loads(found.stdout)

    def guest_as_image(self, name):
        """Give Glance the guest's disk; return the image's id."""
        return self._given_back(self.servers.guest_as_image(name))

    def make_image(self, name, file):
        """Give Glance a file, which it is told is qcow2; return the image's id."""
        return self._given_back(self.servers.make_image(name, file))

    def _given_back(self, image):
        self.addCleanup(self.delete_image, image)
        return image

    def delete_image(self, image):
        """Delete an image of Glance's, if it is there."""
        self.cloud.rest.ask("DELETE", "image", f"/v2/images/{image}")


class DriverCase(CloudCase):
    """Servers of plain images by VirtMan's driver, with Nova as it was released."""

    nova = Nova.DRIVER

    def setUp(self):
        super().setUp()
        for flavor, sizes in FLAVORS.items():
            size = ("--ram", "96", "--vcpus", "1", *sizes)
            self.cloud.client("flavor", "create", flavor, *size)
            self.addCleanup(self.cloud.order, "flavor", "delete", flavor)
        self.image = self.guest_as_image("plain-image")

    def ask(self, *options, count=1, flavor=PLAIN, image="", name="plain"):
        """Have servers made, of the guest's image if no other; return their ids."""
        known = {one.id for one in self.servers.all()}
        source = image or self.image
        where = ["--image", source, "--flavor", flavor, "--nic", "none", *options]
        many = ["--min", str(count), "--max", str(count)]
        self.cloud.client(*VERSION, "server", "create", *where, *many, name)
        return [one.id for one in self.servers.all() if one.id not in known]

    def boot_plain(self, *options, **more):
        """Have servers made; return their ids once they are active."""
        made = self.ask(*options, **more)
        self.servers.wait(made, "ACTIVE")
        return made

    def act(self, verb, server, *options, status="ACTIVE"):
        """Have something done to a server, and wait until it is done."""
        self.servers.order(verb, server, *options)
        self.servers.wait([server], status)

    def host(self, server):
        return self.servers.show(server).host

    def migrate_live(self, server):
        (other,) = {"compute1", "compute2"} - {self.host(server)}
        self.servers.order("migrate", server, "--live-migration")
        self.wait_host(server, other)

    def wait_host(self, server, host):
        """Wait until a server is on a node, and active."""
        wait_until(lambda: self.host(server) == host, f"server {server} on {host}", 300, 1)
        self.servers.wait([server], "ACTIVE")
