"""Servers of one snapshot in a real cloud, by openstackclient: the whole way, and back."""

import json
import time

from lab.openstack.rest import Rest
from lab.waiting import wait_until
from tests.openstack.base import CloudCase
from tests.system.virtman.base import report


class TestServers(CloudCase):
    def test_all_services_are_well(self):
        down = [one for one in self.cloud.status() if one["state"] != "up"]
        self.assertEqual([], down)

    def test_four_servers_of_one_request_share_one_volume(self):
        began = time.monotonic()
        made = self.boot("web", 4)
        active = time.monotonic() - began
        for server in made:
            self.assert_right(server, 1)
        ready = time.monotonic() - began
        self.assertEqual({"compute1", "compute2"}, {self.servers.show(one).host for one in made})
        # Nodes that found none at the same time made one each; virtman-golden keeps the older.
        wait_until(lambda: len(self.servers.volumes()) == 1, "a single golden volume", 30, 0.5)
        (golden,) = self.servers.volumes()
        self.assertRegex(golden.name, "^snapshot-")
        for rest, status in ((self.cloud.rest, 400), (Rest(self.cloud.bed, "demo", "demo"), 404)):
            answer = rest.ask("DELETE", "block-storage", f"/volumes/{golden.id}")
            self.assertEqual(status, answer.status_code)
        report(f"openstack: 4 servers ACTIVE after {active:.0f} s, ready after {ready:.0f} s")

    def test_private_data_stay_through_boots_and_restarts(self):
        (server,) = self.boot("web", 1)
        node = self.servers.node(server)
        self.assert_right(server, 1)
        self._stop_and_start(server)
        self.assert_right(server, 2)
        for boots, options in ((3, ["--soft"]), (4, ["--hard"])):
            self.servers.order("reboot", server, *options)
            self.servers.wait([server], "ACTIVE")
            self.assert_right(server, boots)
        self.nodes.stop(node, "nova-compute")
        self.nodes.start_nova(node)
        self.nodes.stop(node, "virtman-agent")
        self.nodes.start_agent(node)
        self._wait_up(node)
        self._stop_and_start(server)
        self.assert_right(server, 5)

    def test_private_data_stay_through_a_power_cut_of_the_node(self):
        (server,) = self.boot("web", 1)
        node = self.servers.node(server)
        self.assert_right(server, 1)
        node.restart()
        self.nodes.start_compute(node)
        self._wait_up(node)
        self.servers.wait([server], "SHUTOFF")
        self.servers.order("start", server)
        self.servers.wait([server], "ACTIVE")
        self.assert_right(server, 2)

    def test_volume_goes_through_the_cache_from_one_server_to_another(self):
        first, second = self.boot("web", 2)
        for server in (first, second):
            self.assert_right(server, 1)
        self.cloud.order("volume", "create", "--size", "1", "--type", "lvm", "data")
        volume = self.cloud.client("volume", "show", "data")["id"]
        self._wait_volume(volume, "available")
        device = self._attach(first, volume)
        self._write(first, volume, 171)
        for _ in range(3):
            self.assertEqual({171}, self._read(first, device))
        # The kernel adds them up only every 38 seconds.
        wait_until(lambda: self._cached(first)[0]["cache"]["hits"], "hits of the cache", 60, 1)
        self._detach(first, volume)
        device = self._attach(second, volume)
        self.assertEqual({171}, self._read(second, device))
        self._write(second, volume, 172)
        self.assertEqual({172}, self._read(second, device))
        self._detach(second, volume)
        device = self._attach(first, volume)
        self.assertEqual({172}, self._read(first, device))
        self._detach(first, volume)

    def _stop_and_start(self, server):
        for verb, status in (("stop", "SHUTOFF"), ("start", "ACTIVE")):
            self.servers.order(verb, server)
            self.servers.wait([server], status)

    def _wait_up(self, node):
        """Wait until Nova hears from a node's service that was started just now."""
        path = f"/os-services?host={node.name}"

        def seen():
            (found,) = self.cloud.rest.get("compute", path)["services"]
            return found["updated_at"]

        before = seen()
        wait_until(lambda: seen() != before, f"a word of nova-compute on {node.name}", 120, 1)

    def _attach(self, server, volume):
        """Attach a volume; return the path that the guest's disk has on its node."""
        self.cloud.order("server", "add", "volume", server, volume)
        self._wait_volume(volume, "in-use")
        (cached,) = self._cached(server)
        disks = self.servers.node(server).run(["virsh", "domblklist", server]).stdout
        self.assertIn(cached["device"], disks)
        return cached["device"]

    def _detach(self, server, volume):
        self.cloud.order("server", "remove", "volume", server, volume)
        self._wait_volume(volume, "available")
        self.assertEqual([], self._cached(server))

    def _wait_volume(self, volume, status):
        path = f"/volumes/{volume}"
        wait_until(
            lambda: self.cloud.rest.get("block-storage", path)["volume"]["status"] == status,
            f"volume {volume} to be {status}",
            120,
            0.5,
        )

    def _cached(self, server):
        done = self.servers.node(server).run(["virtman", "cache", "list", "--json"])
        return json.loads(done.stdout)

    def _write(self, server, volume, byte):
        """Write as the guest's disk does: through QEMU, and what is below it."""
        disk = f"/machine/peripheral/ua-{volume}/virtio-backend"
        words = f'qemu-io -d {disk} "write -P {byte} 0 1M"'
        command = ["virsh", "qemu-monitor-command", "--hmp", server, words]
        self.assertEqual("", self.servers.node(server).run(command).stdout.strip())

    def _read(self, server, device):
        """Return which bytes the first MiB has, past the page cache."""
        words = ["dd", f"if={device}", "bs=1M", "count=1", "iflag=direct", "status=none"]
        return set(self.servers.node(server).run(words).stdout_bytes)
