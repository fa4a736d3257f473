"""What users and operators do with servers, whose root disks are VirtMan's."""

import os
import time

import fixtures
from nova import context as nova_context
from nova import exception
from nova.tests import fixtures as nova_fixtures
from nova.tests.functional.api import client
from oslo_utils import units

from tests.driver.nodes import CONF, DRIVER, IMAGE, OTHER_IMAGE, NodesCase

NAME = f"glance-{IMAGE}"
FILES = {"disk.eph0", "disk.swap", "disk.config"}


def wait_until(condition):
    for _ in range(100):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError


class OneNodeTest(NodesCase):
    def setUp(self):
        super().setUp()
        self.start_compute("a")
        self.agent = self.agents["a"]

    def test_root_disk_is_virtmans_and_all_else_is_files(self):
        flavor = self.flavor(disk=3, ephemeral=1, swap=64)
        server = self.boot(flavor_id=flavor, config_drive=True)
        self.assertEqual((NAME, 3 * units.Gi), (self.disk(server)["image"], self.size(server)))
        self.assertEqual(FILES | {self.disk(server)["device"]}, self.opened("a", server))
        folder = os.path.join(CONF.instances_path, server["id"])
        self.assertLessEqual(FILES, set(os.listdir(folder)))
        self.assertNotIn("disk", os.listdir(folder))

    def test_many_servers_download_nothing(self):
        body = self.body(flavor_id=self.flavor(disk=1, memory_mb=1))
        self.api.post_server({"server": body | {"min_count": 8, "max_count": 8}})
        servers = self.api.get_servers(detail=False)
        for server in servers:
            self._wait_for_server_parameter(server, {"status": "ACTIVE"}, max_retries=100)
        self.assertEqual(8, len(self.agent.vms))
        self.assertEqual([], self.files.fetched)

    def test_flavor_without_a_size_has_that_of_the_image(self):
        self.assertEqual(self.agent.length, self.size(self.boot(flavor_id=self.flavor(disk=0))))

    def test_disk_outlives_all_that_stops_and_starts_the_guest(self):
        server = self.boot(flavor_id=self.flavor(ephemeral=1, swap=64), config_drive=True)
        opened = self.opened("a", server)
        for hard in (False, True):
            self._reboot_server(server, hard=hard)
        self.act(server, "pause", status="PAUSED")
        self.act(server, "unpause", status="ACTIVE")
        self._suspend_server(server)
        self._resume_server(server)
        self._stop_server(server)
        self._start_server(server)
        self.assertEqual(opened, self.opened("a", server))
        self.assertEqual(1, self.made(server))

    def test_restart_of_the_service_changes_nothing(self):
        server = self.boot(flavor_id=self.flavor())
        opened = self.opened("a", server)
        self.restart_compute_service("a")
        self._reboot_server(server, hard=True)
        self.assertEqual(opened, self.opened("a", server))
        self.assertEqual(1, self.made(server))

    def test_rescue_boots_a_file_and_sees_the_disk(self):
        server = self.boot(flavor_id=self.flavor())
        device = self.disk(server)["device"]
        self._rescue_server(server)
        self.assertEqual({"disk.rescue", device}, self.opened("a", server))
        self.act(server, "unrescue", status="ACTIVE")
        self.assertEqual({device}, self.opened("a", server))

    def test_image_is_made_while_the_guest_goes_on(self):
        server = self.boot(flavor_id=self.flavor())
        suspend = self.useFixture(fixtures.MockPatch(f"{DRIVER}._suspend_guest_for_snapshot")).mock
        for form in (None, "raw"):
            self.flags(snapshot_image_format=form, group="libvirt")
            image = self.image_of(server)
            self.assertEqual(("active", form or "qcow2"), (image["status"], image["disk_format"]))
        copy = f"/dev/mapper/virtman_{NAME}_vm_{server['id']}-copy"
        expected = [(copy, "raw", "qcow2"), (copy, "raw", "raw")]
        self.assertEqual(expected, self.files.converted)
        self.assertEqual([server["id"]], list(self.agent.vms))
        suspend.assert_not_called()

    def test_image_that_cannot_be_converted_leaves_no_copy(self):
        server = self.boot(flavor_id=self.flavor())
        self.useFixture(
            fixtures.MockPatch(
                "nova.virt.images.convert_image", side_effect=exception.ImageUnacceptable("no room")
            )
        )
        self.act(server, "createImage", {"name": "one"}, status="ACTIVE")
        self.assertEqual([server["id"]], list(self.agent.vms))

    def test_backup_is_an_image_too(self):
        server = self.boot(flavor_id=self.flavor())
        backup = {"name": "one", "backup_type": "daily", "rotation": 1}
        self.act(server, "createBackup", backup, status="ACTIVE")
        self.assertEqual(1, len(self.files.converted))

    def test_shelved_server_comes_back_as_what_was_kept(self):
        server = self.boot(flavor_id=self.flavor())
        server = self._shelve_server(server)
        self.assertEqual([], self.places(server))
        self.assertIsNone(self.mark(server))
        server = self._unshelve_server(server)
        self.assertNotEqual(NAME, self.disk(server)["image"])
        self.assertEqual(self.mark(server), self.disk(server)["image"])
        self.assertEqual(3 * units.Gi, self.size(server))

    def test_rebuild_begins_with_the_new_image(self):
        server = self.boot(flavor_id=self.flavor())
        self._rebuild_server(server, OTHER_IMAGE)
        self.assertEqual(f"glance-{OTHER_IMAGE}", self.disk(server)["image"])
        self.assertEqual(2, self.made(server))

    def test_disk_goes_with_its_server(self):
        server = self.boot(flavor_id=self.flavor())
        self._delete_server(server)
        self.assertEqual({}, self.agent.vms)

    def test_soft_deleted_server_comes_back_with_its_disk(self):
        self.flags(reclaim_instance_interval=3600)
        server = self.boot(flavor_id=self.flavor())
        self.api.delete_server(server["id"])
        self._wait_for_state_change(server, "SOFT_DELETED")
        self.act(server, "restore", status="ACTIVE")
        self.assertEqual(1, self.made(server))
        self.api.delete_server(server["id"])
        self._wait_for_state_change(server, "SOFT_DELETED")
        self.api.post_server_action(server["id"], {"forceDelete": None})
        self._wait_until_deleted(server)
        self.assertEqual({}, self.agent.vms)

    def test_delete_while_the_node_is_down_is_done_later(self):
        server = self.boot(flavor_id=self.flavor())
        self.take_down("a")
        self._delete_server(server)
        self.assertEqual(["a"], self.places(server))
        self.run_pending_deletes()
        self.assertEqual({}, self.agent.vms)

    def test_delete_while_the_agent_is_silent_is_done_later(self):
        server = self.boot(flavor_id=self.flavor())
        self.agent.reachable = False
        self._delete_server(server)
        self.run_pending_deletes()
        self.agent.reachable = True
        self.assertEqual(["a"], self.places(server))
        self.run_pending_deletes()
        self.assertEqual({}, self.agent.vms)

    def test_disk_that_nobody_could_delete_goes_when_the_service_starts(self):
        kept, deleted = (self.boot(flavor_id=self.flavor()) for _ in range(2))
        self.agent.create("vm1", NAME)
        self.agent.reachable = False
        self._delete_server(deleted)
        self.agent.reachable = True
        self.restart_compute_service("a")
        self.assertEqual({kept["id"], "vm1"}, set(self.agent.vms))

    def test_service_starts_while_the_agent_is_silent(self):
        server = self.boot(flavor_id=self.flavor())
        self.agent.reachable = False
        self.restart_compute_service("a")
        self.agent.reachable = True
        self._reboot_server(server, hard=True)
        self.assertEqual(1, self.made(server))

    def test_lost_disk_is_an_error_and_never_an_empty_one(self):
        server = self.boot(flavor_id=self.flavor())
        self.agent.vms.clear()
        self.api.post_server_action(server["id"], {"reboot": {"type": "HARD"}})
        self._wait_for_instance_action_event(server, "reboot", "compute_reboot_instance", "Error")
        self.assertEqual({}, self.agent.vms)
        self.assertEqual(1, self.made(server))

    def test_node_offers_what_the_agent_has(self):
        provider = f"/resource_providers/{self.compute_rp_uuids['a']}"
        found = self.placement.get(f"{provider}/inventories").body["inventories"]
        self.assertEqual(500, found["DISK_GB"]["total"])
        traits = self.placement.get(f"{provider}/traits", version="1.6").body["traits"]
        self.assertIn("CUSTOM_VIRTMAN", traits)

    def test_node_offers_nothing_before_its_agent_has_answered(self):
        self.agents["b"].reachable = False
        self.start_compute("b")
        provider = f"/resource_providers/{self.compute_rp_uuids['b']}/traits"
        found = self.placement.get(provider, version="1.6").body["traits"]
        self.assertNotIn("CUSTOM_VIRTMAN", found)
        self.agents["b"].reachable = True
        self._run_periodics()
        found = self.placement.get(provider, version="1.6").body["traits"]
        self.assertIn("CUSTOM_VIRTMAN", found)

    def test_node_offers_no_less_while_the_agent_is_silent(self):
        server = self.boot(flavor_id=self.flavor())
        self.computes["a"].driver.disks.ready_timeout = -1
        self.agent.reachable = False
        self._delete_server(server)
        provider = f"/resource_providers/{self.compute_rp_uuids['a']}"
        found = self.placement.get(f"{provider}/inventories").body["inventories"]
        self.assertEqual(500, found["DISK_GB"]["total"])

    def test_image_can_be_read_ahead_of_its_servers(self):
        driver = self.computes["a"].driver
        context = nova_context.get_admin_context()
        self.assertTrue(driver.cache_image(context, IMAGE))
        self.assertFalse(driver.cache_image(context, IMAGE))
        self.assertEqual({NAME}, set(self.agent.warmed))
        self.assertEqual([], self.files.fetched)

    def size(self, server):
        return self.disk(server)["size"]

    def image_of(self, server):
        self._snapshot_server(server, "one")
        self._wait_for_server_parameter(server, {"OS-EXT-STS:task_state": None})
        found = self.glance.detail(nova_context.get_admin_context())
        return [one for one in found if one["name"] == "one"][-1]

    def run_pending_deletes(self):
        self.computes["a"].manager._run_pending_deletes(nova_context.get_admin_context())


class RefusedTest(NodesCase):
    """Servers that cannot be made: an error that says why, and nothing left."""

    def setUp(self):
        super().setUp()
        self.start_compute("a")
        self.agent = self.agents["a"]

    def fault(self, **more):
        server = self.boot("ERROR", **{"flavor_id": self.flavor()} | more)
        self.assertEqual({}, self.agent.vms)
        self.assertEqual([], self.files.fetched)
        self.assertFalse(os.path.exists(os.path.join(CONF.instances_path, server["id"])))
        message = server["fault"]["message"] + server["fault"].get("details", "")
        self._delete_server(server)
        return message

    def test_flavor_smaller_than_the_image(self):
        self.agent.length = 2 * units.Gi
        self.assertIn("Flavor's disk is too small", self.fault(flavor_id=self.flavor(disk=1)))

    def test_image_that_cannot_be_made(self):
        self.agent.broken[NAME] = "its hash is wrong"
        self.assertIn("its hash is wrong", self.fault())

    def test_image_that_nobody_makes(self):
        self.agent.served = set()
        self.assertIn(NAME, self.fault())

    def test_agent_that_is_silent_while_the_disk_is_made(self):
        self.agent.loses_answers = True
        self.fault()

    def test_guest_that_does_not_start(self):
        with fixtures.MockPatch(
            f"{DRIVER}._create_guest_with_network", side_effect=exception.NovaException("no room")
        ):
            self.fault()

    def test_trusted_certificates(self):
        message = self.fault(trusted_image_certificates=["0b5d2c72-12cc-4ba6-a8d7-3ff5cc1d8cb8"])
        self.assertIn("does not check the signatures", message)


class OptedOutTest(NodesCase):
    """Servers that are not VirtMan's are as with the stock driver."""

    def setUp(self):
        super().setUp()
        self.start_compute("a")

    def test_flavor_opts_out(self):
        flavor = self.flavor(extra_spec={"virtman:root_disk": "false"})
        self.assert_stock_all_along(self.boot(flavor_id=flavor))

    def test_image_opts_out(self):
        with fixtures.MockPatch(
            "nova.utils.get_system_metadata_from_image",
            return_value={"image_virtman_root_disk": "false", "image_base_image_ref": IMAGE},
        ):
            self.assert_stock_all_along(self.boot(flavor_id=self.flavor()))

    def test_older_server_stays_what_it_is(self):
        flavor = self.flavor()
        with fixtures.MockPatch("virtman.openstack.backend.is_wanted", return_value=False):
            server = self.boot(flavor_id=flavor)
        self.assert_stock_all_along(server)

    def test_flavor_opts_in_again(self):
        flavor = self.flavor(extra_spec={"virtman:root_disk": "true"})
        self.assertEqual(["a"], self.places(self.boot(flavor_id=flavor)))

    def assert_stock_all_along(self, server):
        self.assertEqual([IMAGE], self.files.fetched)
        self.assert_stock("a", server)
        self._reboot_server(server, hard=True)
        self._stop_server(server)
        self._start_server(server)
        self.assert_stock("a", server)
        self._delete_server(server)
        self.assertEqual([], self.agents["a"].made)
        self.assertFalse(os.path.exists(os.path.join(CONF.instances_path, server["id"])))


class MovesTest(NodesCase):
    def setUp(self):
        super().setUp()
        for host in ("a", "b"):
            self.start_compute(host)
        self.flavors = self.flavor(disk=3), self.flavor(disk=8)

    def test_resize_moves_and_grows_the_disk(self):
        server = self.boot(flavor_id=self.flavors[0], host="a")
        self._resize_server(server, self.flavors[1])
        self.assert_on("b", 8, server)
        self._confirm_resize(server)
        self.assert_on("b", 8, server)

    def test_reverted_server_has_what_it_wrote_meanwhile(self):
        server = self.boot(flavor_id=self.flavors[0], host="a")
        self._resize_server(server, self.flavors[1])
        self._revert_resize(server)
        self.assert_on("a", 8, server)
        self._reboot_server(server, hard=True)
        self.assert_on("a", 8, server)

    def test_resize_on_the_same_node_only_grows_the_disk(self):
        self.flags(allow_resize_to_same_host=True)
        self.take_down("b")
        server = self.boot(flavor_id=self.flavors[0], host="a")
        self._resize_server(server, self.flavors[1])
        self.assert_on("a", 8, server)
        self._revert_resize(server)
        self.assert_on("a", 8, server)

    def test_cold_migration_and_back(self):
        server = self.boot(flavor_id=self.flavors[0], host="a")
        self._migrate_server(server)
        self._confirm_resize(server)
        self.assert_on("b", 3, server)
        self._migrate_server(server)
        self._revert_resize(server)
        self.assert_on("b", 3, server)

    def test_smaller_flavor_is_refused(self):
        server = self.boot(flavor_id=self.flavors[1], host="a")
        body = {"resize": {"flavorRef": self.flavors[0]}}
        self.assertRaises(
            client.OpenStackApiException, self.api.post_server_action, server["id"], body
        )
        self.assert_on("a", 8, server)

    def test_server_whose_disk_cannot_leave_goes_on(self):
        self.agents["a"].peers = {}
        server = self.boot(flavor_id=self.flavors[0], host="a")
        self.api.post_server_action(server["id"], {"migrate": None})
        self.assert_goes_on(server, 3)

    def test_stopped_server_whose_disk_cannot_leave_stays_stopped(self):
        self.agents["a"].peers = {}
        server = self._stop_server(self.boot(flavor_id=self.flavors[0], host="a"))
        self.api.post_server_action(server["id"], {"migrate": None})
        self.assert_goes_on(server, 3, "SHUTOFF")

    def test_crash_of_the_service_while_the_disk_is_on_its_way(self):
        class Crash(BaseException):
            pass

        server = self.boot(flavor_id=self.flavors[0], host="a")
        agent = self.agents["a"]
        # The agent goes on, whoever waits for it.
        with fixtures.MockPatchObject(agent, "await_move", side_effect=Crash):
            self.api.post_server_action(server["id"], {"migrate": None})
            wait_until(lambda: agent.moves)
        self.restart_compute_service("a")
        self._wait_for_server_parameter(server, {"OS-EXT-STS:task_state": None})
        self.assertEqual({}, agent.moves)
        self.assert_on("a", 3, server)
        self.assertTrue(self.guest("a", server)._domain.isActive())

    def test_revert_that_cannot_be_leaves_the_server_where_it_is(self):
        server = self.boot(flavor_id=self.flavors[0], host="a")
        self._migrate_server(server)
        self.agents["b"].peers = {}
        self.api.post_server_action(server["id"], {"revertResize": None})
        self._wait_for_state_change(server, "ERROR")
        self.assertEqual(["b"], self.places(server))
        self._reboot_server(server, hard=True)
        self.assert_on("b", 3, server)

    def test_evacuated_server_begins_with_its_image(self):
        server = self.boot(flavor_id=self.flavors[0], host="a")
        self.take_down("a")
        server = self._evacuate_server(server, expected_host="b")
        self.assertEqual(2, self.made(server))
        self.assertEqual(3 * units.Gi, self.agents["b"].vms[server["id"]]["size"])
        self.return_of("a")
        self.assert_on("b", 3, server)
        self.assertEqual(NAME, self.mark(server))

    def test_server_that_is_deleted_after_a_resize_leaves_nothing(self):
        server = self.boot(flavor_id=self.flavors[0], host="a")
        self._resize_server(server, self.flavors[1])
        self._delete_server(server)
        self.assertEqual([], self.places(server))

    def assert_on(self, host, size, server):
        self.assertEqual([host], self.places(server))
        self.assertEqual(
            (NAME, size * units.Gi), (self.disk(server)["image"], self.disk(server)["size"])
        )
        self.assertEqual(1 if host == "a" or self.made(server) == 1 else 2, self.made(server))
        self.assertEqual({self.disk(server)["device"]}, self.opened(host, server))

    def assert_goes_on(self, server, size, status="ACTIVE"):
        self._wait_for_migration_status(server, ["error"])
        self._wait_for_server_parameter(server, {"status": status, "OS-EXT-STS:task_state": None})
        self.assert_on("a", size, server)
        self.assertEqual(status == "ACTIVE", self.guest("a", server)._domain.isActive())

    def return_of(self, host):
        """Have nova-compute of a node that was down take away what is elsewhere now."""
        self.useFixture(
            fixtures.MockPatch(
                "nova.compute.manager.ComputeManager._is_instance_storage_shared",
                return_value=False,
            )
        )
        self.flags(host=host)
        manager = self.computes[host].manager
        manager._destroy_evacuated_instances(nova_context.get_admin_context(), {})


class SharesTest(NodesCase):
    """Servers with shares of Manila's."""

    SHARE = "4b021746-d0eb-4031-92aa-23c3bec182cd"

    def setUp(self):
        self.flags(file_backed_memory=8192, group="libvirt")
        self.flags(ram_allocation_ratio=1.0, reserved_host_memory_mb=0)
        super().setUp()
        self.flags(auth_type="password", group="manila")
        self.useFixture(nova_fixtures.ManilaFixture())
        for name in ("connect_volume", "disconnect_volume"):
            self.useFixture(
                fixtures.MockPatch(f"nova.virt.libvirt.volume.nfs.LibvirtNFSVolumeDriver.{name}")
            )
        for host in ("a", "b"):
            self.start_compute(host)

    def test_server_whose_disk_cannot_leave_keeps_its_shares(self):
        server = self.boot(flavor_id=self.flavor(), host="a")
        self._stop_server(server)
        self._attach_share(server, self.SHARE)
        server = self._start_server(server)
        self.assertEqual([self.SHARE], self.shares(server))
        self.agents["a"].peers = {}
        try:
            self.api.post_server_action(server["id"], {"migrate": None})
        except client.OpenStackApiException as err:
            self.skipTest(f"this nova does not move servers with shares: {err}")
        self._wait_for_migration_status(server, ["error"])
        self._wait_for_server_parameter(server, {"status": "ACTIVE", "OS-EXT-STS:task_state": None})
        self.assertEqual([self.SHARE], self.shares(server))

    def shares(self, server):
        devices = self.guest("a", server).get_config().devices
        return [one.target_dir for one in devices if one.root_name == "filesystem"]
