"""Servers that go to another node and back: their private data go along, and nothing stays."""

import json

from lab.deployment import leftovers
from lab.waiting import wait_until
from tests.openstack.base import CloudCase

MIB = 1024


class TestColdMoves(CloudCase):
    def setUp(self):
        super().setUp()
        (self.server,) = self.boot("web", 1)
        self.assert_right(self.server, 1)
        self.first = self.servers.node(self.server)
        (self.second,) = {node.name for node in self.nodes.computes} - {self.first.name}
        self.second = self.cloud.bed.node(self.second)

    def test_migration_and_resize_take_the_private_data_along(self):
        self.servers.order("migrate", self.server)
        self._assert_is_on(self.second, "VERIFY_RESIZE", 2)
        self.servers.order("migration confirm", self.server)
        self._assert_is_on(self.second, "ACTIVE", 2)
        self._assert_nothing_on(self.first)
        self.servers.order("resize", self.server, "--flavor", "guest.large")
        self._assert_is_on(self.first, "VERIFY_RESIZE", 3)
        self.servers.order("resize confirm", self.server)
        self._assert_is_on(self.first, "ACTIVE", 3)
        self.assertEqual(128, self._memory())
        self._assert_nothing_on(self.second)

    def test_revert_brings_back_what_was_written_since(self):
        self.servers.order("resize", self.server, "--flavor", "guest.large")
        self._assert_is_on(self.second, "VERIFY_RESIZE", 2)
        self.assertEqual(128, self._memory())
        self.servers.order("resize revert", self.server)
        self._assert_is_on(self.first, "ACTIVE", 3)
        self.assertEqual(96, self._memory())
        self._assert_nothing_on(self.second)

    def test_stopped_server_moves_too(self):
        self.servers.order("stop", self.server)
        self.servers.wait([self.server], "SHUTOFF")
        self.servers.order("migrate", self.server)
        self.servers.wait([self.server], "VERIFY_RESIZE")
        self.servers.order("migration confirm", self.server)
        self.servers.wait([self.server], "SHUTOFF")
        self._assert_nothing_on(self.first)
        self.servers.order("start", self.server)
        self._assert_is_on(self.second, "ACTIVE", 2)

    def _assert_is_on(self, node, status, boots):
        """The server and its disk are on a node, and the guest is at this boot of its."""
        self.servers.wait([self.server], status)
        self.assertEqual(node.name, self.servers.node(self.server).name)
        self.assert_right(self.server, boots)
        owners = {one.name: self._disks(one) for one in (self.first, self.second)}
        (other,) = set(owners) - {node.name}
        self.assertEqual({node.name: [self.server], other: []}, owners)

    def _assert_nothing_on(self, node):
        """Nothing is on a node of the server that has left it, nor of its image."""
        wait_until(lambda: not leftovers(node), f"{node.name} to let go", 60, 1)
        self.assertEqual([], list((node.share / "instances").glob(f"{self.server}*")))
        self.assertEqual("", node.run(["virsh", "list", "--all", "--name"]).stdout.strip())

    def _disks(self, node):
        found = json.loads(node.run(["virtman", "list", "--json"]).stdout)
        return [one["vm"] for one in found]

    def _memory(self):
        """Return how many MiB libvirt gives the guest."""
        node = self.servers.node(self.server)
        said = node.run(["virsh", "dominfo", self.server]).stdout
        (line,) = [one for one in said.splitlines() if one.startswith("Max memory")]
        return int(line.split()[2]) // MIB
