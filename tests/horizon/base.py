"""What tests of the plug-in stand on: a cloud, a Volt, a Horizon before both, and a browser."""

import shutil
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import testtools

from tests.functional.volt import browser, crowd
from tests.functional.volt.base import Ground
from tests.functional.volt.keystone import PASSWORD
from tests.horizon import dashboard
from tests.horizon.cloud import Cloud, snapshot
from tests.horizon.pages import DashboardCase

GOLDEN = "debian-golden"
IMAGE = f"snapshot-{snapshot(GOLDEN)}"
FOREIGN = f"snapshot-{snapshot('of another project')}"
HOSTS = 14


class Stage:
    """All of it, for the tests of a module.

    :ivar browsers: one for each user who is logged in. Users cannot share one: an answer that is
        still on its way to the pages of the last brings that one's session back
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
                self.cloud.keystone.url,
                self.settings(),
                more,
            )
        )
        self.cleanups = cleanups
        self.browsers = {}

    def start_volt(self, cleanups):
        """Start a Volt that knows its users by tokens of its own."""
        return crowd.serve(self.ground, cleanups)

    def settings(self):
        """Show that Volt a token from a file."""
        file = self.folder / "token"
        file.write_text(self.ground.token("reader"))
        return {"endpoint": self.volt_url, "token_file": str(file), "timeout": 5.0}


class StageCase(DashboardCase):
    """A test on a stage; ``user`` is who is logged in."""

    stage: Stage
    user = "demo"

    def setUp(self):
        super().setUp()
        self.cloud, self.url = self.stage.cloud, self.stage.horizon.url
        browsers = self.stage.browsers
        if self.user not in browsers:
            self.driver = browser.start(self.stage.cleanups)
            self.log_in(self.user, PASSWORD)
            browsers[self.user] = self.driver
        self.driver = browsers[self.user]
        self.addOnException(self._explain)
        self.driver.set_window_size(1600, 1100)
        self.cloud.asked.clear()
        self.driver.get_log("browser")

    def keep_screenshot(self, name):
        super().keep_screenshot(f"horizon-{name}")

    def _explain(self, _):
        self.keep_screenshot(self.id())
        shutil.copy(self.stage.horizon.log, browser.ARTIFACTS / f"horizon-{self.id()}.log")
        self.addDetail("browser", testtools.content.text_content("\n".join(self.complaints())))
