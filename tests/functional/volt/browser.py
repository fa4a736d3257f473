"""A real Chromium without a window."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver

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
