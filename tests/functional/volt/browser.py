"""A real Chromium without a window."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import testtools
from axe_core_python.selenium import Axe
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE = 60  # seconds; pages that look again do so every two, or five
FLAGS = (
    "--headless",
    "--no-sandbox",  # it needs one when root starts it, as in the tests
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1600,1100",
)
ARTIFACTS = Path(os.environ.get("VIRTMAN_ARTIFACTS", ".stestr/artifacts"))


def start(cleanups):
    """Return a driver of a browser with an empty profile; both end with the ExitStack."""
    profile = cleanups.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
    cleanups.callback(driver.quit)
    return driver


@contextmanager
def before_scripts(driver, script):
    """Let pages that are opened meanwhile run a script before any of their own."""
    domain = "ScriptToEvaluateOnNewDocument"
    added = driver.execute_cdp_cmd(f"Page.add{domain}", {"source": script})
    try:
        yield
    finally:
        driver.execute_cdp_cmd(f"Page.remove{domain}", added)


def prefer(driver, scheme):
    """Let pages be light or dark."""
    wish = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wish})


def keep_screenshot(driver, name):
    """Store what the window shows as a picture."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    driver.save_screenshot(str(ARTIFACTS / f"{name}.png"))


class BrowserCase(testtools.TestCase):
    """A test of what ``driver``, a browser, shows."""

    def find(self, css):
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def find_all(self, css):
        """Return what is in sight."""
        return [
            each for each in self.driver.find_elements(By.CSS_SELECTOR, css) if each.is_displayed()
        ]

    def texts(self, css):
        return self.run_script(
            "[...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())", css
        )

    def run_script(self, expression, *arguments):
        return self.driver.execute_script(f"return {expression}", *arguments)

    def wait(self, condition, what, patience=PATIENCE):
        """Wait until a condition is something true; return it."""
        wait = WebDriverWait(self.driver, patience, 0.1, [StaleElementReferenceException])
        return wait.until(lambda _: condition(), what)

    def wait_for(self, css):
        """Wait until there is such an element in sight; return it."""
        return self.wait(lambda: next(iter(self.find_all(css)), None), css)

    def wait_until(self, expression, *arguments):
        """Wait until the page answers something true; return it."""
        return self.wait(lambda: self.run_script(expression, *arguments), expression)

    def complaints(self):
        """Return what the browser has to say since it was asked last."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def assert_accessible(self, css=None, but=()):
        faults = [
            (each["id"], [node["html"][:200] for node in each["nodes"]])
            for each in Axe().run(self.driver, css)["violations"]
            if each["id"] not in but
        ]
        self.assertEqual([], faults)
