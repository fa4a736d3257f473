"""The weigher, loaded as nova-scheduler loads it, and a Volt on the wire."""

import tempfile
from types import SimpleNamespace

import requests_mock
import testtools
from nova import conf, objects
from nova.scheduler import weights

from virtman.openstack.weigher import Warmth, WarmWeigher

IMAGE = "image-0c0ffee0-1111-2222-3333-444455556666-10"
URL = f"http://volt/v1/images/{IMAGE}/trees"
NAME = "virtman.openstack.weigher.WarmWeigher"


def host(name, **metadata):
    aggregate = SimpleNamespace(metadata=metadata)
    return SimpleNamespace(host=name, nodename=name, aggregates=[aggregate] if metadata else [])


class WeigherTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        objects.register_all()
        self.volt = requests_mock.Mocker()
        self.volt.start()
        self.addCleanup(self.volt.stop)
        token = self.enterContext(tempfile.NamedTemporaryFile("w"))
        token.write("secret")
        token.flush()
        conf.CONF([], project="nova", default_config_files=[])
        for name, value in (
            ("volt_url", "http://volt/"),
            ("volt_token_file", token.name),
            ("warm_weight_multiplier", 2.0),
        ):
            conf.CONF.set_override(name, value, group="virtman")
            self.addCleanup(conf.CONF.clear_override, name, group="virtman")
        self.handler = weights.HostWeightHandler()
        (weigher,) = self.handler.get_matching_classes([NAME])
        self.assertIs(WarmWeigher, weigher)
        self.weighers = [weigher()]

    def weigh(self, *hosts, golden=IMAGE, image=None, **more):
        specs = {"virtman:image": golden} if golden else {}
        flavor = objects.Flavor(extra_specs=specs | more)
        request = objects.RequestSpec(flavor=flavor, image=image)
        found = self.handler.get_weighed_objects(self.weighers, list(hosts), request)
        return [(one.obj.host, one.weight) for one in found]

    def trees(self, *names):
        nodes = [{"host": name} for name in names]
        self.volt.get(URL, json={"trees": [{"nodes": nodes}, {"nodes": nodes[:1]}]})

    def test_nodes_that_read_the_image_come_first(self):
        self.trees("b", "d")
        found = self.weigh(host("a"), host("b"), host("c"))
        self.assertEqual([("b", 2.0), ("a", 0.0), ("c", 0.0)], found)
        self.assertEqual("Bearer secret", self.volt.last_request.headers["Authorization"])

    def test_a_plain_image_is_known_by_its_id(self):
        image = objects.ImageMeta(id="0c0ffee0-1111-2222-3333-444455556666")
        url = f"http://volt/v1/images/glance-{image.id}/trees"
        self.volt.get(url, json={"trees": [{"nodes": [{"host": "b"}]}]})
        found = self.weigh(host("a"), host("b"), golden=None, image=image)
        self.assertEqual([("b", 2.0), ("a", 0.0)], found)

    def test_a_flavor_whose_disks_are_not_virtmans_draws_nobody_to_warm_nodes(self):
        image = objects.ImageMeta(id="0c0ffee0-1111-2222-3333-444455556666")
        specs = {"virtman:root_disk": "false"}
        found = self.weigh(host("a"), host("b"), golden=None, image=image, **specs)
        self.assertEqual([("a", 0.0), ("b", 0.0)], found)
        self.assertEqual(0, self.volt.call_count)

    def test_a_server_of_a_volume_has_none(self):
        for image in (None, objects.ImageMeta()):
            self.assertEqual([("a", 0.0)], self.weigh(host("a"), golden=None, image=image))
        self.assertEqual(0, self.volt.call_count)

    def test_all_alike_are_all_warm(self):
        self.trees("a", "b")
        self.assertEqual([("a", 2.0), ("b", 2.0)], self.weigh(host("a"), host("b")))

    def test_requests_after_one_another_ask_once(self):
        self.trees("b")
        for _ in range(3):
            self.weigh(host("a"), host("b"))
        self.assertEqual(1, self.volt.call_count)

    def test_image_that_volt_does_not_know_is_warm_nowhere(self):
        self.volt.get(URL, status_code=404)
        self.assertEqual([("a", 0.0)], self.weigh(host("a")))

    def test_no_failure_of_volt_fails_a_request(self):
        for answer in ({"status_code": 500}, {"text": "no JSON"}, {"json": {}}, {"exc": OSError}):
            self.volt.get(URL, **answer)
            self.weighers = [WarmWeigher()]
            self.assertEqual([("a", 0.0)], self.weigh(host("a")))

    def test_other_servers_and_no_weight_ask_nothing(self):
        self.assertEqual([("a", 0.0)], self.weigh(host("a"), golden=None))
        conf.CONF.clear_override("warm_weight_multiplier", group="virtman")
        self.assertEqual([("a", 0.0)], self.weigh(host("a")))
        self.assertEqual(0, self.volt.call_count)

    def test_aggregate_has_a_weight_of_its_own(self):
        conf.CONF.clear_override("warm_weight_multiplier", group="virtman")
        self.trees("a", "b")
        found = self.weigh(host("a"), host("b", warm_weight_multiplier="5"))
        self.assertEqual([("b", 5.0), ("a", 0.0)], found)


class WarmthTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.asked = []
        self.seconds = 0.0
        self.warmth = Warmth(self.fetch, 30, lambda: self.seconds)

    def fetch(self, image):
        self.asked.append(image)
        if image == "slow":
            raise OSError("timed out")
        return frozenset({"a"})

    def test_answers_grow_old(self):
        for self.seconds in (0, 29, 31, 60):
            self.assertEqual({"a"}, self.warmth.hosts("debian"))
        self.assertEqual(["debian", "debian"], self.asked)

    def test_volt_that_is_away_is_waited_for_once(self):
        self.warmth.hosts("debian")
        self.assertEqual(frozenset(), self.warmth.hosts("slow"))
        self.assertEqual(frozenset(), self.warmth.hosts("another"))
        self.assertEqual({"a"}, self.warmth.hosts("debian"))
        self.seconds = 31
        self.assertEqual({"a"}, self.warmth.hosts("another"))
        self.assertEqual(["debian", "slow", "another"], self.asked)
