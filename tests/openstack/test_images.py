"""Servers of a Glance image, and of a volume, in a real cloud."""

import time

from lab.openstack.nodes import GUEST_DISK, KEEP_TIME
from lab.openstack.settings import MADE, SNAPSHOT
from lab.waiting import wait_until
from tests.openstack.base import CloudCase
from tests.openstack.test_refusals import NOBODY
from tests.system.virtman.base import report

NAME = "guest-image"
OF_IMAGE = {"source_type": "image", "volume_size": 1}
WRONG = (
    {"source_type": "image"},
    {"source_type": "volume"},
    OF_IMAGE | {"delete_on_termination": False},
    OF_IMAGE | {"boot_index": 1},
    OF_IMAGE | {"uuid": NOBODY},
)


class TestImages(CloudCase):
    def test_two_servers_of_one_image_share_one_volume(self):
        image = self.guest_as_image(NAME)
        for disk in WRONG:
            answer = self.servers.ask(image, "refused", 2, "virtman", **disk)
            self.assertEqual(400, answer.status_code, (disk, answer.text))
        self.assertEqual(([], []), (self.servers.all(), self.servers.left()))

        began = time.monotonic()
        made = self.boot("web", 2, "--image", NAME)
        active = time.monotonic() - began
        for server in made:
            self.assert_right(server, 1)
        self.assertEqual({"compute1", "compute2"}, {self.servers.show(one).host for one in made})
        # Nodes that found none at the same time made one each; virtman-golden keeps the older.
        wait_until(lambda: len(self.servers.volumes()) == 1, "a single golden volume", 60, 0.5)
        (golden,) = self.servers.volumes()
        self.assertEqual(f"image-{image}-1", golden.name)
        report(f"openstack: 2 servers of an image ACTIVE after {active:.0f} s")

        self.cloud.order("image", "delete", NAME)
        self.servers.order("reboot", made[0], "--hard")
        self.servers.wait(made[:1], "ACTIVE")
        self.assert_right(made[0], 2)

    def test_server_of_a_volume_boots_from_a_snapshot_of_it(self):
        (server,) = self.boot("data-of-web", 1, "--volume", SNAPSHOT)
        self.addCleanup(self.cloud.order, "volume", "snapshot", "delete", "data-of-web")
        self.addCleanup(self.servers.delete, server)
        found = self.cloud.client("volume", "snapshot", "show", "data-of-web")["id"]
        self.assertEqual([f"snapshot-{found}"], [one.name for one in self.servers.volumes()])

    def test_an_agent_gets_an_image_without_cinder_and_lets_it_go(self):
        image = self.guest_as_image(NAME)
        name = f"glance-{image}"
        storage, (node, *_) = self.nodes.storage, self.nodes.computes
        began = time.monotonic()
        node.run(["virtman", "image", "want", name], timeout=300)
        report(f"openstack: an image of Glance known after {time.monotonic() - began:.0f} s")
        self.cloud.order("image", "delete", NAME)
        device = node.run(["virtman", "vm", "create", name, "own"]).stdout.strip()
        size = int(storage.run(["blockdev", "--getsize64", GUEST_DISK]).stdout)
        read = [
            one.run(["sh", "-c", f"head -c {size} {path} | sha256sum"], timeout=600).stdout
            for one, path in ((storage, GUEST_DISK), (node, device))
        ]
        self.assertEqual(*read)
        self.assertEqual([], self.servers.volumes())

        self.nodes.stop(storage, "virtman-images")
        self.nodes.start_images()
        time.sleep(3 * KEEP_TIME)
        self.assertIn(name, self._made())
        node.run(["virtman", "vm", "destroy", "own"])
        wait_until(lambda: name not in self._made(), "the end of the image", 180, 1)
        served = storage.run(["ls", "/sys/kernel/config/target/iscsi"]).stdout
        self.assertNotIn(name, served)

    def _made(self):
        """Return the images that virtman-images has on its disk."""
        return self.nodes.storage.run(["ls", MADE]).stdout.split()
