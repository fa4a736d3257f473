"""What a request for servers by volume type asks of Cinder and Glance, and what is refused."""

import fixtures
from nova import context as nova_context
from nova import exception
from nova.tests.functional.api import client
from nova.volume import cinder
from oslo_utils import units, uuidutils
from oslo_utils.fixture import uuidsentinel as uuids

from tests.driver.nodes import IMAGE, OTHER_IMAGE
from tests.series.cloud import (
    BUSY_SNAPSHOT,
    ENCRYPTED_SNAPSHOT,
    OF_IMAGE,
    OF_SNAPSHOT,
    SNAPSHOT,
    CloudCase,
)


class RequestsTest(CloudCase):
    def setUp(self):
        super().setUp()
        self.start_compute("a")
        self.agent = self.agents["a"]
        self.volumes.calls.clear()  # who starts looks what it holds

    def calls(self, count, **disk):
        """Boot and delete so many servers; return what was asked, and what the volume is."""
        self.asked.clear()
        self.volumes.calls.clear()
        servers = self.boot_all(count, **disk)
        self.assertEqual({one["id"] for one in servers}, set(self.agent.vms))
        asked = dict(self.asked)
        for one in servers:
            self._delete_server(one)
        self.assertEqual({}, self.agent.vms)
        (golden,) = self.volumes.kept.values()
        self.assertEqual("available", golden.status)
        self.volumes.kept.clear()
        calls = list(self.volumes.calls)
        return asked, calls, (golden.name, *golden.described)

    def test_many_servers_of_a_snapshot_ask_no_more_than_one(self):
        flavor = self.flavor(disk=0, memory_mb=1)
        asked, calls, golden = self.calls(8, flavor=flavor)
        self.assertEqual(
            {
                "get_all_volume_types": 1,
                "get_snapshot": 2,
                "get": 1,
                "get_volume_encryption_metadata": 1,
            },
            asked,
        )
        self.assertEqual((OF_SNAPSHOT, 1, {"snapshot_id": SNAPSHOT}, "virtman"), golden)
        self.assertEqual(["list", "create", "list", "attach", "complete", "list", "detach"], calls)
        self.assertEqual((asked, calls, golden), self.calls(1, flavor=flavor))

    def test_many_servers_of_an_image_ask_no_more_than_one(self):
        asked, calls, golden = self.calls(4, **OF_IMAGE)
        self.assertEqual({"get_all_volume_types": 1, "get_image": 2}, asked)
        self.assertEqual((f"image-{IMAGE}-2", 2, {"imageRef": IMAGE}, "virtman"), golden)
        self.assertEqual((asked, calls, golden), self.calls(1, **OF_IMAGE))

    def test_image_in_another_size_is_another_volume(self):
        for size in (2, 3):
            self.boot_all(**OF_IMAGE | {"volume_size": size})
        names = [one.name for one in self.volumes.kept.values()]
        self.assertEqual([f"image-{IMAGE}-{size}" for size in (2, 3)], names)

    def test_image_may_be_that_of_the_server_as_well(self):
        self.api.post_server({"server": self.request(2, **OF_IMAGE) | {"imageRef": IMAGE}})
        for server in self.api.get_servers(detail=False):
            self._wait_for_state_change(server, "ACTIVE")
        images = {one["image"] for one in self.agent.vms.values()}
        self.assertEqual({f"image-{IMAGE}-2"}, images)

    def test_type_may_be_named_by_its_id(self):
        server = self.boot_one(volume_type=uuids.kind)
        self.assertEqual(OF_SNAPSHOT, self.disk(server)["image"])

    def test_stock_requests_are_stock_requests(self):
        # They end where nova-compute would have Cinder make volumes.
        self.useFixture(
            fixtures.MockPatch(
                "nova.compute.manager.ComputeManager._prep_block_device",
                side_effect=exception.InvalidBDM,
            )
        )
        for flag in (True, False):
            self.flags(use_vmtsnapshot=flag, group="virtman")
            for disk, asked in (
                ({}, {"get_snapshot": 3, "get": 1}),
                (OF_IMAGE, {"get_image": 2}),
            ):
                self.asked.clear()
                self.boot_all(2, state="ERROR", volume_type="lvm-1", **disk)
                self.assertEqual({"get_all_volume_types": 2} | asked, dict(self.asked))
        self.assertEqual(([], {}), (self.volumes.calls, self.agent.vms))

    def test_flavor_says_what_the_disk_is(self):
        flavor = self.flavor(disk=7, extra_spec={"hw:cpu_policy": "shared"})
        server = self.boot_one(flavor=flavor)
        found = self.api.get_server(server["id"])["flavor"]
        expected = {
            "hw:cpu_policy": "shared",
            "virtman:image": OF_SNAPSHOT,
            "trait:CUSTOM_VIRTMAN": "required",
        }
        self.assertEqual((1, expected), (found["disk"], found["extra_specs"]))
        self.assertEqual(7, self.api.get_flavor(flavor)["disk"])
        allocations = self.placement.get(f"/allocations/{server['id']}").body["allocations"]
        ((_, taken),) = allocations.items()
        self.assertEqual(1, taken["resources"]["DISK_GB"])

    def test_no_more_servers_than_there_is_space_for(self):
        self.agent.room["free"] = 3 * units.Gi
        self.computes["a"].manager.update_available_resource(nova_context.get_admin_context())
        self.boot_all(2)
        (late,) = self.boot_all(state="ERROR")
        self.assertIn("No valid host", late["fault"]["message"])

    def test_disk_that_cannot_be_made_leaves_nothing(self):
        self.agent.served = set()
        self.computes["a"].driver.disks.served_timeout = 0
        (server,) = self.boot_all(state="ERROR")
        self.assertIn(OF_SNAPSHOT, server["fault"]["message"])
        self.assertEqual(({}, []), (self.agent.vms, self.holders()))
        self._delete_server(server)

    def test_volume_that_cinder_does_not_make_leaves_nothing(self):
        self.volumes.becomes = "error"
        (server,) = self.boot_all(state="ERROR")
        self.assertIn("is error", server["fault"]["message"])
        self.assertEqual({}, self.agent.vms)

    def test_failed_spawn_leaves_nothing(self):
        failure = exception.NovaException("no room")
        with fixtures.MockPatchObject(
            self.computes["a"].driver, "_create_guest_with_network", side_effect=failure
        ):
            self.boot_all(state="ERROR")
        self.assertEqual(({}, []), (self.agent.vms, self.holders()))

    def assert_refused(self, message, body):
        error = self.assertRaises(
            client.OpenStackApiException, self.api.post_server, {"server": body}
        )
        self.assertEqual(400, error.response.status_code)
        self.assertIn(message, str(error))
        self.assertEqual([], self.api.get_servers(detail=False))

    def test_bad_requests_change_nothing(self):
        for message, disk in (
            ("not available", {"uuid": BUSY_SNAPSHOT}),
            ("does not encrypt", {"uuid": ENCRYPTED_SNAPSHOT}),
            ("volume_size must be 1", {"volume_size": 2}),
            ("delete_on_termination must be true", {"delete_on_termination": False}),
            ("hw_disk_bus", {"disk_bus": "virtio"}),
        ):
            self.assert_refused(message, self.request(2, **disk))
        encrypted = self.flavor(disk=0, extra_spec={"hw:ephemeral_encryption": "true"})
        self.assert_refused("does not encrypt", self.request(flavor=encrypted))
        self.flags(use_vmtsnapshot=False, group="virtman")
        self.assert_refused("use_vmtsnapshot is off", self.request())
        self.assertEqual([], self.volumes.calls)

    def test_only_the_root_disk_is_accepted(self):
        for disk in ({}, OF_IMAGE):
            body = self.request(**disk)
            (root,) = body["block_device_mapping_v2"]
            body["block_device_mapping_v2"].append(root | {"boot_index": -1})
            self.assert_refused("boot_index must be 0", body)

    def test_bad_requests_of_images_change_nothing(self):
        root = {
            "source_type": "snapshot",
            "destination_type": "volume",
            "snapshot_id": SNAPSHOT,
            "boot_index": 0,
        }
        brought = {"bdm_v2": True, "block_device_mapping": [root]}
        for message, disk in (
            ("needs a volume_size", {"volume_size": None}),
            ("delete_on_termination must be true", {"delete_on_termination": False}),
            ("failed to get image", {"uuid": uuids.no_image}),
            ("is not active", self.image(status="deactivated")),
            ("smaller than the minimum", self.image(min_disk=3)),
            ("volume_size must be larger", self.image(size=2 * units.Gi + 1)),
            ("is encrypted", self.image(properties={"cinder_encryption_key_id": uuids.key})),
            ("boot from the snapshot", self.image(properties=brought)),
        ):
            body = self.request(2, **OF_IMAGE | disk)
            if disk.get("volume_size", 2) is None:
                del body["block_device_mapping_v2"][0]["volume_size"]
            self.assert_refused(message, body)
        body = self.request(**OF_IMAGE) | {"imageRef": OTHER_IMAGE}
        self.assert_refused("imageRef must be empty", body)
        self.assertEqual([], self.volumes.calls)

    def test_snapshot_of_somebody_else_is_refused(self):
        def not_found(context, snapshot_id):
            raise exception.SnapshotNotFound(snapshot_id=snapshot_id)

        self.useFixture(
            fixtures.MockPatchObject(cinder.API, "get_snapshot", staticmethod(not_found))
        )
        self.assert_refused("could not be found", self.request())

    def test_volume_is_refused(self):
        volume = self.request(source_type="volume", uuid=self.cinder.IMAGE_BACKED_VOL)
        self.assert_refused("Specifying volume type", volume)

    def image(self, **values):
        """Make another image; return what a disk of it is."""
        image = self.glance.image1 | {"id": uuidutils.generate_uuid()}
        made = self.glance.create(None, image | values)
        return OF_IMAGE | {"uuid": made["id"]}
