"""What an operator sees and does on the status page, in a real browser."""

import json
import unittest
from contextlib import ExitStack

import testtools
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.functional.volt import browser, crowd
from tests.functional.volt.base import Ground
from tests.functional.volt.service import Api
from volt.db.models import EventRow, HostRow, ImageRow
from volt.model.hosts import ImageReport, Report

HOSTS = 1000
FEW = 12  # in another image, for tests that look at every element
HOSTILE = "<img src=x onerror='window.hit=1'>"


def setUpModule():
    cleanups = ExitStack()
    unittest.addModuleCleanup(cleanups.close)
    ground = Ground(cleanups)
    crowd.populate(ground, HOSTS)
    crowd.populate(ground, FEW, "small")
    PageCase.ground = ground
    PageCase.volt, PageCase.url = crowd.serve(ground, cleanups)
    PageCase.api = Api(PageCase.url, ground.operator)
    PageCase.driver = browser.start(cleanups)


class PageCase(browser.BrowserCase):
    """One Volt, one browser and one crowd of hosts for all tests."""

    def setUp(self):
        super().setUp()
        self.addOnException(lambda _: browser.keep_screenshot(self.driver, self.id()))
        self.open()

    def open(self, scheme="light", image=crowd.IMAGE):
        self.driver.get("about:blank")
        browser.prefer(self.driver, scheme)
        with browser.before_scripts(
            self.driver, f"sessionStorage.setItem('volt-token', '{self.ground.operator}')"
        ):
            self.driver.get(f"{self.url}/#{image}")
        self.wait_until("document.querySelectorAll('.node').length > 2")

    def trees(self):
        return self.api.call("GET", f"/v1/images/{crowd.IMAGE}/trees").json()["trees"]

    def relatives(self, host):
        """Return what the picture should show of a host: (stripe, host) of it and its own."""
        near = {(tree["stripe"], host) for tree in self.trees()}
        for tree in self.trees():
            for node in tree["nodes"]:
                if node["host"] == host:
                    near.add((tree["stripe"], node["parent"]))
                if node["parent"] == host:
                    near.add((tree["stripe"], node["host"]))
        return {f"tree-{stripe}-{name or 'source.'}" for stripe, name in near}

    def tearDown(self):
        super().tearDown()
        assert self.complaints() == []


class TestPicture(PageCase):
    def test_every_host_is_drawn_once_in_each_tree(self):
        drawn = self.run_script("[...document.querySelectorAll('.node')].map(e => e.id)")
        nodes = {
            f"tree-{tree['stripe']}-{node['host']}"
            for tree in self.trees()
            for node in tree["nodes"]
        }
        assert sorted(drawn) == sorted(nodes | {"tree-0-source.", "tree-1-source."})
        assert len(drawn) == 2 * (HOSTS + 1)
        for scheme in ("light", "dark"):
            self.open(scheme)
            browser.keep_screenshot(self.driver, f"page-{scheme}")

    def test_shapes_and_outlines_tell_role_and_state(self):
        drawn = self.run_script(
            "Object.fromEntries([...document.querySelectorAll('.node')]"
            ".map(e => [e.id, e.getAttribute('class').split(' ')]))"
        )
        for tree in self.trees():
            for node in tree["nodes"]:
                classes = drawn[f"tree-{tree['stripe']}-{node['host']}"]
                assert ("inner" if node["inner"] else "leaf") in classes
                assert node["state"] in classes
                assert ("overloaded" in classes) == node["overloaded"]

    def test_a_search_shows_the_host_with_its_parents_and_children(self):
        search = self.find("#search")
        search.send_keys(crowd.name(31), Keys.ENTER)
        related = self.run_script("[...document.querySelectorAll('.node.related')].map(e => e.id)")
        assert set(related) == self.relatives(crowd.name(31))
        assert self.find("#details h3").text == crowd.name(31)
        assert self.find("#found").text == "1 found"
        box, stage = (
            self.find("#tree-0-node0031, #tree-1-node0031.current").rect,
            self.find(".stage").rect,
        )
        assert self.find("#picture").get_attribute("aria-activedescendant").endswith("-node0031")
        assert box["width"] > 0 and stage["width"] > 0
        browser.keep_screenshot(self.driver, "page-search")

    def test_a_join_is_drawn_without_drawing_the_rest_anew(self):
        self.run_script("document.getElementById('tree-0-node0000').isOld = true")
        before = self.run_script("document.querySelectorAll('.node').length")
        crowd.join(self.ground, 8000)
        self.addCleanup(self.ground.placements.remove, crowd.IMAGE, crowd.name(8000))
        self.wait_until("document.getElementById('tree-1-node8000')")
        assert self.run_script("document.querySelectorAll('.node').length") == before + 2
        assert self.run_script("document.getElementById('tree-0-node0000').isOld")
        assert "8000" in self.wait_until("document.querySelector('#events li').textContent")
        self.wait_until("document.getElementById('news').textContent.includes('changed')")

    def test_a_leave_takes_the_host_out_of_the_picture(self):
        crowd.join(self.ground, 8001)
        self.wait_until("document.getElementById('tree-0-node8001')")
        self.ground.placements.remove(crowd.IMAGE, crowd.name(8001))
        self.wait_until("!document.getElementById('tree-0-node8001')")

    def test_the_keyboard_walks_zooms_and_lets_go(self):
        picture = self.find("#picture")
        self.run_script("document.getElementById('colour-by').focus()")
        self.run_script("document.getElementById('picture').focus()")
        picture.send_keys(Keys.HOME)
        assert picture.get_attribute("aria-activedescendant") == "tree-0-source."
        picture.send_keys(Keys.ARROW_DOWN)
        first = self.trees()[0]["nodes"][0]["host"]
        assert picture.get_attribute("aria-activedescendant") == f"tree-0-{first}"
        assert self.find("#details h3").text == first
        picture.send_keys(Keys.ARROW_UP, Keys.ARROW_RIGHT)
        assert picture.get_attribute("aria-activedescendant") == "tree-1-source."
        before = self.run_script("document.querySelector('#picture > g').getAttribute('transform')")
        picture.send_keys("+")
        after = self.run_script("document.querySelector('#picture > g').getAttribute('transform')")
        assert before != after
        picture.send_keys("0", Keys.ESCAPE)
        assert picture.get_attribute("aria-activedescendant") is None

    def test_a_rack_is_shown_by_its_legend(self):
        button = next(
            each
            for each in self.driver.find_elements(By.CSS_SELECTOR, "#legend button")
            if "rack-3 " in each.text
        )
        button.click()
        marked = self.run_script("document.querySelectorAll('.node.match').length")
        racks = [node["rack"] for tree in self.trees() for node in tree["nodes"]]
        assert marked == racks.count("rack-3")
        assert button.get_attribute("aria-pressed") == "true"

    def test_draining_hosts_are_marked(self):
        self.ground.hosts.drain(crowd.name(3), True)
        self.addCleanup(self.ground.hosts.drain, crowd.name(3), False)
        self.wait_until("document.querySelector('#tree-0-node0003.draining.flagged')")
        glyph = self.run_script("document.querySelector('#tree-0-node0003 .glyph').textContent")
        assert "▼" in glyph


class TestTables(PageCase):
    def open_tab(self, name):
        self.find(f"#tab-{name}").click()
        self.wait_until(f"document.querySelectorAll('#{name}-panel tbody tr').length > 0")

    def first(self, panel):
        return self.texts(f"#{panel}-panel tbody tr:first-child > *")

    def head(self, panel, title):
        heads = self.driver.find_elements(By.CSS_SELECTOR, f"#{panel}-panel thead button")
        return next(each for each in heads if each.text == title)

    def test_hosts_are_sorted_searched_and_paged(self):
        self.open_tab("hosts")
        assert self.first("hosts")[:2] == [crowd.name(0), crowd.rack(0)]
        self.head("hosts", "Served").click()
        self.head("hosts", "Served").click()
        assert self.first("hosts")[0] == crowd.name(HOSTS - 1)
        assert self.find("#hosts-panel th[aria-sort]").get_attribute("aria-sort") == "descending"
        self.find("#hosts-panel .buttons button:last-child").click()
        assert self.find("#hosts-panel output").text.startswith("51 to ")
        self.find("#hosts-panel input").send_keys("node0042")
        assert self.texts("#hosts-panel tbody th") == [crowd.name(42)]
        browser.keep_screenshot(self.driver, "page-hosts")

    def test_the_table_says_what_the_picture_shows(self):
        self.open_tab("places")
        self.find("#places-panel input").send_keys(crowd.name(17))
        shown = {
            tuple(self.texts(f"#places-panel tbody tr:nth-child({row}) > *")[:7]) for row in (1, 2)
        }
        for tree in self.trees():
            node = next(node for node in tree["nodes"] if node["host"] == crowd.name(17))
            role = "inner" if node["inner"] else "leaf"
            parent, depth = node["parent"] or "source", str(node["depth"])
            row = (
                node["host"],
                node["rack"],
                str(tree["stripe"]),
                role,
                parent,
                depth,
                node["state"],
            )
            assert row in shown

    def test_a_name_leads_to_the_picture(self):
        self.open_tab("hosts")
        self.find("#hosts-panel tbody tr:nth-child(5) button").click()
        assert self.find("#picture-panel").is_displayed()
        assert self.find("#details h3").text == crowd.name(4)

    def test_the_tabs_take_arrow_keys(self):
        self.find("#tab-picture").send_keys(Keys.ARROW_RIGHT)
        assert self.find("#places-panel").is_displayed()
        assert self.run_script("document.activeElement.id") == "tab-places"


class TestCopies(PageCase):
    def test_it_shows_who_has_all_of_an_image_and_whether_its_source_is_needed(self):
        self.open(image="small")
        self.wait_until("document.getElementById('facts').textContent.includes('Sourceneeded')")
        name, images = crowd.name(3), self.ground.images
        self.addCleanup(self.say, name, False)
        self.addCleanup(images.rehome, "small", None)
        self.say(name, True)
        images.rehome("small", name)
        self.wait_until(f"document.getElementById('facts').textContent.includes('Home{name}')")
        facts = self.find("#facts").text.split("\n")
        assert facts[-8:] == [
            *("Whole copies", "1", "Complete stripes", "1 / 1"),
            *("Source", "independent of it", "Home", name),
        ]
        self.find("#search").send_keys(name, Keys.ENTER)
        assert "Whole copy\nyes" in self.find("#details").text

    def test_it_shows_on_which_images_one_is_based(self):
        self.addCleanup(self.base, None, None)
        self.base(["earlier", "other"], 3 << 20)
        self.open(image="small")
        text = "Based onearlier, otherShared3.0 MiB"
        self.wait_until(f"document.getElementById('facts').textContent.includes('{text}')")

    def base(self, images, shared):
        with self.ground.placements._writing.begin() as session:
            row = session.get(ImageRow, "small")
            row.based_on, row.shared = images, shared

    def say(self, host, whole):
        generation = self.ground.placements.show("small", host).generation
        said = ImageReport(generation, whole=whole)
        self.ground.hosts.heartbeat(host, Report({"small": said}))


class TestCare(PageCase):
    def test_axe_finds_nothing_to_improve(self):
        for scheme in ("light", "dark"):
            self.open(scheme, "small")
            self.find("#search").send_keys(crowd.name(5), Keys.ENTER)
            for tab in ("picture", "hosts", "places")[: 3 if scheme == "light" else 2]:
                self.find(f"#tab-{tab}").click()
                self.wait_until(f"!document.getElementById('{tab}-panel').hidden")
                self.assert_accessible()

    def test_what_hosts_say_is_text_and_never_markup(self):
        self.addCleanup(self.say, crowd.rack(9))
        self.say(HOSTILE)
        self.open()
        self.wait_until("document.getElementById('events').textContent.includes('onerror')")
        assert any(HOSTILE in text for text in self.texts("#legend li"))
        self.find("#search").send_keys(crowd.name(9), Keys.ENTER)
        assert HOSTILE in self.find("#details").text
        assert self.run_script("document.querySelectorAll('img').length") == 0
        assert self.run_script("window.hit") is None

    def say(self, text):
        """Store what the API would refuse: the page must not count on that."""
        with self.ground.placements._writing.begin() as session:
            session.get(HostRow, crowd.name(9)).rack = text
            session.add(EventRow(at=crowd.now(), kind="join", image=text, host=text, detail=text))

    def test_only_volts_own_files_may_run(self):
        policy = self.api.call("GET", "/").headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy

    def test_drawing_is_quick(self):
        self.wait_until("performance.getEntriesByName('volt-paint').length")
        names = ("volt-draw", "volt-paint")
        spent = {
            name: self.run_script("performance.getEntriesByName(arguments[0])[0].duration", name)
            for name in names
        }
        self.addDetail("spent", testtools.content.text_content(json.dumps(spent)))
        assert spent["volt-draw"] < 2000


class TestSignIn(PageCase):
    def setUp(self):
        super().setUp()
        self.run_script("sessionStorage.clear()")
        self.driver.refresh()
        self.wait_until("document.getElementById('sign-in').open")

    def complaints(self):
        """The browser itself notes each request that is refused."""
        return [text for text in super().complaints() if "401 (UNAUTHORIZED)" not in text]

    def give(self, token):
        self.find("#token").send_keys(token, Keys.ENTER)

    def test_who_has_no_token_is_asked_for_one_and_sees_nothing(self):
        assert self.run_script("document.querySelectorAll('.node').length") == 0
        assert self.texts("#images li") == []
        assert self.find("#updated").text == "Signed out"
        browser.keep_screenshot(self.driver, "page-sign-in")

    def test_a_wrong_token_is_said_to_be_wrong(self):
        self.give("volt_none")
        self.wait_until("document.getElementById('sign-in').open")
        assert "does not accept this token" in self.find("#sign-in-reason").text

    def test_a_token_stays_in_the_tab(self):
        token = self.ground.token("reader")
        self.give(token)
        self.wait_until("document.querySelectorAll('.node').length > 2")
        assert self.find("#sign").text == "Sign out"
        assert self.run_script("sessionStorage.getItem('volt-token')") == token
        assert self.run_script("localStorage.length") == 0
        assert self.run_script("document.cookie") == ""
        self.find("#sign").click()
        self.wait_until("document.getElementById('sign').textContent === 'Sign in'")
        self.wait_until("document.getElementById('sign-in').open")
        assert self.run_script("sessionStorage.length") == 0


class TestOutage(PageCase):
    def test_it_says_when_volt_is_silent_and_when_it_is_back(self):
        self.wait_until("document.getElementById('pulse').dataset.state === 'live'")
        self.volt.kill()
        self.wait_until("document.getElementById('pulse').dataset.state === 'silent'")
        assert "does not answer since" in self.find("#alarm").text
        browser.keep_screenshot(self.driver, "page-silent")
        self.volt.start()
        self.wait_until("document.getElementById('pulse').dataset.state === 'live'")
        assert not self.find("#alarm").is_displayed()
        assert all("ERR_CONNECTION" in text for text in self.complaints())
