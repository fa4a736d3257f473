"""A user boots servers from a snapshot, and what is asked of Nova for that."""

import unittest
from contextlib import ExitStack

from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.horizon.base import GOLDEN, Stage, StageCase
from tests.horizon.cloud import number, snapshot
from tests.horizon.pages import LISTED, STOCK, VIRTMAN, WizardCase


def setUpModule():
    cleanups = ExitStack()
    unittest.addModuleCleanup(cleanups.close)
    LaunchCase.stage = Stage(cleanups)


class LaunchCase(StageCase, WizardCase):
    def setUp(self):
        super().setUp()
        self.cloud.servers.clear()

    def asked(self):
        """Wait until Nova was asked for servers; return the request."""
        self.wait(lambda: self.cloud.asked, "a request")
        ((method, path, body),) = self.cloud.asked
        self.assertEqual(("POST", "/compute/v2.1/servers"), (method, path))
        return body["server"]


class TestLaunch(LaunchCase):
    def test_three_servers_of_one_snapshot_become_active(self):
        self.begin()
        self.transfer(GOLDEN)
        self.describe("web", 3)
        self.show("Source")
        self.wait(lambda: "Up to 24 GiB" in self.needs(), "the space for three servers")
        self.keep_screenshot("launch-source")
        self.show("Flavor")
        self.transfer("m1.small")
        self.finish()
        disk = {
            "uuid": snapshot(GOLDEN),
            "source_type": "snapshot",
            "destination_type": "volume",
            "boot_index": "0",
            "volume_type": "virtman",
            "delete_on_termination": True,
        }
        server = {
            "name": "web",
            "imageRef": "",
            "flavorRef": number("m1.small"),
            "min_count": 3,
            "max_count": 3,
            "availability_zone": "nova",
            "networks": [{"uuid": number("network")}],
            "OS-DCF:diskConfig": "AUTO",
            "block_device_mapping_v2": [disk],
        }
        self.assertEqual(server, self.asked())
        self.wait(lambda: sorted(self.active()) == ["web-1", "web-2", "web-3"], "ACTIVE")
        self.keep_screenshot("launch-active")
        self.assertEqual([], self.complaints())

    def test_a_stock_source_asks_for_what_it_always_did(self):
        self.begin(STOCK)
        self.transfer(GOLDEN)
        self.assertEqual("", self.needs())
        self.describe("web", 2)
        self.show("Flavor")
        self.transfer("m1.small")
        self.finish()
        (disk,) = self.asked()["block_device_mapping_v2"]
        self.assertNotIn("volume_type", disk)
        self.assertFalse(disk["delete_on_termination"])

    def test_a_snapshot_stays_chosen_when_the_source_changes(self):
        self.begin(STOCK)
        self.transfer(GOLDEN)
        Select(self.find("#boot-source-type")).select_by_visible_text(VIRTMAN)
        self.wait(lambda: "Up to 8 GiB" in self.needs(), "the space for one server")
        self.assertIn(GOLDEN, self.chosen())
        Select(self.find("#boot-source-type")).select_by_visible_text("Volume")
        self.wait(lambda: self.needs() == "", "another source")
        self.assertNotIn(GOLDEN, self.chosen())

    def test_more_than_the_quota_is_said_to_be_more(self):
        self.begin()
        self.transfer(GOLDEN)
        self.describe("web", 21)
        self.show("Source")
        self.wait(lambda: "21 of 20" in self.needs(), "the number of instances")
        self.assertIn("More than your quota allows", self.needs())
        self.assertIn("None of your quota", self.needs())

    def test_without_a_quota_nothing_is_said_of_it(self):
        self.addCleanup(setattr, self.cloud, "quota", self.cloud.quota)
        self.cloud.quota = -1
        self.begin()
        self.transfer(GOLDEN)
        self.assertIn("Instances 1 Volumes", self.needs())

    def test_what_nova_refuses_is_said_in_its_words_and_can_be_mended(self):
        self.cloud.refusal = "Block Device Mapping is Invalid: use_vmtsnapshot is off"
        self.addCleanup(setattr, self.cloud, "refusal", None)
        self.begin()
        self.transfer(GOLDEN)
        self.describe("web", 2)
        self.show("Flavor")
        self.transfer("m1.small")
        self.finish()
        self.wait(lambda: "use_vmtsnapshot is off" in self.find(".modal-body .alert").text, "why")
        self.keep_screenshot("launch-refused")
        self.cloud.refusal = None
        self.cloud.asked.clear()
        self.finish()
        self.assertEqual("virtman", self.asked()["block_device_mapping_v2"][0]["volume_type"])


class TestOffer(LaunchCase):
    def test_who_may_not_use_the_volume_type_is_not_offered_the_source(self):
        self.cloud.types.remove("virtman")
        self.addCleanup(self.cloud.types.append, "virtman")
        self.begin(STOCK)
        self.assertEqual(sorted(LISTED), self.sources())

    def test_a_volt_that_does_not_answer_takes_the_source_away_and_nothing_else(self):
        self.stage.volt.kill()
        self.addCleanup(self.stage.volt.start)
        # The answer of before counts for 15 seconds.
        self.wait(lambda: self.reason() == "volt", "the end of what Horizon believes")
        self.begin(STOCK)
        self.assertNotIn(VIRTMAN, self.sources())

    def reason(self):
        self.open("/project/instances/")
        return self.driver.execute_async_script(
            "const done = arguments[0];"
            "fetch('/api/virtman/launch/', {headers: {'X-Requested-With': 'XMLHttpRequest'}})"
            ".then(answer => answer.json()).then(({reason}) => done(reason))"
        )


class TestCare(LaunchCase):
    def test_a_keyboard_is_enough(self):
        self.open_wizard()
        self.wait(lambda: {VIRTMAN, *LISTED} <= set(self.sources()), VIRTMAN)
        select = self.find("#boot-source-type")
        self.run_script("arguments[0].focus()", select)
        select.send_keys(VIRTMAN[:6])
        self.wait(lambda: "What these servers need" in self.needs(), "the source")
        self.press_until(
            "document.activeElement.matches('button')"
            f" && document.activeElement.closest('tr')?.textContent.includes('{GOLDEN}')"
        )
        self.driver.switch_to.active_element.send_keys(Keys.ENTER)
        self.wait(lambda: "Up to 8 GiB" in self.needs(), "the snapshot")

    def press_until(self, expression, most=40):
        for _ in range(most):
            if self.run_script(expression):
                return
            self.driver.switch_to.active_element.send_keys(Keys.TAB)
        self.fail(f"{most} tabs lead nowhere")

    def test_what_is_needed_is_read_out_when_it_changes(self):
        self.begin(STOCK)
        self.transfer(GOLDEN)
        live = self.find("#virtman-needs")
        self.assertEqual("polite", live.get_attribute("aria-live"))
        self.assertEqual("status", live.get_attribute("role"))
        Select(self.find("#boot-source-type")).select_by_visible_text(VIRTMAN)
        self.wait(lambda: "Up to 8 GiB" in live.text, "text in the same element")

    def test_axe_finds_nothing_to_improve(self):
        self.begin()
        self.transfer(GOLDEN)
        self.wait(lambda: "Up to 8 GiB" in self.needs(), "the snapshot")
        self.assert_accessible("#virtman-needs")
