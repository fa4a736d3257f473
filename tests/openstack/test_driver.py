"""Servers of plain images by VirtMan, with nova as it was released on the compute nodes."""

import json
import time

from lab.waiting import wait_until
from tests.openstack.base import CloudCase
from tests.system.virtman.base import report

NAME = "plain-image"
LONGER = "guest.longer"
GIB = 1 << 30
# Since when a server needs no network.
VERSION = ("--os-compute-api-version", "2.79")


class TestDriver(CloudCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(self._start_nova, released=False)
        self._start_nova(released=True)
        self.addCleanup(self._delete_all)
        self.image = self.guest_as_image(NAME)
        self.cloud.client(
            *("flavor", "create", LONGER, "--ram", "96", "--disk", "2", "--vcpus", "1")
        )
        self.addCleanup(self.cloud.order, "flavor", "delete", LONGER)

    def test_servers_of_a_plain_image_live_with_their_disks(self):
        began = time.monotonic()
        moving, other = self._boot(2)
        report(f"openstack: 2 servers of a new image ACTIVE after {time.monotonic() - began:.0f} s")
        self.cloud.order("image", "delete", NAME)
        for one in (moving, other):
            self.assert_right(one, 1)
        self.assertEqual({"compute1", "compute2"}, {self._host(one) for one in (moving, other)})
        self.assertEqual([], self.servers.volumes())

        self.servers.order("reboot", moving, "--hard")
        self.servers.wait([moving], "ACTIVE")
        self.assert_right(moving, 2)

        first = self._host(moving)
        self.servers.order("resize", moving, "--flavor", LONGER)
        self.servers.wait([moving], "VERIFY_RESIZE")
        self.assertNotEqual(first, self._host(moving))
        self.assert_right(moving, 3)
        self.servers.order("resize confirm", moving)
        self.servers.wait([moving], "ACTIVE")
        self.assertEqual(2 * GIB, self._size(moving))

        second = self._host(other)
        self.servers.order("migrate", other, "--live-migration")
        wait_until(lambda: self._host(other) != second, "a server that migrates live", 180, 1)
        self.servers.wait([other], "ACTIVE")
        self.servers.order("reboot", other, "--hard")
        self.servers.wait([other], "ACTIVE")
        self.assert_right(other, 2)
        self.assertEqual([], self.servers.volumes())

    def _start_nova(self, *, released):
        """Have nova-compute on all nodes run anew; return once all have reported."""
        before = self._reported()
        for node in self.nodes.computes:
            self.nodes.stop(node, "nova-compute")
            self.nodes.start_nova(node, released=released)
        wait_until(
            lambda: not before & self._reported(), "nova-compute to report on all nodes", 120, 1
        )

    def _reported(self):
        """Return when nova-compute reported on each node."""
        services = self.cloud.rest.get("compute", "/os-services?binary=nova-compute")["services"]
        return {(one["host"], one["updated_at"]) for one in services}

    def _delete_all(self):
        """Delete the servers, as long as nova on their nodes knows their disks."""
        self.servers.delete(*(one.id for one in self.servers.all()))

    def _boot(self, count):
        where = ["--image", NAME, "--flavor", "guest", "--nic", "none"]
        many = ["--min", str(count), "--max", str(count)]
        self.cloud.client(*VERSION, "server", "create", *where, *many, "plain")
        made = [one.id for one in self.servers.all()]
        self.servers.wait(made, "ACTIVE")
        return made

    def _host(self, server):
        return self.servers.show(server).host

    def _size(self, server):
        found = self.servers.node(server).run(["virtman", "vm", "show", "--json", server])
        return json.loads(found.stdout)["size"]
