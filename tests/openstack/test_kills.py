"""Servers of plain images while something dies: each goes on, or says what became of it."""

import os
import random
from functools import partial

from lab.deployment import leftovers
from lab.openstack.servers import reports_in
from lab.openstack.settings import GLANCE_FILES
from lab.waiting import wait_until
from tests.openstack.base import DriverCase
from tests.system.virtman.base import MIB

SIZE = 384 * MIB  # of an image that takes a while
FILLING = f"{GLANCE_FILES}/filling"


class KillsCase(DriverCase):
    def busy(self, server, task):
        """Wait until Nova does something with a server."""
        wait_until(
            lambda: task in self.servers.show(server).status, f"{task} of {server}", 120, 0.1
        )

    def idle(self, server):
        """Wait until Nova does nothing with a server any more; return its status."""

        def status():
            return self.servers.show(server).status

        wait_until(lambda: len(status().split()) == 1, f"the end of {status()}", 300, 0.5)
        return status()

    def images_named(self, name):
        found = self.cloud.rest.get("image", f"/v2/images?name={name}")["images"]
        for one in found:
            self.addCleanup(self.delete_image, one["id"])
        return found

    def take_image(self, server, name, boots):
        """Have an image made of a server; a server of it boots with what that one wrote."""
        self.servers.order("image create", server, "--name", name)
        wait_until(
            lambda: [one["status"] for one in self.images_named(name)] == ["active"], name, 300, 1
        )
        self.assertEqual("ACTIVE", self.idle(server))
        (image,) = self.images_named(name)
        (again,) = self.boot_plain(image=image["id"], name="again")
        self.assert_right(again, boots)
        self.servers.delete(again)

    def assert_goes_on(self, server):
        """A server has its disk, with what it wrote, whatever Nova says of it."""
        before = self.reports(server)[-1:]
        self.servers.order("reboot", server, "--hard")
        wait_until(lambda: self.servers.show(server).status == "ACTIVE", "it is ACTIVE", 300, 1)
        wait_until(
            lambda: self.reports(server)[-1:] not in ([], before), f"a boot of {server}", 300, 1
        )
        (found,) = self.reports(server)[-1:]
        self.assertTrue(found.ok, found)
        self.assertGreater(int(found.fields["boots"]), 1)

    def reports(self, server):
        return reports_in(self.servers.console(server))


class TestNodeKills(KillsCase):
    def kill(self, node, program):
        self.nodes.stop(node, program)
        if program == "virtman-agent":
            self.nodes.start_agent(node)
        else:
            self.nodes.start_nova(node)

    def test_agent_dies(self):
        (server,) = self.ask("--host", "compute1")
        node = self.cloud.bed.node("compute1")
        wait_until(lambda: leftovers(node), "a first device", 120, 0.1)
        self.kill(node, "virtman-agent")
        self.servers.wait([server], "ACTIVE")
        self.assert_right(server, 1)

        self._image(server, node, "virtman-agent")
        self._move(server, node, "virtman-agent")
        self._move_live(server, "virtman-agent", is_source=True)
        self._move_live(server, "virtman-agent", is_source=False)

        node = self.servers.node(server)
        self.nodes.stop(node, "virtman-agent")
        self.servers.order("delete", server)
        self.nodes.start_agent(node)
        self.servers.wait_nothing_left()

    def test_nova_compute_dies(self):
        (server,) = self.ask("--host", "compute1")
        node = self.cloud.bed.node("compute1")
        wait_until(lambda: leftovers(node), "a first device", 120, 0.1)
        self.kill(node, "nova-compute")
        self.assertIn(self.idle(server), ("ACTIVE", "ERROR"))
        self.servers.delete(server)
        self.servers.wait_nothing_left()

        (server,) = self.boot_plain("--host", "compute1")
        self.assert_right(server, 1)
        self._image(server, node, "nova-compute")
        self._move(server, node, "nova-compute")
        self._move_live(server, "nova-compute", is_source=False)
        self._move_live(server, "nova-compute", is_source=True)

        node = self.servers.node(server)
        self.servers.order("delete", server)
        self.kill(node, "nova-compute")
        self.servers.wait_nothing_left()

    def _image(self, server, node, program):
        """Have an image made while a program dies, and another one after that."""
        self.servers.order("image create", server, "--name", "data-killed")
        self.busy(server, "image_")
        self.kill(node, program)
        self.assertEqual("ACTIVE", self.idle(server))
        self.images_named("data-killed")
        self.take_image(server, "data-after", 2)

    def _move(self, server, node, program):
        """Have a server moved while a program of its node dies; it has its disk after that."""
        self.servers.order("migrate", server)
        self.busy(server, "resize_migrating")
        self.kill(node, program)
        if self.idle(server) == "VERIFY_RESIZE":
            self.act("migration revert", server)
        self.assert_goes_on(server)

    def _move_live(self, server, program, is_source):
        """Have a server moved while a program dies; it is in one place then, with its disk."""
        here = self.servers.node(server)
        (there,) = (one for one in self.nodes.computes if one.name != here.name)
        self.servers.order("migrate", server, "--live-migration")
        wait_until(lambda: leftovers(there), "a disk that arrives", 120, 0.1)
        self.kill(here if is_source else there, program)
        self.idle(server)
        self.assert_goes_on(server)
        self.assertEqual(1, sum(server in self._disks(node) for node in self.nodes.computes))

    def _disks(self, node):
        return node.run(["virtman", "list"]).stdout


class TestImagesKills(KillsCase):
    """What makes images dies, or Glance does, or there is no room: servers wait, or say why not."""

    def setUp(self):
        super().setUp()
        file = self.nodes.storage.share / "long.raw"
        dice = random.Random(3)
        with file.open("wb") as long:
            for _ in range(SIZE // MIB):
                long.write(dice.randbytes(MIB))
        convert = ["qemu-img", "convert", "-O", "qcow2", "/host/long.raw", "/host/long.qcow2"]
        self.nodes.storage.run(convert, timeout=300)
        self.addCleanup(os.unlink, file)
        self.addCleanup(os.unlink, file.with_suffix(".qcow2"))
        self.file = file
        self.long = self.make_image("data-long", file.with_suffix(".qcow2"))

    def making(self):
        """What Volt knows of images that are being made."""
        return self.nodes.deployment.ask("GET", "/v1/imports")["imports"]

    def is_at(self, step):
        return any(step in one["detail"] for one in self.making())

    def assert_whole(self, server):
        """A server's disk begins with its image."""
        self.servers.wait([server], "ACTIVE")
        node = self.servers.node(server)
        device = self.disk(server)["device"]
        self.assertEqual(
            self.nodes.storage.run(["sha256sum", "/host/long.raw"], timeout=300).stdout.split()[0],
            node.run(
                ["sh", "-c", f"head -c {SIZE} {device} | sha256sum"], timeout=600
            ).stdout.split()[0],
        )

    def test_what_makes_images_dies_on_the_way(self):
        (server,) = self.ask(image=self.long, name="long")
        for step in ("downloading", "converting"):
            wait_until(partial(self.is_at, step), step, 120, 0.05)
            self.nodes.stop(self.nodes.storage, "virtman-images")
            self.nodes.start_images()
        self.assert_whole(server)

    def test_glance_dies_on_the_way(self):
        (server,) = self.ask(image=self.long, name="long")
        wait_until(lambda: self.is_at("downloading"), "a download", 120, 0.05)
        self.nodes.stop(self.nodes.storage, "glance")
        wait_until(lambda: self.is_at("waiting for Glance"), "it waits for Glance", 60, 0.2)
        self.nodes.start_glance()
        self.assert_whole(server)

    def test_a_full_disk_is_said(self):
        storage = self.nodes.storage
        free = int(storage.run(["stat", "-f", "-c", "%a", GLANCE_FILES]).stdout)
        block = int(storage.run(["stat", "-f", "-c", "%S", GLANCE_FILES]).stdout)
        self.addCleanup(storage.run, ["rm", "-f", FILLING])
        storage.run(["fallocate", "-l", str(free * block - SIZE // 2), FILLING])
        (server,) = self.ask(image=self.long, name="long")
        self.servers.wait([server], "ERROR")
        self.assertIn("too few", self.servers.show(server).fault)
        self.servers.delete(server)
        storage.run(["rm", FILLING])
        # for a minute, it would be as it was
        self.nodes.deployment.manage("import", "retry", f"glance-{self.long}")
        (server,) = self.ask(image=self.long, name="long")
        self.assert_whole(server)
