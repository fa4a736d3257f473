"""Horizon's pages, as a user goes through them, whatever cloud is behind."""

from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from tests.functional.volt import browser

VIRTMAN = "Boot from snapshot (VirtMan)"
STOCK = "Volume Snapshot"
LISTED = ("Image", "Instance Snapshot", "Volume", STOCK)

# What Horizon's own scripts say on every page, and on each modal.
_USUAL = ("JQMIGRATE", "[DOM]", "api/glance/metadefs", "max_workers")


class DashboardCase(browser.BrowserCase):
    """A test before a Horizon, which is at ``url``."""

    def log_in(self, user, password):
        self.open("/auth/login/")
        self.wait_for("#id_username").send_keys(user)
        self.find("#id_password").send_keys(password)
        self.find("#loginBtn").click()
        self.wait_until("!location.pathname.startsWith('/auth/')")

    def read_in(self, language):
        """Have pages in a language from now on."""
        self.driver.add_cookie({"name": "horizon_language", "value": language})
        # Horizon calls the words of scripts the same in all languages.
        self.driver.execute_cdp_cmd("Network.clearBrowserCache", {})

    def open(self, path):
        self.driver.get(self.url + path)

    def complaints(self):
        """Return what the browser has to say, but for what it says of any Horizon."""
        return [each for each in super().complaints() if not any(one in each for one in _USUAL)]

    def keep_screenshot(self, name):
        browser.keep_screenshot(self.driver, name)


class WizardCase(DashboardCase):
    """A test of Launch Instance."""

    def begin(self, source=VIRTMAN):
        """Open Launch Instance, and choose a source."""
        self.open_wizard()
        # They come one by one, and each that comes makes Horizon choose anew.
        self.wait(lambda: {source, *LISTED} <= set(self.sources()), source)
        Select(self.find("#boot-source-type")).select_by_visible_text(source)

    def open_wizard(self):
        self.open("/project/instances/")
        self.wait_for("#instances__action_launch-ng").click()
        self.wait_for(".wizard-nav li:nth-child(2) a").click()

    def sources(self):
        return [each.text for each in self.find_all("#boot-source-type option")]

    def show(self, step):
        """Go to a step of the wizard."""
        for each in self.find_all(".wizard-nav li a"):
            if each.text.split("*")[0].strip() == step:
                each.click()

    def transfer(self, name):
        """Choose the row that has this word, of the table in sight."""

        def button():
            for row in self.find_all(".step transfer-table tr"):
                if name in row.text.split():
                    return row.find_element(By.CSS_SELECTOR, "td:last-child button")
            return None

        self.wait(button, name).click()

    def chosen(self):
        """Return the text of the table of what was chosen."""
        return self.find("transfer-table").text.split("Available")[0]

    def describe(self, name, count):
        self.show("Details")
        self.wait_for("#name").send_keys(name)
        field = self.find("#instance-count")
        field.clear()
        field.send_keys(str(count))

    def finish(self):
        self.wait(self.find(".modal-footer button.finish").is_enabled, "the button to launch")
        self.find(".modal-footer button.finish").click()

    def active(self):
        """Return the names of servers that the table shows as active."""
        rows = (row.text.split() for row in self.find_all("#instances tbody tr[data-display]"))
        return [words[0] for words in rows if "Active" in words]

    def needs(self):
        return " ".join(self.find("#virtman-needs").text.split())
