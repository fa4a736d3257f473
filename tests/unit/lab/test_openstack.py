"""The cloud's configuration and programs, as far as they can be told without starting any."""

import itertools
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import testtools
from fixtures import TempDir
from oslo_utils.imageutils import format_inspector
from subunit.v2 import StreamResultToBytes

from lab.openstack import idle_guest, networking, services, tempest
from lab.openstack.environment import Environment
from lab.openstack.servers import _server
from lab.openstack.settings import TEMPLATES, Nova, Settings

ME = "http://10.78.0.254:9696"


class TestSettings(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(TempDir()).path)
        control, horizon = (Environment(Path("/cache", name)) for name in ("control", "horizon"))
        self.settings = Settings(self.folder, control, horizon, Path("/cache/nova"))

    def test_every_template_is_filled_in(self):
        node = {"host": "compute1", "ip": "10.78.0.2", "privsep": "helper"}
        node |= {"plugins": [], "use_cachegroup": "true", "driver": Nova.DRIVER.driver}
        names = ("folder", "heat", "password", "computes")
        names += ("image", "other_image", "flavor", "other_flavor")
        others = dict.fromkeys(names, "1")
        for template in TEMPLATES.iterdir():
            if template.is_file():
                self.settings.write(template.name, self.folder / template.name, **node, **others)
                self.assertNotIn("$", (self.folder / template.name).read_text())

    def test_no_two_services_share_a_name_or_a_port(self):
        everything = [
            *services.infrastructure(self.settings),
            services.keystone(self.settings),
            *services.services(self.settings),
            *services.nova(self.settings),
        ]
        names = [one.name for one in everything]
        ports = [one.port for one in everything if one.port]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(len(ports), len(set(ports)))

    def test_bed_keeps_what_it_was_started_with(self):
        folder = self.folder / "bed"
        started = replace(self.settings, folder=folder)
        started.make_folders()
        self.assertEqual(started, Settings.of_bed(folder))

    def test_programs_find_the_patched_nova_first(self):
        self.assertEqual("/cache/nova:/source", self._paths())

    def test_a_nova_that_is_chosen_is_as_it_was_released(self):
        for nova, driver in ((Nova.DRIVER, "virtman"), (Nova.STOCK, "libvirt")):
            self.settings.choose(nova)
            self.assertEqual("/source", self._paths())
            self.assertEqual(f"{driver}.LibvirtDriver", self.settings.nova.driver)

    def _paths(self):
        return self.settings.variables(Path("/source"))["PYTHONPATH"]


class TestNetworking(testtools.TestCase):
    def test_there_is_nothing_of_any_kind(self):
        self.assertEqual({"ports": []}, networking.answer("/v2.0/ports?device_id=1", ME))
        self.assertEqual(
            {"security_groups": []}, networking.answer("/v2.0/security-groups.json", ME)
        )

    def test_nothing_is_limited(self):
        self.assertEqual(-1, networking.answer("/v2.0/quotas/1", ME)["quota"]["port"])
        details = networking.answer("/v2.0/quotas/1/details", ME)["quota"]["port"]
        self.assertEqual({"limit": -1, "used": 0, "reserved": 0}, details)

    def test_single_things_are_not_there(self):
        self.assertIsNone(networking.answer("/v2.0/ports/1", ME))


class TestServers(testtools.TestCase):
    def test_server_that_nova_is_busy_with_has_no_final_status(self):
        found = {
            "id": "1",
            "name": "web",
            "status": "ACTIVE",
            "OS-EXT-STS:task_state": "powering-off",
            "OS-EXT-SRV-ATTR:host": None,
        }
        self.assertEqual("ACTIVE powering-off", _server(found).status)
        self.assertEqual("ACTIVE", _server(found | {"OS-EXT-STS:task_state": None}).status)


class TestTempest(testtools.TestCase):
    def _run(self, **statuses):
        """Return the outcomes of a run that stestr tells of."""
        stream = BytesIO()
        result = StreamResultToBytes(stream)
        for name, status in statuses.items():
            test = f"tempest.{name}[id-1,smoke]"
            result.status(test, "inprogress")
            if status != "inprogress":
                result.status(test, status)
        return tempest.read(stream.getvalue())

    def test_counts_are_of_tests_by_their_names(self):
        found = self._run(one="success", two="skip", three="fail", four="success")
        self.assertEqual(["tempest.four", "tempest.one"], found.passed)
        self.assertEqual("2 passed, 1 failed, 1 skipped", str(found))

    def test_one_that_did_not_end_has_failed(self):
        self.assertEqual(["tempest.one"], self._run(one="inprogress").failed)

    def test_only_what_passed_before_can_be_lost(self):
        before = self._run(one="success", two="fail", three="success", four="success")
        after = self._run(one="fail", two="fail", three="skip", four="success")
        self.assertEqual(["tempest.one", "tempest.three"], after.lost(before))
        self.assertEqual([], before.lost(after))

    def test_one_that_ended_is_not_run_again_nor_one_of_a_class_that_was_skipped(self):
        found = tempest.read(b"") | self._run(one="fail", two="inprogress")
        found |= tempest.Outcomes({"setUpClass (tempest.many)": "skip"})
        tests = ["tempest.one[id-1]", "tempest.two[id-2]", "tempest.many.three[id-3]"]
        self.assertEqual([True, False, True], list(map(found.knows, tests)))

    def test_what_ended_is_kept_for_each_nova(self):
        file = Path(self.useFixture(TempDir()).path, "outcomes.json")
        tempest.Known(file).add("stock", self._run(one="success", two="fail"))
        tempest.Known(file).add("driver", self._run(one="fail"))
        tempest.Known(file).add("driver", self._run(one="success"))
        known = tempest.Known(file)
        self.assertEqual("1 passed, 1 failed, 0 skipped", str(known.of("stock")))
        self.assertEqual("1 passed, 0 failed, 0 skipped", str(known.of("driver")))
        self.assertEqual({}, known.of("patched").statuses)

    def test_classes_run_as_a_whole(self):
        tests = [f"tempest.{one}.{number:02}[id-{number}]" for one in "abc" for number in range(15)]
        found = list(tempest.together(tests[::-1]))
        self.assertEqual([30, 15], list(map(len, found)))
        self.assertEqual(tests, sorted(itertools.chain(*found)))


class TestIdleGuest(testtools.TestCase):
    def test_nova_takes_its_disk(self):
        file = Path(self.useFixture(TempDir()).path, "disk")
        idle_guest.write(file)
        found = format_inspector.detect_file_format(str(file))
        self.assertEqual("gpt", str(found))  # of any disk with partitions
        found.safety_check()
