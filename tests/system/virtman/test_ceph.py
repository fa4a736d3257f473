"""Images of Glance that are in Ceph: a real cluster, the kernel's client; Glance is a stand-in."""

import os
import random
from hashlib import sha256
from itertools import count

import testtools
from testtools.content import text_content

from lab import Bed
from lab.ceph import CONF, Ceph
from lab.deployment import Deployment, leftovers
from lab.network import ADDRESS
from lab.rootfs import TOP
from lab.waiting import wait_until
from tests.functional.virtman.openstack.glance import TOKEN, FakeGlance
from tests.system import places
from tests.system.virtman.base import MIB, at_once

KEEP_TIME = 5
FOLDER = "/var/lib/virtman/glance"
CAPS = ("mon", "profile rbd", "osd", "profile rbd pool=virtman, profile rbd-read-only pool=images")
BUSY = 16


class TestCeph(testtools.TestCase):
    numbers = count(1)  # no two tests have the same image

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(places.taken(2))
        cls.bed = Bed(f"test-ceph-{os.getpid()}", addition=TOP / "lab/images/ceph")
        cls.bed.up()
        cls.addClassCleanup(cls.bed.down)
        cls.deployment = Deployment(cls.bed)
        cls.storage, cls.node, _ = at_once(
            lambda: cls.bed.start_node("storage", "1G"),
            lambda: cls.bed.start_node("node1", "256M"),
            cls.deployment.start_volt,
        )
        cls.ceph = Ceph(cls.storage, secured=True)
        at_once(
            cls.start_cluster,
            lambda: cls.deployment.start_agent(cls.node, {"image": {"keep_time": KEEP_TIME}}),
        )

    @classmethod
    def start_cluster(cls):
        cls.ceph.start()
        for pool in ("images", "virtman"):
            cls.ceph.make_pool(pool)
        cls.ceph.make_user(cls.storage, "virtman", *CAPS)

    def setUp(self):
        super().setUp()
        with self.bed.inside():
            self.glance = self.useFixture(FakeGlance(ADDRESS))
        self.glance.numbers = self.numbers
        # Holes, and an end that is not one of an object.
        some = random.Random(1).randbytes(6 * MIB)
        self.disk = some + bytes(16 * MIB) + some[::-1] + bytes(3 * MIB)
        self.image = self.glance.upload(self.disk)
        self.name = f"glance-{self.image}"
        self.store()
        self.start()
        self.addOnException(lambda _: self.addDetail("virtman-images", text_content(self.log())))
        self.addCleanup(self.give_back)

    def store(self):
        """Have the image where Glance would have it, and have Glance say so."""
        (self.storage.share / "disk").write_bytes(self.disk)
        self.snapshot = f"images/{self.image}@snap"
        self.rbd("import", "--no-progress", "/host/disk", f"images/{self.image}")
        self.rbd("snap", "create", "--no-progress", self.snapshot)
        self.rbd("snap", "protect", self.snapshot)
        url = f"rbd://{self.ceph.fsid}/images/{self.image}/snap"
        self.glance.images[self.image]["direct_url"] = url

    def delete(self):
        """Do as Glance does when an image is deleted; return whether it may be."""
        command = ["rbd", "--conf", CONF, "snap", "unprotect", self.snapshot]
        done = self.storage.run(command, check=False, timeout=300)
        self.assertIn(done.status, (0, BUSY), done.stderr)
        if not done.status:
            self.rbd("snap", "rm", "--no-progress", self.snapshot)
            self.rbd("rm", "--no-progress", f"images/{self.image}")
        return not done.status

    def rbd(self, *words):
        return self.ceph.rbd(self.storage, *words)

    def start(self):
        """Start virtman-images."""
        volt = self.deployment.volt_options(self.storage)
        where = ["--host", "storage", "--ip", self.storage.address, "--keep-time", str(KEEP_TIME)]
        ceph = ["--ceph-pool", "virtman", "--ceph-conf", CONF]
        account = {
            "OS_AUTH_TYPE": "admin_token",
            "OS_ENDPOINT": self.glance.url,
            "OS_TOKEN": TOKEN,
        }
        self.process = self.storage.spawn(
            ["virtman-images", *volt, *where, *ceph], "images.log", account
        )

    def kill(self):
        self.storage.run(["pkill", "-KILL", "-f", "virtman.cmd.images"])

    def log(self):
        return (self.storage.share / "images.log").read_text()

    def served(self, times=1):
        """Wait until the image is served, for the first time or again."""
        said = f"image {self.name} is served"
        wait_until(lambda: self.log().count(said) >= times, said, 300, 1)

    def mapped(self):
        return self.storage.run(["sh", "-c", "ls /sys/bus/rbd/devices 2>/dev/null || true"]).stdout

    def taken(self):
        """Return the bytes that the image's folder takes on the storage node's disk."""
        return (
            int(self.storage.run(["du", "-sk", f"{FOLDER}/{self.name}"]).stdout.split()[0]) * 1024
        )

    def create(self, vm):
        """Create a VM that has the image; return its device."""
        self.node.run(["virtman", "image", "want", self.name], timeout=600)
        self.addCleanup(self.node.run, ["virtman", "vm", "destroy", vm], check=False)
        made = self.node.run(["virtman", "vm", "create", self.name, vm], timeout=300)
        return made.stdout.strip()

    def assert_right(self, device):
        command = ["sh", "-c", f"head -c {len(self.disk)} {device} | sha256sum"]
        found = self.node.run(command, timeout=600).stdout.split()[0]
        self.assertEqual(sha256(self.disk).hexdigest(), found)

    def gone(self):
        """Wait until nothing is left of the image on any host."""
        look = ["ls", f"{FOLDER}/{self.name}"]
        wait_until(
            lambda: self.storage.run(look, check=False).status, "the end of the image", 300, 1
        )
        self.assertEqual("", self.mapped())
        self.assertEqual("", self.rbd("ls", "virtman"))
        targets = ["find", "/sys/kernel/config/target", "-name", "iqn.*"]
        self.assertEqual("", self.storage.run(targets).stdout)

    def give_back(self):
        self.gone()
        self.kill()
        self.assertTrue(self.delete())
        for node in (self.storage, self.node):
            self.assertEqual([], node.kernel_faults())
        self.assertEqual([], leftovers(self.node))

    def test_an_image_is_served_without_a_copy_and_glance_keeps_it(self):
        self.assert_right(self.create("vm1"))
        self.assertEqual(0, self.glance.downloads)
        self.assertEqual(1, len(self.mapped().split()))
        self.assertLess(self.taken(), MIB)
        self.assertFalse(self.delete())

        self.kill()
        self.start()
        self.served(times=2)
        self.assertEqual(1, len(self.mapped().split()))
        self.assertFalse(self.delete())
        self.node.run(["virtman", "vm", "destroy", "vm1"])

    def test_it_is_mapped_again_after_a_power_cut(self):
        device = self.create("vm1")
        self.storage.restart()
        self.assertEqual("", self.mapped())
        self.ceph.restart()
        self.start()
        self.served(times=2)
        self.assert_right(device)
        self.assertEqual(0, self.glance.downloads)
        self.node.run(["virtman", "vm", "destroy", "vm1"])

    def test_what_cannot_be_mapped_is_downloaded(self):
        self.glance.images[self.image]["direct_url"] += "shot"
        self.assert_right(self.create("vm1"))
        self.assertEqual((1, ""), (self.glance.downloads, self.mapped()))
        self.assertIn("downloading it", self.log())
        self.node.run(["virtman", "vm", "destroy", "vm1"])
