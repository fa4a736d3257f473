"""From a snapshot to a server's disk and back: all but nova and Cinder are real."""

from pathlib import Path
from random import Random

import fixtures

from tests.functional.virtman.api.test_client import ServedCase
from tests.functional.virtman.base import FOREVER
from tests.functional.virtman.doubles.kernel import Kernel
from tests.functional.virtman.doubles.process import Process
from tests.functional.virtman.openstack.doubles import FakeCinderClient, FakeTime
from virtman import source
from virtman.api.client import Client
from virtman.errors import ImageUnknown, NoSpace
from virtman.openstack.cinder import Cinder
from virtman.openstack.disks import DiskLost, Disks
from virtman.openstack.golden import Goldens, holder_of
from virtman.openstack.keeper import Keeper
from virtman.openstack.serving import Served

IMAGE = "snapshot-0c0ffee0-1111-2222-3333-444455556666"
MIB = 1024 * 1024


class FileInitiator:
    """Reaches the volume as a file."""

    def __init__(self, path):
        self.path = path
        self.connections = 0

    def properties(self):
        return {"initiator": "iqn.storage"}

    def connect(self, connection):
        self.connections = 1
        return str(self.path)

    def disconnect(self, connection):
        self.connections = 0


class OpenStackTest(ServedCase):
    def setUp(self):
        super().setUp()
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        for name, stand_in in (
            ("_SECRETS", folder / "sources"),
            ("_HASHES", folder / "hashes"),
            ("become_privileged", lambda: None),
        ):
            self.useFixture(fixtures.MockPatchObject(source, name, stand_in))
        self.storage = Kernel(self.kernels.network, "storage")
        volume = folder / "volume"
        volume.write_bytes(Random(1).randbytes(2 * MIB))
        self.cinder = FakeCinderClient()
        self.time = FakeTime()
        self.initiator = FileInitiator(volume)
        where = source.Storage("storage", "127.0.0.1", self.bed.source.port)
        access = self.bed.access("operator", self.bed.volt.ground.operator)
        self.keeper = Keeper(
            Cinder(self.cinder),
            Served(where, self.bed.volt.url, access, hashed=True),
            self.initiator,
            "storage",
            100,
            self.time.now,
        )
        self.disks = self.disks_of(self.node, self.client)
        self.time.then = self.tend

    def disks_of(self, node, client=None):
        """What nova-compute has on a node."""
        clock = (self.time.now, self.time.pause)
        goldens = Goldens(lambda: Cinder(self.cinder), "virtman", node.name, 60, *clock)
        return Disks(client or Client(self.serve(node), 10), goldens, 30, 30, *clock)

    def tend(self):
        with Process(self.storage).here():
            self.keeper.tend()

    def test_servers_come_from_one_volume_and_leave_nothing(self):
        paths = [self.disks.create(f"server{number}", IMAGE, 1) for number in range(3)]
        (volume,) = self.cinder.kept.values()
        self.assertEqual(2, len(volume.made))  # of this node, and of the keeper
        (image,) = self.client.images()
        self.assertEqual((IMAGE, 2 * MIB), (image["image"], image["size"]))
        for number, path in enumerate(paths):
            self.assertIn(Path(path).name, self.node.kernel.state()["dm"])
            self.assertEqual(path, self.disks.path(f"server{number}"))

        for number in range(3):
            self.disks.destroy(f"server{number}")
        self.assert_given_back(IMAGE)

    def test_servers_of_an_image_of_glance_come_from_a_volume_of_their_size(self):
        made = {size: f"image-0c0ffee0-1111-2222-3333-444455556666-{size}" for size in (1, 2)}
        for size, image in made.items():
            path = self.disks.create(f"server{size}", image, size)
            self.assertEqual(path, self.disks.path(f"server{size}"))
        self.assertEqual(set(made.values()), {one["image"] for one in self.client.images()})
        self.assertEqual(
            list(made.items()), [(one.described[0], one.name) for one in self.cinder.kept.values()]
        )
        for size in made:
            self.disks.destroy(f"server{size}")
        self.assert_given_back(*made.values())

    def assert_given_back(self, *images):
        """Once a node reads images no more, nothing is left of them anywhere."""
        for image in images:
            self.client.drop(image)
        self.tend()
        self.time.seconds += 101
        self.tend()
        self.assertEqual({}, self.cinder.kept)
        self.assertEqual([], self.storage.state()["targets"])
        self.assertEqual(0, self.initiator.connections)
        self.assert_nothing_is_left(self.node)

    def test_volume_stays_while_the_node_still_reads_the_image(self):
        self.disks.create("server", IMAGE, 1)
        self.disks.destroy("server")
        for _ in range(3):
            self.time.seconds += 101
            self.tend()
        self.assertEqual(1, len(self.cinder.kept))
        self.assertEqual(1, self.initiator.connections)

    def test_storage_node_that_reboots_serves_again(self):
        path = self.disks.create("server", IMAGE, 1)
        self.storage.forget()
        self.keeper._served.clear()
        self.tend()
        self.assertEqual(2, len(self.storage.state()["targets"]))
        self.assertEqual(path, self.disks.path("server"))

    def test_disk_goes_to_another_node_and_back_with_what_was_written(self):
        there = self.bed.node("b", keep=FOREVER)
        for node in (self.node, there):
            node.serve()
        path = self.disks.create("server", IMAGE, 1)
        device = Path(path).name
        disks = {"a": self.disks, "b": self.disks_of(there)}
        self.node.kernel.write(device, 0, "first")
        disks["a"].move("server", "b")
        self.assertRaises(DiskLost, disks["a"].path, "server")
        self.assertEqual(path, disks["b"].path("server"))
        self.assertEqual("first", there.kernel.read(device, 0))
        there.kernel.write(device, 1, "second")
        disks["b"].move("server", "a")
        self.assertEqual(path, disks["a"].path("server"))
        for chunk, text in enumerate(("first", "second")):
            self.assertEqual(text, self.node.kernel.read(device, chunk))
        self.assertEqual(([], 1), (there.records.all(), len(self.node.records.all())))
        (volume,) = self.cinder.kept.values()
        held = {one.server for one in volume.made}
        self.assertEqual((True, False), (holder_of("a") in held, holder_of("b") in held))

    def test_disk_that_the_other_node_has_no_space_for_stays(self):
        there = self.bed.node("b", keep=FOREVER)
        for node in (self.node, there):
            node.serve()
        path = self.disks.create("server", IMAGE, 1)
        self.useFixture(fixtures.MockPatchObject(there.backing, "free", lambda: 0))
        self.assertRaises(NoSpace, self.disks.move, "server", "b")
        self.assertEqual(path, self.disks.path("server"))

    def test_without_a_keeper_nothing_is_left(self):
        self.time.then = lambda: None
        self.assertRaises(ImageUnknown, self.disks.create, "server", IMAGE, 1)
        (volume,) = self.cinder.kept.values()
        self.assertEqual([], volume.made)
        self.assert_nothing_is_left(self.node)
