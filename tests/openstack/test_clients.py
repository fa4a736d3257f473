"""Clients that know nothing of VirtMan: what they ask Nova for, they get."""

from lab.openstack.orchestration import Orchestration
from lab.openstack.settings import Nova
from lab.openstack.tempest import Tempest
from lab.openstack.tofu import Tofu
from lab.rootfs import TOP
from lab.waiting import wait_until
from tests.openstack.base import CloudCase

EXAMPLES = TOP / "etc/examples"
COUNT = 3
GIB = 1 << 30


class ClientsCase(CloudCase):
    nova = Nova.DRIVER

    def setUp(self):
        super().setUp()
        self.name = "plain"
        self.guest_as_image(self.name)

    def assert_of_virtman(self, servers):
        """All boot, and have found their root disks right; none of these is a volume."""
        self.assertEqual(COUNT, len(set(servers)))
        self.servers.wait(servers, "ACTIVE")
        for server in servers:
            self.assert_right(server, 1)
            self.assertEqual(GIB, self.disk(server)["size"])
        self.assertEqual([], self.servers.volumes())

    def assert_all_gone(self):
        """No server is left; of some Nova may say for a moment that they are deleted."""
        wait_until(lambda: not self.servers.all(), "the end of the servers", 30, 0.5)


class TestTofu(ClientsCase):
    def test_example_makes_servers_of_an_image_and_removes_them(self):
        tofu = Tofu(self.cloud, EXAMPLES / "tofu", image=self.name, flavor="guest")
        tofu.apply()
        self.assert_of_virtman(tofu.output("servers"))
        self.assertIn("No changes.", tofu.plan())
        tofu.destroy()
        self.assert_all_gone()


class TestHeat(ClientsCase):
    def test_example_makes_servers_of_an_image_and_removes_them(self):
        heat = Orchestration(self.cloud)
        self.addCleanup(heat.stop)
        heat.start()
        values = {"image": self.name, "flavor": "guest"}
        given = [word for pair in values.items() for word in ("--parameter", "=".join(pair))]
        template = str(EXAMPLES / "heat/servers.yaml")
        heat.order("stack", "create", "--wait", "--template", template, *given, "web")
        found = heat.client("stack", "output", "show", "web", "servers")["output_value"]
        self.assert_of_virtman(found)
        heat.order("stack", "delete", "--wait", "--yes", "web")
        self.assert_all_gone()


class TestTempest(CloudCase):
    """A few of the tests, by which all kinds of operations are seen; a command runs all."""

    nova = Nova.DRIVER
    few = (
        r"test_multiple_create\.MultipleCreateTestJSON",
        r"test_server_actions\.ServerActionsTestJSON",
        r"ServerActionsTestOtherB\.test_(create_backup|shelve_unshelve_server)",
        r"test_images_oneserver\.ImagesOneServerTestJSON",
        r"test_migrations\.MigrationsAdminTest\.test_(cold_migration|revert_cold_migration)\[",
        r"test_live_migration\.LiveMigrationTest\.test_live_block_migration",
    )

    def test_passes(self):
        found = Tempest(self.cloud).run("|".join(self.few))
        self.assertEqual([], found.failed)
        self.assertGreater(len(found.passed), 15)
