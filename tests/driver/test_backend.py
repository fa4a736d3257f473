"""What nova asks of an image backend, and its own tests of these, with a root disk of VirtMan's."""

import os

from nova import exception, objects, test
from nova.tests.unit import fake_processutils
from nova.tests.unit.virt.libvirt import test_imagebackend as stock
from nova.virt.image import model
from nova.virt.libvirt import blockinfo
from oslo_utils import units, uuidutils

from tests.driver.nodes import IMAGE, OTHER_IMAGE, Agent
from virtman.openstack import backend, wanted
from virtman.openstack.disks import DiskLost, Disks

NAME = f"glance-{IMAGE}"
GOLDEN = "snapshot-0c0ffee0-1111-2222-3333-444455556666"


class DiskCase:
    """A root disk over the agent of a node."""

    def make(self):
        self.agent = Agent()
        self.images = wanted.WantedImages(self.agent, 60)
        self.disks = Disks(self.agent, self.images, 0, 0)
        self.server = uuidutils.generate_uuid()

    def instance(self, task_state="spawning"):
        instance = objects.Instance(
            id=1,
            uuid=self.server,
            image_ref=IMAGE,
            system_metadata={},
            task_state=task_state,
            ephemeral_key_uuid=None,
            flavor=objects.Flavor(extra_specs={}),
        )
        instance.save = lambda: None
        return instance


class StockTest(DiskCase, stock._ImageTestCase, test.NoDBTestCase):
    """Nova's own, but for what it fills with files."""

    SIZE = units.Gi

    def setUp(self):
        self.make()
        super().setUp()
        self.INSTANCE = self.instance()
        self.agent.create(self.server, NAME, size=self.SIZE)

    def image_class(self, instance, name=None, path=None, disk_info_mapping=None):
        return backend.RootDisk(self.disks, self.images, instance, name, path, disk_info_mapping)

    def test_prealloc_image(self):
        stock.CONF.set_override("preallocate_images", "space")
        fake_processutils.fake_execute_clear_log()
        fake_processutils.stub_out_processutils_execute(self)
        self.image_class(self.INSTANCE, self.NAME).cache(None, self.TEMPLATE_PATH, self.SIZE)
        self.assertEqual([], fake_processutils.fake_execute_get_log())

    def test_prealloc_image_without_write_access(self):
        self.test_prealloc_image()

    def test_get_disk_size(self):
        self.assertEqual(self.SIZE, self.image_class(self.INSTANCE, "disk").get_disk_size("any"))


class RootDiskTest(DiskCase, test.NoDBTestCase):
    def setUp(self):
        super().setUp()
        self.make()

    def disk(self, instance, **mapping):
        return backend.RootDisk(
            self.disks, self.images, instance, "disk", disk_info_mapping=mapping or None
        )

    def cache(self, instance, size=units.Gi, trusted_certs=None, **mapping):
        self.disk(instance, **mapping).cache(
            *(None, "name", size), image_id=IMAGE, context=None, trusted_certs=trusted_certs
        )

    def test_it_is_made_while_its_server_is_built_only(self):
        for state in (None, "resize_finish", "rescuing", "reboot_started_hard", "migrating"):
            self.assertRaises(exception.DiskNotFound, self.cache, self.instance(state))
        self.assertEqual([], self.agent.made)
        for state in ("spawning", "rebuild_spawning"):
            instance = self.instance(state)
            self.cache(instance)
            self.assertEqual(NAME, backend.image_of(instance))
            self.disks.destroy(self.server)
        self.assertEqual([(self.server, NAME, units.Gi)] * 2, self.agent.made)

    def test_it_never_gets_shorter(self):
        self.cache(self.instance(), 4 * units.Gi)
        for size in (3 * units.Gi, 5 * units.Gi, None):
            self.cache(self.instance("resize_finish"), size)
        self.assertEqual(5 * units.Gi, self.disks.size(self.server))

    def test_encrypted_one_is_refused(self):
        error = self.assertRaises(
            exception.ImageUnacceptable, self.cache, self.instance(), encrypted=True
        )
        self.assertIn("virtman:root_disk=false", str(error))
        self.assertEqual([], self.agent.made)

    def test_guest_uses_no_page_cache(self):
        self.cache(self.instance())
        info = self.disk(self.instance(), bus="virtio", dev="vda", type="disk").libvirt_info(
            "writeback", {}
        )
        self.assertEqual(
            ("block", "none", "native", "raw"),
            (info.source_type, info.driver_cache, info.driver_io, info.driver_format),
        )
        self.assertEqual(self.agent.vms[self.server]["device"], info.source_path)

    def test_guest_of_a_lost_disk_gets_none(self):
        mapping = {"bus": "virtio", "dev": "vda", "type": "disk"}
        self.assertRaises(
            DiskLost, self.disk(self.instance(None), **mapping).libvirt_info, "none", {}
        )

    def test_files_are_injected_into_the_device(self):
        self.cache(self.instance())
        found = self.disk(self.instance()).get_model(None)
        self.assertIsInstance(found, model.LocalBlockImage)


class ChoiceTest(DiskCase, test.NoDBTestCase):
    """Whose a disk is."""

    def setUp(self):
        super().setUp()
        self.make()
        self.flags(images_type="default", group="libvirt")
        self.flags(instances_path=self.useFixture(test.fixtures.TempDir()).path)
        self.backend = backend.Backend(True, self.disks, self.images)

    def kind(self, instance, name="disk"):
        return type(self.backend.by_name(instance, name)).__name__

    def test_only_the_root_disk_is_virtmans(self):
        names = ["disk.swap", "disk.local", "disk.rescue", blockinfo.get_eph_disk(0)]
        self.assertEqual("RootDisk", self.kind(self.instance()))
        self.assertEqual({"Qcow2"}, {self.kind(self.instance(), name) for name in names})

    def test_mark_decides_whatever_flavor_and_image_say_later(self):
        instance = self.instance(None)
        instance.system_metadata = {"virtman_image": NAME, "image_virtman_root_disk": "false"}
        instance.flavor.extra_specs = {"virtman:root_disk": "no"}
        self.assertEqual("RootDisk", self.kind(instance))

    def test_server_by_volume_type_is_virtmans(self):
        instance = self.instance()
        instance.image_ref = ""
        instance.flavor.extra_specs = {"virtman:image": GOLDEN, "virtman:root_disk": "no"}
        self.assertEqual("RootDisk", self.kind(instance))

    def test_server_without_an_image_is_stock(self):
        instance = self.instance()
        instance.image_ref = ""
        self.assertEqual("Qcow2", self.kind(instance))

    def test_disk_is_of_the_golden_volume_until_the_server_gets_another_image(self):
        instance = self.instance()
        for golden, image_ref, source in (
            ("", IMAGE, NAME),
            (GOLDEN, "", GOLDEN),
            (GOLDEN, IMAGE, NAME),
            (f"image-{IMAGE}-2", IMAGE, f"image-{IMAGE}-2"),
            (f"image-{IMAGE}-2", OTHER_IMAGE, f"glance-{OTHER_IMAGE}"),
        ):
            instance.flavor.extra_specs = {"virtman:image": golden} if golden else {}
            instance.image_ref = image_ref
            self.assertEqual(source, backend.source_of(instance))

    def test_server_that_has_its_disk_already_is_stock(self):
        folder = os.path.join(stock.CONF.instances_path, self.server)
        os.makedirs(folder)
        with open(os.path.join(folder, "disk"), "w"):
            pass
        self.assertEqual("Qcow2", self.kind(self.instance("rebuild_spawning")))

    def test_server_that_has_its_disk_on_shared_storage_is_stock(self):
        self.flags(images_type="lvm", images_volume_group="vg", group="libvirt")
        with test.mock.patch("os.path.exists", return_value=True):
            self.assertEqual("Lvm", self.kind(self.instance("rebuild_spawning")))

    def test_device_says_by_its_name_what_it_is(self):
        device = f"/dev/mapper/virtman_{NAME}_vm_{self.server}"
        self.assertTrue(backend.is_device(device))
        for path in (None, "", "/dev/vg/disk", f"/var{device}", "/dev/mapper/virtman_x_origin"):
            self.assertFalse(backend.is_device(path), path)
        found = self.backend.by_libvirt_path(self.instance(None), device)
        self.assertEqual(("RootDisk", device), (type(found).__name__, found.path))
