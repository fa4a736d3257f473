#!/usr/bin/env python3
"""Takes the documentation's picture of the status page: of a real Volt, by a real browser.

Run it after ``source tools/setup.sh; prepare``.
"""

from contextlib import ExitStack
from pathlib import Path

from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.functional.volt import browser, crowd
from tests.functional.volt.base import Ground

PICTURE = Path(__file__).resolve().parent.parent / "doc" / "source" / "images" / "status-page.png"
HOSTS = 60
SIZE = 1440, 1000  # pixels


def main() -> None:
    """Show a forest of hosts, of which one was searched for."""
    with ExitStack() as cleanups:
        ground = Ground(cleanups)
        crowd.populate(ground, HOSTS)
        _, url = crowd.serve(ground, cleanups)
        driver = browser.start(cleanups)
        driver.set_window_size(*SIZE)
        driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        browser.prefer(driver, "light")
        token = f"sessionStorage.setItem('volt-token', '{ground.operator}')"
        with browser.before_scripts(driver, token):
            driver.get(f"{url}/#{crowd.IMAGE}")
        drawn = "return document.querySelectorAll('.node').length === arguments[0]"
        nodes = 2 * (HOSTS + 1)  # in each of two trees all hosts and the source
        WebDriverWait(driver, 30).until(lambda _: driver.execute_script(drawn, nodes))
        driver.find_element("id", "search").send_keys(crowd.name(4), Keys.ENTER)
        driver.find_element("id", "picture").send_keys("0")  # the whole of it again
        driver.execute_script("document.activeElement.blur()")
        driver.save_screenshot(PICTURE)


if __name__ == "__main__":
    main()
