"""Servers that migrate live, and their disks that follow."""

import shutil
import time

import fixtures
from nova.tests.fixtures import libvirt as fakelibvirt
from nova.virt.libvirt import config as vconfig
from nova.virt.libvirt import utils as libvirt_utils
from oslo_concurrency import processutils
from oslo_utils import units

from tests.driver.nodes import DRIVER, NodesCase


class LiveNodesCase(NodesCase):
    """Nodes ``a`` and ``b``, between which servers can go."""

    def setUp(self):
        super().setUp()
        # The fixture has no constants for what nova does not use.
        for name, value in {"VIR_MIGRATE_PAUSED": 32, "VIR_DOMAIN_SHUTOFF_MIGRATED": 4}.items():
            self.useFixture(fixtures.MonkeyPatch(f"nova.tests.fixtures.libvirt.{name}", value))
        for name in ("_create_shared_storage_test_file", "_cleanup_shared_storage_test_file"):
            self.useFixture(fixtures.MockPatch(f"{DRIVER}.{name}", return_value="x"))
        self.folder_is_shared = False
        self.useFixture(
            fixtures.MonkeyPatch(
                f"{DRIVER}._check_shared_storage_test_file", lambda *_: self.folder_is_shared
            )
        )

    def start_compute(self, hostname="a", *args, **kwargs):
        started = super().start_compute(hostname, *args, **kwargs)
        if hostname == "b":
            self.separate(self.driver_there)
        return started

    @property
    def driver_there(self):
        return self.computes["b"].driver

    def separate(self, driver):
        """Have another node find no folder of a server: here all nodes have the same ones."""
        begin = driver.pre_live_migration

        def pre_live_migration(context, instance, *args):
            shutil.rmtree(libvirt_utils.get_instance_path(instance))
            return begin(context, instance, *args)

        self.useFixture(fixtures.MockPatchObject(driver, "pre_live_migration", pre_live_migration))

    def make_cdroms_readonly(self):
        """Have the fixture say of CD-ROMs what libvirt says."""
        parse = vconfig.LibvirtConfigGuestDisk.parse_dom

        def parse_dom(disk, description):
            parse(disk, description)
            disk.readonly |= description.get("device") == "cdrom"

        self.useFixture(
            fixtures.MockPatchObject(vconfig.LibvirtConfigGuestDisk, "parse_dom", parse_dom)
        )

    def libvirt_does(self, send):
        def migrate(domain, destination, params, flags):
            send(domain, params, flags)

        self.useFixture(fixtures.MockPatchObject(fakelibvirt.Domain, "migrateToURI3", migrate))


class LiveCase(LiveNodesCase):
    """A server that goes from node ``a`` to node ``b``."""

    def setUp(self):
        super().setUp()
        for host in ("a", "b"):
            self.start_compute(host)
        self.make_cdroms_readonly()
        self.meanwhile = lambda: None
        self.copied = []
        self.libvirt_does(self.send_memory)
        self.server = self.boot(flavor_id=self.flavor(), host="a")

    def send_memory(self, domain, params, flags):
        """Do what libvirt does; "meanwhile", too, before it says so."""
        self.assertTrue(flags & fakelibvirt.VIR_MIGRATE_PAUSED)
        kept = fakelibvirt.VIR_MIGRATE_POSTCOPY | fakelibvirt.VIR_MIGRATE_UNDEFINE_SOURCE
        self.assertFalse(flags & kept)
        self.copied.append(params.get("migrate_disks"))
        self.assertEqual(
            bool(self.copied[-1]), bool(flags & fakelibvirt.VIR_MIGRATE_NON_SHARED_INC)
        )
        self.assertEqual("arriving", self.agents["b"].vms[self.server["id"]]["state"])
        self.driver_there._host.get_connection().createXML(params["destination_xml"], 0)
        self.domain("b").suspend()
        domain.destroy()
        self.meanwhile()
        domain.complete_job()

    def domain(self, host):
        return self.guest(host, self.server)._domain

    def migrate(self, status, **more):
        self._live_migrate(self.server, migration_expected_state=status, **more)

    def start_to_migrate(self, block_migration):
        body = {"os-migrateLive": {"host": None, "block_migration": block_migration}}
        self.api.post_server_action(self.server["id"], body)

    def assert_runs_on(self, host, other):
        self.assertEqual([host], self.places(self.server))
        self.assertEqual("ready", self.disk(self.server)["state"])
        self.assertTrue(self.domain(host).isActive())
        self.assertIn(self.disk(self.server)["device"], self.opened(host, self.server))
        self.assertRaises(fakelibvirt.libvirtError, self.domain, other)


class LiveTest(LiveCase):
    def test_guest_and_disk_go_together(self):
        self.migrate("completed")
        self.assert_runs_on("b", "a")
        self._reboot_server(self.server, hard=True)
        self.assert_runs_on("b", "a")
        self._delete_server(self.server)
        self.assertEqual([], self.places(self.server))

    def test_guest_goes_on_as_soon_as_the_disk_is_there(self):
        def post(driver, context, instance, network_info):
            for _ in range(100):
                if self.domain("b").isActive():
                    break
                time.sleep(0.1)
            went_on.append(self.domain("b").isActive())

        went_on = []
        self.useFixture(
            fixtures.MockPatch(f"{DRIVER}.post_live_migration_at_source", post, autospec=True)
        )
        self.migrate("completed")
        self.assertEqual([1], went_on)

    def test_guest_that_nobody_waited_for_goes_on_in_the_end(self):
        self.useFixture(fixtures.MockPatchObject(self.driver_there, "_await_guest"))
        self.migrate("completed")
        self.assert_runs_on("b", "a")

    def test_paused_server_stays_paused(self):
        self.act(self.server, "pause", status="PAUSED")
        self.migrate("completed", server_expected_state="PAUSED")
        self.assertEqual(["b"], self.places(self.server))
        self.assertFalse(self.domain("b").isActive())

    def test_disk_that_cannot_be_sent(self):
        self.agents["a"].peers = {}
        self.migrate("failed")
        self.assert_runs_on("a", "b")

    def test_disk_that_cannot_be_sent_after_all(self):
        self.agents["a"].failed = {"state": "failed", "note": "full", "code": "virtman.error"}
        self.migrate("failed")
        self.assert_runs_on("a", "b")

    def test_abort_while_the_disk_is_on_its_way(self):
        self.agents["a"].sent = "sending"
        self.migrate("running", server_expected_state="MIGRATING")
        (migration,) = self.api.api_get(f"/os-migrations?instance_uuid={self.server['id']}").body[
            "migrations"
        ]
        self.api.api_delete(f"/servers/{self.server['id']}/migrations/{migration['id']}")
        self._wait_for_migration_status(self.server, ["cancelled"])
        self._wait_for_state_change(self.server, "ACTIVE")
        self.assert_runs_on("a", "b")

    def test_memory_stays_if_the_disk_can_follow_no_more(self):
        aborted = []

        def send(domain, params, flags):
            domain._job_type = fakelibvirt.VIR_DOMAIN_JOB_UNBOUNDED
            self.agents["a"].waits[self.server["id"]] = "sending"
            for _ in range(100):
                if aborted:
                    break
                time.sleep(0.1)
            domain.fail_job()
            raise fakelibvirt.make_libvirtError(
                fakelibvirt.libvirtError,
                "aborted",
                error_code=fakelibvirt.VIR_ERR_OPERATION_FAILED,
            )

        def abort(domain):
            aborted.append(domain)

        self.useFixture(fixtures.MockPatchObject(fakelibvirt.Domain, "abortJob", abort))
        self.libvirt_does(send)
        self.migrate("failed")
        self.assertTrue(aborted)
        self.assert_runs_on("a", "b")

    def test_guest_whose_disk_did_not_follow_starts_where_it_is(self):
        self.meanwhile = lambda: self.agents["a"].cancel_move(self.server["id"])
        self.migrate("failed")
        self.assert_runs_on("a", "b")

    def test_libvirt_copies_the_files_of_a_server_and_not_its_disk(self):
        self.server = self.boot(flavor_id=self.flavor(ephemeral=1, swap=64), host="a")
        self.migrate("completed")
        self.assertEqual([["vdb", "vdc"]], self.copied)
        self.assert_runs_on("b", "a")
        self.assertEqual(3 * units.Gi, self.disk(self.server)["size"])

    def test_config_drive_goes_first(self):
        self.server = self.boot(flavor_id=self.flavor(swap=64), host="a", config_drive=True)
        self.migrate("completed")
        self.assertEqual([("disk.config", "b")], self.files.sent)
        self.assertEqual([["vdb"]], self.copied)
        self.assert_runs_on("b", "a")

    def test_server_whose_config_drive_cannot_be_sent_stays(self):
        self.server = self.boot(flavor_id=self.flavor(), host="a", config_drive=True)
        refused = processutils.ProcessExecutionError("no route")
        with fixtures.MockPatch("nova.virt.libvirt.utils.copy_image", side_effect=refused):
            self.migrate("failed")
        self.assert_runs_on("a", "b")

    def test_server_with_files_whose_disk_cannot_be_sent(self):
        self.server = self.boot(flavor_id=self.flavor(swap=64), host="a")
        self.agents["a"].peers = {}
        self.migrate("failed")
        self.assert_runs_on("a", "b")

    def test_disk_is_not_copied_though_the_user_says_so(self):
        self.start_to_migrate(block_migration=True)
        self._wait_for_migration_status(self.server, ["completed"])
        self._wait_for_state_change(self.server, "ACTIVE")
        self.assertEqual([None], self.copied)
        self.assert_runs_on("b", "a")

    def test_shared_folder_of_servers_is_refused(self):
        self.folder_is_shared = True
        self.start_to_migrate(block_migration="auto")
        self._wait_for_migration_status(self.server, ["error"])
        self._wait_for_server_parameter(
            self.server, {"status": "ACTIVE", "OS-EXT-STS:task_state": None}
        )
        self.assertEqual(["a"], self.places(self.server))
