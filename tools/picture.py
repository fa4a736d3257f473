#!/usr/bin/env python3
"""Takes pictures for the documentation, with a real browser.

Run it after ``source tools/setup.sh; prepare``.
"""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

import click
from rich.console import Console
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from lab.report import print_result
from tests.functional.volt import browser, crowd
from tests.functional.volt.base import Ground

PICTURES = Path(__file__).resolve().parent.parent / "doc" / "source" / "images"
HOSTS = 60
SIZE = 1440, 1000  # pixels
COLUMNS = 90
TERMINAL = """\
<body style="margin: 0; background: white"><pre id="shown" style="display: inline-block;
margin: 0; padding: 16px; font: 14px/1.3 'DejaVu Sans Mono', monospace">{code}</pre></body>
"""


@click.group()
def main() -> None:
    """Take a picture for the documentation."""


@main.command()
def status_page() -> None:
    """Of Volt's status page: a forest of hosts, of which one was searched for."""
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
        driver.save_screenshot(PICTURES / "status-page.png")


@main.command()
@click.argument("result", type=click.File())
def demo(result: TextIO) -> None:
    """Of what "tools/demo.sh --json RESULT" printed."""
    with ExitStack() as cleanups, open("/dev/null", "w") as nowhere:
        console = Console(file=nowhere, record=True, width=COLUMNS, highlight=False)
        print_result(console, json.load(result))
        driver = browser.start(cleanups)
        driver.set_window_size(*SIZE)
        driver.get("about:blank")
        page = console.export_html(inline_styles=True, code_format=TERMINAL)
        driver.execute_script("document.documentElement.innerHTML = arguments[0]", page)
        driver.find_element("id", "shown").screenshot(str(PICTURES / "demo.png"))


if __name__ == "__main__":
    main()
