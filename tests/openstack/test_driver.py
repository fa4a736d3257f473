"""Servers of plain images by VirtMan's driver, in a real cloud whose Nova is as it was released."""

import json
import time

from lab.openstack.nodes import GUEST_DISK
from lab.openstack.settings import GLANCE_FILES
from lab.waiting import wait_until
from tests.openstack.base import FILES, LONGER, LONGER_FILES, DriverCase
from tests.system.virtman.base import report
from virtman.openstack.wanted import name_of

GIB = 1 << 30
CACHING = ("--os-compute-api-version", "2.81")


class TestDriver(DriverCase):
    def test_servers_of_a_plain_image_live_with_their_disks(self):
        began = time.monotonic()
        moving, other = self.boot_plain(count=2)
        report(f"openstack: 2 servers of a new image ACTIVE after {time.monotonic() - began:.0f} s")
        self.cloud.order("image", "delete", self.image)
        for one in (moving, other):
            self.assert_right(one, 1)
        self.assertEqual({"compute1", "compute2"}, {self.host(one) for one in (moving, other)})
        self.assertEqual([], self.servers.volumes())

        self.act("reboot", moving, "--hard")
        self.assert_right(moving, 2)

        first = self.host(moving)
        self.act("resize", moving, "--flavor", LONGER, status="VERIFY_RESIZE")
        self.assertNotEqual(first, self.host(moving))
        self.assert_right(moving, 3)
        self.act("resize confirm", moving)
        self.assertEqual(2 * GIB, self.disk(moving)["size"])

        self.migrate_live(other)
        self.act("reboot", other, "--hard")
        self.assert_right(other, 2)
        self.assertEqual([], self.servers.volumes())

    def test_server_with_further_disks_goes_through_all_operations(self):
        (server,) = self.boot_plain("--config-drive", "true", flavor=FILES)
        self.assert_right(server, 1)
        self.act("pause", server, status="PAUSED")
        self.act("unpause", server)
        self.act("suspend", server, status="SUSPENDED")
        self.act("resume", server)
        self.act("reboot", server, "--soft")
        self.assert_right(server, 2)
        self.act("stop", server, status="SHUTOFF")
        self.act("start", server)
        self.assert_right(server, 3)

        self.act("rescue", server, status="RESCUE")
        self.assertIn("disk.rescue", self._opened(server))
        self.act("unrescue", server)
        self.assert_right(server, 4)

        self.act("resize", server, "--flavor", LONGER_FILES, status="VERIFY_RESIZE")
        self.assert_right(server, 5)
        self.act("resize revert", server)
        self.assert_right(server, 6)

    def test_server_with_further_disks_moves(self):
        (server,) = self.boot_plain("--config-drive", "true", flavor=FILES)
        self.assert_right(server, 1)
        self.act("migrate", server, status="VERIFY_RESIZE")
        self.assert_right(server, 2)
        self.act("migration confirm", server)
        drive = self._config_drive(server)
        self.migrate_live(server)
        self.assertEqual(drive, self._config_drive(server))
        self.act("reboot", server, "--hard")
        self.assert_right(server, 3)

    def test_images_of_a_server_have_what_it_wrote(self):
        (server,) = self.boot_plain()
        self.assert_right(server, 1)
        for verb, more in (
            ("image create", ("--name", "data-of-one")),
            ("backup create", ("--name", "data-of-two", "--type", "daily", "--rotate", "1")),
        ):
            self.servers.order(verb, server, "--wait", *more)
            self.servers.wait([server], "ACTIVE")
        for image in ("data-of-one", "data-of-two"):
            found = self.cloud.client("image", "show", image)
            self.addCleanup(self.delete_image, found["id"])
            self.assertEqual(("active", "qcow2"), (found["status"], found["disk_format"]))
            (again,) = self.boot_plain(image=found["id"], name="again")
            self.assert_right(again, 2)
            self.servers.delete(again)

        self.act("shelve", server, status="SHELVED_OFFLOADED")
        self.act("unshelve", server)
        self.assert_right(server, 2)
        self.act("rebuild", server, "--image", self.image)
        self.assert_right(server, 1)

    def test_server_whose_node_is_lost(self):
        lost, deleted = self.boot_plain("--host", "compute1", count=2)
        for one in (lost, deleted):
            self.assert_right(one, 1)
        first = self.servers.node(lost)
        self.addCleanup(self._have_back, first)
        first.kill()
        wait_until(lambda: self._is_down(first), "a node of which Nova knows that it is down", 180)
        self.servers.delete(deleted)
        self.servers.order("evacuate", lost)
        # Nova leaves an evacuated server off, until its owner has seen to it
        wait_until(lambda: self.host(lost) == "compute2", "an evacuated server", 300, 1)
        self.servers.wait([lost], "SHUTOFF")
        self.act("start", lost)
        self.assert_right(lost, 1)
        self.assertEqual([lost], self._disks("compute2"))
        self._have_back(first)
        wait_until(lambda: self._disks("compute1") == [], "no disk on the node that is back", 180)
        self.act("reboot", lost, "--hard")
        self.assert_right(lost, 2)

    def test_image_that_an_aggregate_caches_is_made_before_its_servers(self):
        self.cloud.order("aggregate", "create", "data-warm")
        self.addCleanup(self.cloud.order, "aggregate", "delete", "data-warm")
        member = ("host", "data-warm", "compute1")
        self.cloud.order("aggregate", "add", *member)
        self.addCleanup(self.cloud.order, "aggregate", "remove", *member)
        self.cloud.order(*CACHING, "aggregate", "cache", "image", "data-warm", self.image)
        made = name_of(self.image)
        wait_until(
            lambda: made in self.cloud.deployment.manage("image", "list"), "the image", 120, 0.5
        )
        self.assertEqual([], self.servers.all())
        (server,) = self.boot_plain("--host", "compute1")
        self.assert_right(server, 1)

    def test_servers_that_opt_out_are_as_ever(self):
        self.cloud.order("image", "set", "--property", "virtman_root_disk=false", self.image)
        (server,) = self.boot_plain()
        self.assert_right(server, 1)
        self.assertEqual([], self._disks(self.host(server)))
        self.assertRegex(self._opened(server), "vda .*/disk\n")
        self.act("resize", server, "--flavor", LONGER, status="VERIFY_RESIZE")
        self.assert_right(server, 2)
        self.act("resize confirm", server)

    def _opened(self, server):
        return self.servers.node(server).run(["virsh", "domblklist", server]).stdout

    def _config_drive(self, server):
        file = self.servers.node(server).share / "instances" / server / "disk.config"
        return file.read_bytes()

    def _disks(self, host):
        found = self.cloud.bed.node(host).run(["virtman", "list", "--json"]).stdout
        return [one["vm"] for one in json.loads(found)]

    def _have_back(self, node):
        if not node.alive():
            node.restart()
            self.nodes.start_compute(node)

    def _is_down(self, node):
        path = f"/os-services?binary=nova-compute&host={node.name}"
        (found,) = self.cloud.rest.get("compute", path)["services"]
        return found["state"] == "down"


class TestRefusedImages(DriverCase):
    """Of images that Glance lets in; it lets in none with a backing file."""

    def test_truncated_image_fails_clearly(self):
        image = self.make(
            "data-truncated",
            ["qemu-img", "convert", "-O", "qcow2", GUEST_DISK, "/host/bad.qcow2"],
            ["truncate", "-s", "1M", "/host/bad.qcow2"],
        )
        (server,) = self.ask(image=image)
        self.assert_fails(server, "not all there")

    def test_image_larger_than_its_flavor_fails_clearly(self):
        command = ["qemu-img", "create", "-f", "qcow2", "/host/bad.qcow2", "2G"]
        (server,) = self.ask(image=self.make("data-large", command))
        self.assert_fails(server, "too small")

    def make(self, name, *commands):
        """Give Glance a file that commands make on the storage node."""
        storage = self.nodes.storage
        for command in commands:
            storage.run(command, timeout=300)
        file = storage.share / "bad.qcow2"
        self.addCleanup(file.unlink)
        return self.make_image(name, file)

    def test_image_that_was_damaged_at_glance_fails_clearly(self):
        damage = f"of={GLANCE_FILES}/store/{self.image}"
        self.nodes.storage.run(["dd", damage, "bs=1", "seek=500000", "conv=notrunc"], input="X")
        (server,) = self.ask()
        self.assert_fails(server, "another sha512")

    def assert_fails(self, server, said):
        """A server ends with an error that says so, and goes."""
        self.servers.wait([server], "ERROR")
        self.assertIn(said, self.servers.show(server).fault)
        self.servers.delete(server)
