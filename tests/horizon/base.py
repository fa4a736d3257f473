"""What tests of the plug-in stand on: a cloud, a Volt, a Horizon before both, and a browser."""

import shutil
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import testtools
from axe_core_python.selenium import Axe
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.functional.volt import browser, crowd
from tests.functional.volt.base import Ground
from tests.horizon import dashboard
from tests.horizon.cloud import PASSWORD, Cloud, snapshot

PATIENCE = 60  # seconds
GOLDEN = "debian-golden"
IMAGE = f"snapshot-{snapshot(GOLDEN)}"
FOREIGN = f"snapshot-{snapshot('of another project')}"
HOSTS = 14

# What Horizon's own scripts say on every page, and on each modal.
_USUAL = ("JQMIGRATE", "[DOM]", "api/glance/metadefs", "max_workers")


class Stage:
    """All of it, for the tests of a module.

    :ivar virtman: the setting VIRTMAN
    """

    def __init__(self, cleanups: ExitStack, more: str = "") -> None:
        self.folder = Path(cleanups.enter_context(TemporaryDirectory()))
        self.plugin = dashboard.install(self.folder)
        self.cloud = Cloud(cleanups)
        self.ground = Ground(cleanups)
        crowd.populate(self.ground, HOSTS, IMAGE)
        crowd.populate(self.ground, 3, FOREIGN)
        self.volt, self.volt_url = self.start_volt(cleanups)
        self.horizon = cleanups.enter_context(
            dashboard.Dashboard(
                self.folder / "horizon",
                self.plugin,
                f"{self.cloud.url}/identity/v3",
                self.settings(),
                more,
            )
        )
        self.driver = browser.start(cleanups)
        self.user = None

    def start_volt(self, cleanups):
        """Start a Volt that knows its users by tokens of its own."""
        return crowd.serve(self.ground, cleanups)

    def settings(self):
        """Show that Volt a token from a file."""
        file = self.folder / "token"
        file.write_text(self.ground.token("reader"))
        return {"endpoint": self.volt_url, "token_file": str(file), "timeout": 5.0}


class StageCase(testtools.TestCase):
    """A test on a stage; ``user`` is who is logged in."""

    stage: Stage
    user = "demo"

    def setUp(self):
        super().setUp()
        self.cloud, self.driver = self.stage.cloud, self.stage.driver
        self.addOnException(self._explain)
        self.driver.set_window_size(1600, 1100)
        self.cloud.asked.clear()
        if self.stage.user != self.user:
            self.log_in()
        self.driver.get_log("browser")

    def log_in(self):
        self.driver.get("about:blank")  # or what is under way would bring the session back
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self.driver.get(f"{self.stage.horizon.url}/auth/login/")
        self.wait_for("#id_username").send_keys(self.user)
        self.find("#id_password").send_keys(PASSWORD)
        self.find("#loginBtn").click()
        self.wait_until("!location.pathname.startsWith('/auth/')")
        self.stage.user = self.user

    def open(self, path):
        self.driver.get(self.stage.horizon.url + path)

    def find(self, css):
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def find_all(self, css):
        return [
            each for each in self.driver.find_elements(By.CSS_SELECTOR, css) if each.is_displayed()
        ]

    def wait_for(self, css):
        """Wait until there is such an element in sight, and return it."""
        return self.wait(lambda: next(iter(self.find_all(css)), None), css)

    def wait_until(self, expression):
        """Wait until the page answers something true."""
        return self.wait(lambda: self.run_script(expression), expression)

    def wait(self, condition, what):
        wait = WebDriverWait(self.driver, PATIENCE, 0.1, [StaleElementReferenceException])
        return wait.until(lambda _: condition(), what)

    def run_script(self, expression, *arguments):
        return self.driver.execute_script(f"return {expression}", *arguments)

    def texts(self, css):
        return self.run_script(
            "[...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())", css
        )

    def complaints(self):
        """Return what the browser has to say, but for what it says of any Horizon."""
        found = [entry["message"] for entry in self.driver.get_log("browser")]
        return [each for each in found if not any(usual in each for usual in _USUAL)]

    def assert_accessible(self, css, but=()):
        faults = [
            (each["id"], [node["html"][:200] for node in each["nodes"]])
            for each in Axe().run(self.driver, css)["violations"]
            if each["id"] not in but
        ]
        self.assertEqual([], faults)

    def keep_screenshot(self, name):
        browser.keep_screenshot(self.driver, f"horizon-{name}")

    def _explain(self, _):
        self.keep_screenshot(self.id())
        shutil.copy(self.stage.horizon.log, browser.ARTIFACTS / f"horizon-{self.id()}.log")
        self.addDetail("browser", testtools.content.text_content("\n".join(self.complaints())))
