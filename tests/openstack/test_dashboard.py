"""A user and an administrator before the real Horizon of a real cloud, in a browser."""

from contextlib import ExitStack

from lab.network import ADDRESS
from lab.openstack.dashboard import PORT
from lab.openstack.settings import PASSWORD, SNAPSHOT
from lab.ports import free_port
from tests.functional.volt import browser
from tests.horizon.pages import WizardCase
from tests.openstack.base import CloudCase

WIDE, NARROW = (1600, 1100), (480, 900)
ACTIVE = 300  # seconds, for emulated processors


class TestDashboard(CloudCase, WizardCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        port = free_port()
        forwarding = cls.cloud.bed.forward(port, (ADDRESS, PORT))
        cls.addClassCleanup(forwarding.end)
        cls.url = f"http://127.0.0.1:{port}"

    def enter(self, user):
        """Open a browser in which a user is logged in."""
        cleanups = ExitStack()
        self.addCleanup(cleanups.close)
        self.driver = browser.start(cleanups)
        self.addOnException(lambda _: self.keep_screenshot(self.id()))
        self.driver.set_window_size(*WIDE)
        self.log_in(user, PASSWORD)
        self.complaints()

    def keep_screenshots(self, name):
        """Keep what windows of both widths show."""
        for width, size in (("-narrow", NARROW), ("", WIDE)):
            self.driver.set_window_size(*size)
            self.keep_screenshot(f"openstack-{name}{width}")

    def test_three_servers_of_one_snapshot_become_active(self):
        self.enter("demo")
        self.begin()
        self.transfer(SNAPSHOT)
        self.describe("web", 3)
        self.show("Source")
        self.wait(lambda: "Up to 3 GiB" in self.needs(), "the space for three servers")
        self.assertIn("Instances 3 Volumes", self.needs())  # Nova's quota has no limit here
        self.assert_accessible("#virtman-needs")
        self.keep_screenshots("launch")
        self.show("Flavor")
        self.transfer("guest")
        self.finish()
        names = ["web-1", "web-2", "web-3"]
        self.wait(lambda: sorted(self.active()) == names, "three active servers", ACTIVE)
        self.keep_screenshots("active")
        self.assertEqual([], self.complaints())
        for server in self.servers.all():
            self.assert_right(server.id, 1)
        self.open("/project/virtman/")
        self.keep_screenshots("project")
        self.assertEqual([SNAPSHOT], self.texts("#virtman_images tbody tr td:first-child"))

    def test_an_administrator_sees_the_trees_and_the_hosts(self):
        readers = {self.servers.show(server).host for server in self.boot("web", 2)}
        self.enter("admin")
        self.open("/admin/virtman/")
        self.wait_until("document.querySelectorAll('#virtman .node').length > 2")
        drawn = self.run_script("[...document.querySelectorAll('.node')].map(e => e.id)")
        nodes = {f"tree-{tree}-{host}" for tree in (0, 1) for host in {"source.", *readers}}
        self.assertEqual(nodes, set(drawn))
        (image,) = self.texts("#images tbody th")
        self.assertRegex(image, "^snapshot-")
        hosts = [node.name for node in self.nodes.computes]
        self.assertEqual(sorted(hosts), sorted(self.texts("#hosts tbody th")))
        self.assert_accessible("#virtman")
        self.keep_screenshots("admin")
        self.assertEqual([], self.complaints())
        self.read_in("de")
        self.open("/admin/virtman/")
        self.wait_until("document.querySelectorAll('#virtman .node').length > 2")
        self.assertEqual("Zustand", self.find("#health-title").text)
        self.assertIn("Bäume von", self.find("#image-name").text)
        self.keep_screenshots("admin-german")
