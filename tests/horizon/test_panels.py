"""The panels: what administrators see of Volt, and what a project sees of its own."""

import unittest
from contextlib import ExitStack

from selenium.webdriver.common.keys import Keys

from tests.functional.volt import crowd
from tests.horizon.base import FOREIGN, GOLDEN, HOSTS, IMAGE, Stage, StageCase
from tests.horizon.cloud import snapshot
from volt.db.models import EventRow, HostRow

HOSTILE = "<img src=x onerror='window.hit=1'>"


def setUpModule():
    cleanups = ExitStack()
    unittest.addModuleCleanup(cleanups.close)
    StageCase.stage = Stage(cleanups)


class AdminCase(StageCase):
    user = "admin"

    def setUp(self):
        super().setUp()
        self.open("/admin/virtman/")
        self.wait_until("document.querySelectorAll('#virtman .node').length > 2")
        self.choose(IMAGE)

    def choose(self, image):
        button = self.wait(
            lambda: next(
                each for each in self.find_all("#images button.link") if each.text == image
            ),
            image,
        )
        button.click()
        self.wait_until(f"document.getElementById('image-name').textContent.includes('{image}')")

    def trees(self):
        return self.stage.ground.images.trees(IMAGE).trees

    def facts(self):
        names, numbers = self.texts("#health dt"), self.texts("#health dd")
        return dict(zip(names, numbers, strict=True))


class TestPicture(AdminCase):
    def test_an_administrator_sees_the_trees_as_a_picture(self):
        drawn = self.run_script("[...document.querySelectorAll('.node')].map(e => e.id)")
        nodes = {f"tree-{tree.stripe}-{node.host}" for tree in self.trees() for node in tree.nodes}
        self.assertEqual(sorted(nodes | {"tree-0-source.", "tree-1-source."}), sorted(drawn))
        self.driver.set_window_size(1600, 2600)
        self.keep_screenshot("admin")
        self.assertEqual([], self.complaints())

    def test_names_of_hosts_have_the_same_size_however_large_the_picture_is(self):
        # Horizon has rules of its own for texts of nodes.
        size = "parseFloat(getComputedStyle(document.querySelector('#picture .label')).fontSize)"
        zoom = "getComputedStyle(document.getElementById('picture')).getPropertyValue('--zoom')"
        for button in ("zoom-fit", "zoom-in"):
            self.find(f"#{button}").click()
            self.assertAlmostEqual(11, self.run_script(f"{size} * {zoom}"), 1)

    def test_health_images_and_hosts_are_those_of_volt(self):
        known = [one.host for one in self.stage.ground.hosts.index()]
        facts = self.facts()
        self.assertEqual(
            ("2", str(len(known)), str(HOSTS + 3)),
            (facts["Images"], facts["Hosts"], facts["Places in trees"]),
        )
        self.assertEqual("1", facts["! overloaded"])
        self.assertEqual(sorted([IMAGE, FOREIGN]), sorted(self.texts("#images tbody th")))
        self.assertEqual(known, self.texts("#hosts tbody th"))

    def test_another_image_has_other_trees(self):
        self.choose(FOREIGN)
        self.wait_until("document.querySelectorAll('.node').length === 2 * (3 + 1)")
        self.assertEqual(6, len(self.texts("#places tbody tr")))

    def test_a_join_is_shown_and_said_without_a_reload(self):
        self.run_script("document.getElementById('tree-0-node0000').isOld = true")
        crowd.join(self.stage.ground, 8000, IMAGE)
        self.addCleanup(self.stage.ground.placements.remove, IMAGE, crowd.name(8000))
        self.wait_until("document.getElementById('tree-1-node8000')")
        self.assertTrue(self.run_script("document.getElementById('tree-0-node0000').isOld"))
        self.wait_until("document.getElementById('news').textContent.includes('changed')")
        self.assertEqual("status", self.find("#news").get_attribute("role"))
        self.wait_until("document.querySelector('#events li').textContent.includes('node8000')")

    def test_a_silent_volt_is_an_alarm_until_it_answers(self):
        self.stage.volt.kill()
        self.wait(lambda: "Volt does not answer" in self.find("#alarm").text, "the alarm")
        self.assertEqual("alert", self.find("#alarm").get_attribute("role"))
        self.assertIn("What you see is of", self.find("#alarm").text)
        self.keep_screenshot("admin-silent")
        self.stage.volt.start()
        self.wait(lambda: not self.find("#alarm").is_displayed(), "the end of the alarm")

    def test_what_hosts_say_is_text_and_never_markup(self):
        self.addCleanup(self.say, crowd.rack(9))
        self.say(HOSTILE)
        self.wait_until("document.getElementById('events').textContent.includes('onerror')")
        self.wait_until("document.getElementById('hosts').textContent.includes('onerror')")
        self.assertEqual(0, self.run_script("document.querySelectorAll('#virtman img').length"))
        self.assertIsNone(self.run_script("window.hit"))

    def say(self, text):
        """Store what Volt's API would refuse."""
        with self.stage.ground.placements._writing.begin() as session:
            session.get(HostRow, crowd.name(9)).rack = text
            session.add(EventRow(at=crowd.now(), kind="join", image=text, host=text, detail=text))


class TestCare(AdminCase):
    def test_the_keyboard_walks_along_the_trees(self):
        self.run_script("document.getElementById('zoom-fit').focus()")
        self.driver.switch_to.active_element.send_keys(Keys.TAB)
        picture = self.driver.switch_to.active_element
        self.assertEqual("picture", picture.get_attribute("id"))
        picture.send_keys(Keys.HOME, Keys.ARROW_DOWN)
        first = self.trees()[0].nodes[0].host
        self.assertEqual(f"tree-0-{first}", picture.get_attribute("aria-activedescendant"))
        self.assertTrue(self.find("#chosen").text.startswith(f"{first} feeds "))

    def test_a_host_of_the_table_is_shown_in_the_picture(self):
        button = self.find_all("#hosts tbody button")[3]
        button.send_keys(Keys.ENTER)
        self.assertEqual("picture", self.driver.switch_to.active_element.get_attribute("id"))
        self.assertIn(crowd.name(3), self.find("#chosen").text)

    def test_axe_finds_nothing_to_improve(self):
        self.find("#picture").send_keys(Keys.HOME, Keys.ARROW_DOWN)
        self.assert_accessible("#virtman")


class TestProject(StageCase):
    def test_a_project_sees_the_images_of_its_own_snapshots(self):
        self.open("/project/virtman/")
        row = self.texts("#virtman_images tbody tr:first-child td")
        self.assertEqual([GOLDEN, "8.0\xa0GB", str(HOSTS)], row[:3])
        self.assertEqual(1, len(self.texts("#virtman_images tbody tr")))
        link = self.find("#virtman_images tbody a").get_attribute("href")
        self.assertTrue(link.rstrip("/").endswith(f"/project/snapshots/{snapshot(GOLDEN)}"), link)
        self.assertNotIn(crowd.name(0), self.driver.page_source)
        self.assert_accessible("#virtman_images", but=["color-contrast"])  # Horizon's own colours
        self.keep_screenshot("project")

    def test_the_panel_of_administrators_is_not_for_users(self):
        self.assertEqual(
            (403, 403), (self.status("overview"), self.status(f"images/{IMAGE}/trees"))
        )
        self.open("/admin/virtman/")
        self.assertEqual([], self.find_all("#virtman"))

    def status(self, path):
        self.open("/project/")
        return self.driver.execute_async_script(
            "const [path, done] = arguments;"
            "fetch(`/api/virtman/${path}/`, {headers: {'X-Requested-With': 'XMLHttpRequest'}})"
            ".then(answer => done(answer.status))",
            path,
        )
