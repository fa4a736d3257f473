"""How the pages of the documentation look on a small screen, in a real browser."""

import subprocess
import sys
import tempfile
import unittest
from contextlib import ExitStack
from pathlib import Path

from tests.functional.volt import browser

SOURCE = Path(__file__).resolve().parents[3] / "doc" / "source"
WIDTH = 1280  # pixels

# What a reader would have to scroll sideways: the page itself, a table, a block of text.
WIDE = """[...document.querySelectorAll('html, .docs-body *')]
    .filter(e => e.scrollWidth > e.clientWidth && getComputedStyle(e).display !== 'inline')
    .map(e => `${e.tagName} ${e.scrollWidth} > ${e.clientWidth}: ${e.textContent.slice(0, 60)}`)"""
FOREIGN = """performance.getEntriesByType('resource').map(e => e.name)
    .filter(name => !name.startsWith('file:'))"""


def setUpModule():
    cleanups = ExitStack()
    unittest.addModuleCleanup(cleanups.close)
    PagesTest.folder = Path(cleanups.enter_context(tempfile.TemporaryDirectory()))
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", SOURCE, PagesTest.folder]
    subprocess.run(command, check=True)
    PagesTest.driver = browser.start(cleanups)
    PagesTest.driver.set_window_size(WIDTH, 1000)


class PagesTest(browser.BrowserCase):
    def test_pages_fit_the_screen_and_need_nothing_from_elsewhere(self):
        faults = {path.stem: self.faults(path) for path in self.folder.rglob("*.html")}
        self.assertIn("index", faults)
        self.assertEqual({}, {page: found for page, found in faults.items() if found})
        self.assertEqual([], self.complaints())

    def faults(self, path):
        self.driver.get(path.as_uri())
        return self.run_script(WIDE) + self.run_script(FOREIGN)
