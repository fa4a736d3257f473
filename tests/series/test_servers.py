"""What users and operators do with servers by volume type: as with any by the driver."""

import fixtures
from nova import context as nova_context
from nova import exception
from nova.virt.libvirt import driver as stock
from oslo_utils import units
from oslo_utils.fixture import uuidsentinel as uuids

from tests.driver.nodes import DRIVER, IMAGE, OTHER_IMAGE
from tests.driver.test_live import LiveCase
from tests.series.cloud import OF_IMAGE, OF_SNAPSHOT, CloudCase


class OneNodeTest(CloudCase):
    def setUp(self):
        super().setUp()
        self.start_compute("a")
        self.agent = self.agents["a"]

    def rescue(self, server):
        properties = {"hw_rescue_device": "disk", "hw_rescue_bus": "virtio"}
        image = self.glance.image1 | {"id": uuids.rescue, "properties": properties}
        self.glance.create(None, image)
        body = {"rescue": {"rescue_image_ref": uuids.rescue}}
        self.api.post_server_action(server["id"], body)
        self._wait_for_state_change(server, "RESCUE")

    def assert_has_its_disk(self, server, image=OF_SNAPSHOT):
        self.assertEqual(image, self.disk(server)["image"])
        self.assertEqual(image, self.mark(server))
        self.assertIn(self.disk(server)["device"], self.opened("a", server))
        self.assertEqual(1, self.made(server))

    def live(self, server):
        """Stop and start a server in all ways, and have it do with its disk."""
        self._stop_server(server)
        self._start_server(server)
        for hard in (False, True):
            self._reboot_server(server, hard=hard)
        self._suspend_server(server)
        self._resume_server(server)
        self.rescue(server)
        self._unrescue_server(server)
        self.restart_compute_service("a")

    def test_disk_outlives_all_that_stops_and_starts_the_guest(self):
        server = self.boot_one()
        self.live(server)
        self.assert_has_its_disk(server)
        self.assertEqual([], self.files.fetched[1:])  # but for the rescue's
        self._delete_server(server)
        self.assertEqual(({}, []), (self.agent.vms, self.holders()))

    def test_disk_outlives_its_image(self):
        server = self.boot_one(**OF_IMAGE)
        self.glance.delete(None, IMAGE)
        self.live(server)
        self.assert_has_its_disk(server, f"image-{IMAGE}-2")

    def test_flag_off_afterwards_leaves_servers_right(self):
        server = self.boot_one()
        self.flags(use_vmtsnapshot=False, group="virtman")
        self.restart_compute_service("a")
        self._reboot_server(server, hard=True)
        self.assert_has_its_disk(server)
        self._delete_server(server)
        self.assertEqual(({}, []), (self.agent.vms, self.holders()))

    def test_lost_disk_is_never_replaced_by_an_empty_one(self):
        server = self._stop_server(self.boot_one())
        self.agent.vms.clear()
        self.api.post_server_action(server["id"], {"os-start": None})
        self._wait_for_instance_action_event(server, "start", "compute_start_instance", "Error")
        self.assertEqual({}, self.agent.vms)

    def test_rescued_server_has_its_disk_where_it_was(self):
        properties = {"hw_disk_bus": "scsi", "hw_scsi_model": "virtio-scsi"}
        with fixtures.MockPatch(
            "nova.block_device.get_image_metadata_from_volume",
            return_value={"properties": properties, "status": "active", "size": 1},
        ):
            server = self.boot_one()
        bus = self.bus(server)
        self.assertEqual("scsi", bus)
        self.rescue(server)
        self.assertEqual(bus, self.bus(server))

    def bus(self, server):
        device = self.disk(server)["device"]
        found = self.guest("a", server).get_config().devices
        (bus,) = (one.target_bus for one in found if getattr(one, "source_path", None) == device)
        return bus

    def test_image_is_made_of_the_disk(self):
        server = self.boot_one()
        self._snapshot_server(server, "one")
        self._wait_for_server_parameter(server, {"OS-EXT-STS:task_state": None})
        ((copy, *_),) = self.files.converted
        self.assertEqual(f"/dev/mapper/virtman_{OF_SNAPSHOT}_vm_{server['id']}-copy", copy)

    def test_shelved_server_comes_back_as_what_was_kept(self):
        server = self._shelve_server(self.boot_one())
        self.assertEqual(([], []), (self.places(server), self.holders()))
        server = self._unshelve_server(server)
        self.assertTrue(self.disk(server)["image"].startswith("glance-"))
        self.assertEqual(units.Gi, self.disk(server)["size"])
        self._delete_server(server)
        self.assertEqual({}, self.agent.vms)

    def test_rebuild_begins_with_the_new_image(self):
        server = self.boot_one()
        self._rebuild_server(server, OTHER_IMAGE)
        self.assertEqual(f"glance-{OTHER_IMAGE}", self.disk(server)["image"])
        self.assertEqual([], self.holders())

    def test_delete_while_the_node_is_down_is_done_later(self):
        server = self.boot_one()
        self.take_down("a")
        self.asked.clear()
        self._delete_server(server)
        self.assertEqual({}, dict(self.asked))
        manager = self.computes["a"].manager
        manager._run_pending_deletes(nova_context.get_admin_context())
        self.assertEqual(({}, []), (self.agent.vms, self.holders()))

    def test_what_is_held_in_vain_is_let_go_of(self):
        server = self.boot_one()
        driver = self.computes["a"].driver
        driver.disks.images.hold("snapshot-" + uuids.other, 1)
        driver.disks.doubt()
        manager = self.computes["a"].manager
        manager._run_image_cache_manager_pass(nova_context.get_admin_context())
        held = {one.name: one.status for one in self.volumes.kept.values()}
        self.assertEqual({OF_SNAPSHOT: "in-use", "snapshot-" + uuids.other: "available"}, held)
        self.assert_has_its_disk(server)

    def test_service_starts_while_cinder_is_away(self):
        server = self.boot_one()
        with fixtures.MockPatchObject(self.volumes.volumes, "list", side_effect=OSError("away")):
            self.restart_compute_service("a")
        self._reboot_server(server, hard=True)
        self.assert_has_its_disk(server)


class MovesTest(CloudCase):
    def setUp(self):
        super().setUp()
        for host in ("a", "b"):
            self.start_compute(host)
        self.server = self.boot_one(host="a")

    def assert_on(self, host, made=1):
        self.assertEqual([host], self.places(self.server))
        self.assertEqual([host], self.holders())
        disk = self.disk(self.server)
        self.assertEqual((OF_SNAPSHOT, units.Gi), (disk["image"], disk["size"]))
        self.assertEqual(made, self.made(self.server))
        self.assertEqual({self.disk(self.server)["device"]}, self.opened(host, self.server))

    def taken(self):
        """Return the GiB that Placement has for the server, by node."""
        found = self.placement.get(f"/allocations/{self.server['id']}").body["allocations"]
        names = {uuid: host for host, uuid in self.compute_rp_uuids.items()}
        return {names[uuid]: one["resources"]["DISK_GB"] for uuid, one in found.items()}

    def test_cold_migration_there_and_back(self):
        for host in ("b", "a"):
            self._migrate_server(self.server)
            self._confirm_resize(self.server)
            self.assert_on(host)
            self.assertEqual({host: 1}, self.taken())
        self._delete_server(self.server)
        self.assertEqual(([], []), (self.places(self.server), self.holders()))

    def test_resize_keeps_the_disk_whatever_the_flavor_says(self):
        for host, size in (("b", 8), ("a", 0)):
            self._resize_server(self.server, self.flavor(disk=size, vcpu=2))
            self._confirm_resize(self.server)
            self.assert_on(host)
            self.assertEqual({host: 1}, self.taken())
            self.assertEqual(1, self.api.get_server(self.server["id"])["flavor"]["disk"])

    def test_reverted_server_has_what_it_wrote_meanwhile(self):
        self._resize_server(self.server, self.flavor(disk=0, vcpu=2))
        self._revert_resize(self.server)
        self.assert_on("a")

    def test_server_whose_disk_cannot_leave_goes_on(self):
        self.agents["a"].peers = {}
        self.api.post_server_action(self.server["id"], {"migrate": None})
        self._wait_for_migration_status(self.server, ["error"])
        self._wait_for_server_parameter(
            self.server, {"status": "ACTIVE", "OS-EXT-STS:task_state": None}
        )
        self.assertEqual(["a"], self.places(self.server))
        self.assertIn("a", self.holders())

    def test_evacuated_server_begins_anew(self):
        self.take_down("a")
        self._evacuate_server(self.server, expected_host="b")
        self.assertEqual(OF_SNAPSHOT, self.agents["b"].vms[self.server["id"]]["image"])
        self.assertEqual(2, self.made(self.server))

    def test_rescheduled_server_is_of_the_snapshot_as_well(self):
        failures = iter([exception.NovaException("no room")])
        spawn = stock.LibvirtDriver._create_guest_with_network

        def create(driver, *args, **kwargs):
            for failure in failures:
                raise failure
            return spawn(driver, *args, **kwargs)

        self.useFixture(fixtures.MonkeyPatch(f"{DRIVER}._create_guest_with_network", create))
        server = self.boot_one()
        self.assertEqual((OF_SNAPSHOT, 2), (self.disk(server)["image"], self.made(server)))


class LiveTest(LiveCase, CloudCase):
    def boot(self, host, **_):
        return self.boot_one(host=host)

    def test_guest_and_disk_go_together(self):
        self.migrate("completed")
        self.assert_runs_on("b", "a")
        self.assertEqual(["b"], self.holders())
        self._reboot_server(self.server, hard=True)
        self.assert_runs_on("b", "a")

    def test_disk_that_is_refused_leaves_no_hold(self):
        self.agents["a"].peers = {}
        self.migrate("failed")
        self.assert_runs_on("a", "b")
        self.assertEqual(["a"], self.holders())

    def test_migration_that_fails_leaves_no_hold_for_long(self):
        self.agents["a"].failed = {"state": "failed", "note": "full", "code": "virtman.error"}
        self.migrate("failed")
        self.assert_runs_on("a", "b")
        manager = self.computes["b"].manager
        manager._run_image_cache_manager_pass(nova_context.get_admin_context())
        self.assertEqual(["a"], self.holders())
