"""Other ways to set the plug-in up: Volt asks Keystone, other defaults, another language."""

import unittest
from contextlib import ExitStack

from lab.volt import Volt
from tests.horizon.base import GOLDEN, IMAGE, Stage
from tests.horizon.pages import VIRTMAN
from tests.horizon.test_launch import LaunchCase

MORE = """
DEFAULT_BOOT_SOURCE = "virtman"
"""


class KeystoneStage(Stage):
    """Volt is in the catalog, and believes Keystone; Horizon has no token for it."""

    def start_volt(self, cleanups):
        options = {
            "api": {"auth": "keystone"},
            "heartbeat": {"expiry": 3600},
            "keystone_authtoken": self.cloud.keystone.options(),
        }
        volt = Volt(self.folder, self.ground.url, 1, options)
        cleanups.enter_context(volt)
        self.cloud.keystone.services["virtman"] = f"http://{volt.address}:{volt.port}"
        return volt, None

    def settings(self):
        return {}


def setUpModule():
    cleanups = ExitStack()
    unittest.addModuleCleanup(cleanups.close)
    LaunchCase.stage = KeystoneStage(cleanups, MORE)


class TestAdministrator(LaunchCase):
    user = "admin"

    def test_who_volt_knows_as_an_administrator_sees_the_trees(self):
        self.open("/admin/virtman/")
        self.wait_until("document.querySelectorAll('#virtman .node').length > 2")
        self.assertIn(IMAGE, self.find("#images").text)

    def test_whom_placement_tells_the_free_space_sees_it(self):
        self.begin()
        self.transfer(GOLDEN)
        self.wait(lambda: "40 GiB are free" in self.needs(), "the free space")
        self.assertNotIn("More than there is", self.needs())
        self.describe("web", 6)
        self.show("Source")
        self.wait(lambda: "Up to 48 GiB" in self.needs(), "the space for six servers")
        self.assertIn("More than there is", self.needs())
        self.keep_screenshot("launch-space")


class TestRefusal(LaunchCase):
    def test_a_user_whom_volt_refuses_is_told_so_and_stays_logged_in(self):
        self.open("/project/virtman/")
        self.assertIn("Volt does not let you see this", self.find("#main_content").text)
        self.assertIn("/project/virtman/", self.driver.current_url)

    def test_the_source_may_be_the_default(self):
        self.open_wizard()
        self.wait(lambda: "What these servers need" in self.needs(), "the default source")
        self.assertEqual(VIRTMAN, self.find("#boot-source-type option:checked").text)
        self.wait(lambda: "debian-golden" in self.find("transfer-table").text, "snapshots")


class TestGerman(LaunchCase):
    user = "admin"

    def setUp(self):
        super().setUp()
        self.read_in("de")
        self.addCleanup(self.read_in, "en")

    def test_the_panel_speaks_the_language_of_its_reader(self):
        self.open("/admin/virtman/")
        self.wait_until("document.querySelectorAll('#virtman .node').length > 2")
        self.assertEqual("Zustand", self.find("#health-title").text)
        self.assertIn("Bäume von", self.find("#image-name").text)
        source = self.find("#tree-0-source\\.")
        self.assertEqual("Quelle", source.get_attribute("aria-label"))
        self.keep_screenshot("admin-german")

    def test_so_does_the_source(self):
        self.open_wizard()
        self.wait(lambda: "Von Schattenkopie starten (VirtMan)" in self.sources(), "the source")
        self.wait(lambda: "Was diese Server brauchen" in self.needs(), "the needs")
        self.keep_screenshot("launch-german")
