"""Servers of when nova-compute was patched: with today's nova-compute they are like today's."""

import fixtures
from nova import context as nova_context
from nova import objects
from nova.objects import base
from oslo_serialization import jsonutils

from tests.driver.nodes import IMAGE
from tests.driver.test_live import LiveCase
from tests.series.cloud import OF_IMAGE, OF_SNAPSHOT, SNAPSHOT, CloudCase
from virtman.openstack import older

GB = "CUSTOM_VIRTMAN_GB"


class OlderMixin:
    """Makes of a server what it was."""

    def age(self, server, **bdm):
        """Have nova, Placement and libvirt know of a server what they knew, and of its node."""
        host = server["OS-EXT-SRV-ATTR:host"]
        context = nova_context.get_admin_context()
        instance = objects.Instance.get_by_uuid(
            context, server["id"], expected_attrs=["flavor", "system_metadata"]
        )
        self.age_instance(instance)
        (root,) = objects.BlockDeviceMappingList.get_by_instance_uuid(context, server["id"])
        info = {
            "driver_volume_type": "virtman",
            "serial": root.uuid,
            "data": {"access_mode": "rw", "device_path": self.disk(server)["device"]},
        }
        values = {
            "source_type": "snapshot",
            "destination_type": "volume",
            "snapshot_id": SNAPSHOT,
            "volume_type": "virtman",
            "volume_size": 1,
            "connection_info": jsonutils.dumps(info),
        }
        for name, value in (values | bdm).items():
            setattr(root, name, value)
        root.save()
        spec = objects.RequestSpec.get_by_instance_uuid(context, server["id"])
        spec.is_bfv = True
        spec.flavor = instance.flavor
        spec.scheduler_hints = {"virtman_gb": ["1"], "virtman_image": [OF_SNAPSHOT]}
        spec.save()
        self.age_placement(host, server["id"])

    @staticmethod
    def age_instance(instance):
        for name in ("flavor", "old_flavor", "new_flavor"):
            flavor = getattr(instance, name)
            if flavor:
                flavor = flavor.obj_clone()
                flavor.root_gb = 0
                flavor.extra_specs = {}
                setattr(instance, name, flavor)
        instance.save()

    def age_placement(self, host, *consumers):
        node = self.compute_rp_uuids[host]
        self.placement.put(f"/resource_classes/{GB}", None, version="1.7")
        path = f"/resource_providers/{node}/inventories"
        before = self.placement.get(path).body
        one = {"total": 200, "max_unit": 200, "allocation_ratio": 1.0}
        before["inventories"][GB] = one
        self.assertEqual(200, self.placement.put(path, before).status)
        for consumer in consumers:
            path = f"/allocations/{consumer}"
            found = self.placement.get(path, version="1.28").body
            resources = found["allocations"][node]["resources"]
            resources[GB] = resources.pop("DISK_GB")
            found["allocations"] = {node: {"resources": resources}}
            self.assertEqual(204, self.placement.put(path, found, version="1.28").status)

    def taken(self, consumer):
        """Return what Placement has for a server, by node."""
        found = self.placement.get(f"/allocations/{consumer}").body["allocations"]
        names = {uuid: host for host, uuid in self.compute_rp_uuids.items()}
        return {names[uuid]: one["resources"] for uuid, one in found.items()}

    def inventory(self, host):
        path = f"/resource_providers/{self.compute_rp_uuids[host]}/inventories"
        return self.placement.get(path).body["inventories"]

    def assert_is_of_today(self, server, host, image=OF_SNAPSHOT, size=1):
        context = nova_context.get_admin_context()
        instance = objects.Instance.get_by_uuid(
            context, server["id"], expected_attrs=["flavor", "system_metadata"]
        )
        self.assertEqual(
            (size, {"virtman:image": image, "trait:CUSTOM_VIRTMAN": "required"}),
            (instance.flavor.root_gb, instance.flavor.extra_specs),
        )
        (root,) = objects.BlockDeviceMappingList.get_by_instance_uuid(context, server["id"])
        found = base.obj_to_primitive(root)
        self.assertEqual(
            ("image", "local", None, None, None, None, None),
            tuple(
                found[name]
                for name in (
                    *("source_type", "destination_type", "snapshot_id", "image_id"),
                    *("volume_type", "volume_size", "connection_info"),
                )
            ),
        )
        self.assertNotIn(GB, self.inventory(host))
        self.assertEqual(
            {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": size}, self.taken(server["id"])[host]
        )
        self.assertEqual([host], self.places(server))
        self.assertEqual({self.disk(server)["device"]}, self.opened(host, server))
        self.assertEqual(1, self.made(server))


class OlderTest(OlderMixin, CloudCase):
    def setUp(self):
        super().setUp()
        for host in ("a", "b"):
            self.start_compute(host)
        self.server = self.boot_one(host="a")

    def upgrade(self):
        self.restart_compute_service("a")

    def test_server_becomes_like_those_of_today(self):
        self.age(self.server)
        self.assertEqual({"VCPU": 1, "MEMORY_MB": 64, GB: 1}, self.taken(self.server["id"])["a"])
        domain = self.guest("a", self.server)
        self.upgrade()
        self.assert_is_of_today(self.server, "a")
        self.assertTrue(domain.is_active())

    def test_all_that_stops_and_starts_it_works(self):
        self.age(self.server)
        self.upgrade()
        self._stop_server(self.server)
        self._start_server(self.server)
        for hard in (False, True):
            self._reboot_server(self.server, hard=hard)
        self.upgrade()
        self.assert_is_of_today(self.server, "a")

    def test_stopped_server_starts(self):
        self._stop_server(self.server)
        self.age(self.server)
        self.upgrade()
        self._start_server(self.server)
        self.assert_is_of_today(self.server, "a")

    def test_server_of_an_image(self):
        server = self.boot_one(host="a", **OF_IMAGE)
        of_image = {"source_type": "image", "image_id": IMAGE, "volume_size": 2}
        self.age(server, **of_image | {"snapshot_id": None})
        self.upgrade()
        self._reboot_server(server, hard=True)
        self.assert_is_of_today(server, "a", f"image-{IMAGE}-2", 2)

    def test_delete(self):
        self.age(self.server)
        self.upgrade()
        self._delete_server(self.server)
        self.assertEqual(([], []), (self.places(self.server), self.holders()))
        self.assertEqual({}, self.taken(self.server["id"]))

    def test_server_that_is_deleted_before_its_node_is_back(self):
        self.age(self.server)
        self.take_down("a")
        self._delete_server(self.server)
        self.assertEqual(["a"], self.places(self.server))
        self.upgrade()
        self.assertEqual(([], []), (self.places(self.server), self.holders()))

    def test_cold_migration(self):
        self.age(self.server)
        self.upgrade()
        self._migrate_server(self.server)
        self._confirm_resize(self.server)
        self.assert_is_of_today(self.server, "b")
        self.assertEqual(["b"], self.holders())

    def test_resize_that_is_reverted(self):
        self.age(self.server)
        self.upgrade()
        self._resize_server(self.server, self.flavor(disk=0, vcpu=2))
        self._revert_resize(self.server)
        self.assert_is_of_today(self.server, "a")

    def test_resize_of_before_is_confirmed_or_reverted(self):
        servers = self.server, other = self.server, self.boot_one(host="a")
        for server in servers:
            self._migrate_server(server)
        for server in servers:
            self.age(self.api.get_server(server["id"]))
            path = f"/os-migrations?instance_uuid={server['id']}"
            (migration,) = self.api.api_get(path).body["migrations"]
            self.age_placement("a", migration["uuid"])
        for host in ("a", "b"):
            self.restart_compute_service(host)
        self._confirm_resize(self.server)
        self._revert_resize(other)
        self.assert_is_of_today(self.server, "b")
        self.assert_is_of_today(other, "a")

    def test_upgrade_that_is_interrupted_goes_on(self):
        other = self.boot_one(host="a")
        for server in (self.server, other):
            self.age(server)
        save = objects.BlockDeviceMapping.save
        with fixtures.MockPatch(
            "nova.objects.BlockDeviceMapping.save", autospec=True, side_effect=[save, OSError]
        ):
            self.assertRaises(OSError, older.adopt, nova_context.get_admin_context(), "a")
        self.upgrade()
        for server in (self.server, other):
            self.assert_is_of_today(server, "a")

    def test_node_with_more_than_the_agent_counts_starts(self):
        self.age(self.server)
        self.agents["a"].room["free"] = 0
        del self.agents["a"].vms[self.server["id"]]
        self.upgrade()
        self.assertEqual(1, self.taken(self.server["id"])["a"]["DISK_GB"])


class OlderLiveTest(OlderMixin, LiveCase, CloudCase):
    def boot(self, host, **_):
        return self.boot_one(host=host)

    def test_live_migration(self):
        self.age(self.server)
        self.restart_compute_service("a")
        self.migrate("completed")
        self.assert_runs_on("b", "a")
        self.assert_is_of_today(self.server, "b")
