"""How Volt's answers become placements and errors."""

import json

import fixtures
import requests
import testtools
from requests.adapters import BaseAdapter

from virtman import coordinator, errors
from virtman.coordinator import Coordinator, ImageInfo
from virtman.plan import Feed, Parent, Placement, Portal

PORTAL = {"ip": "10.0.0.1", "port": 3260, "iqn": "iqn.2026-11.org.x:s:i", "lun": 0, "offset": 0}


class Wire(BaseAdapter):
    """Answers every request in the same way and keeps what was asked."""

    def __init__(self):
        super().__init__()
        self.status, self.body, self.asked, self.error = 200, b"{}", [], None

    def send(self, request, **settings):
        if self.error is not None:
            raise self.error
        self.asked.append((request.method, request.path_url, json.loads(request.body or "null")))
        answer = requests.Response()
        answer.status_code, answer._content, answer.reason = self.status, self.body, "Reason"
        answer.request, answer.url = request, request.url
        return answer

    def close(self):
        pass


class CoordinatorTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.wire = Wire()
        session = requests.Session()
        session.mount("http://volt", self.wire)
        self.useFixture(fixtures.MockPatchObject(coordinator.requests, "request", session.request))
        self.volt = Coordinator("http://volt:8778/", "a", 5)

    def answers(self, body, status=200):
        self.wire.status = status
        self.wire.body = body if isinstance(body, bytes) else json.dumps(body).encode()

    def refuses(self, code, status):
        self.answers({"error": {"code": code, "message": "the reason"}}, status)

    def test_errors_of_volt_become_our_own(self):
        for code, status, kind in (
            ("volt.image.unknown", 404, errors.ImageUnknown),
            ("volt.placement.stale", 409, errors.PlacementStale),
            ("volt.host.unknown", 404, coordinator.PlacementUnknown),
            ("volt.request.invalid", 400, errors.InvalidRequest),
            ("volt.image.source_unreachable", 400, errors.InvalidRequest),
            ("volt.image.in_use", 409, errors.CoordinatorRefused),
            ("volt.database.busy", 503, errors.CoordinatorRefused),
            ("volt.internal", 500, errors.CoordinatorRefused),
        ):
            self.refuses(code, status)
            error = self.assertRaises(errors.VirtmanError, self.volt.placement, "i")
            self.assertIs(kind, type(error), code)
            self.assertIn("the reason", str(error))

    def test_an_error_that_is_not_volts_is_told_by_its_status(self):
        for body in (b"<html>", b"", b"[]", b'{"error": "no"}'):
            self.answers(body, 502)
            error = self.assertRaises(errors.CoordinatorRefused, self.volt.image, "i")
            self.assertEqual("Volt, GET /v1/images/i: Reason (http.502)", str(error))

    def test_no_answer_names_the_url(self):
        for kind in (requests.ConnectionError, requests.Timeout, requests.TooManyRedirects):
            self.wire.error = kind("with many details")
            error = self.assertRaises(errors.CoordinatorUnreachable, self.volt.image, "i")
            self.assertIn(f"http://volt:8778 ({kind.__name__})", str(error))
            self.assertNotIn("many details", str(error))

    def test_an_answer_that_is_no_json_is_no_answer_of_volt(self):
        self.answers(b"<html>welcome</html>")
        self.assertRaises(errors.CoordinatorRefused, self.volt.image, "i")

    def test_leaving_what_volt_does_not_know_is_fine(self):
        for code in ("volt.host.unknown", "volt.image.unknown"):
            self.refuses(code, 404)
            self.volt.leave("i")
        self.refuses("volt.internal", 500)
        self.assertRaises(errors.CoordinatorRefused, self.volt.leave, "i")

    def test_a_placement_is_read_in_the_order_of_its_stripes(self):
        def feed(stripe, host):
            standby = {"host": None, "portal": PORTAL} if host else None
            parent = {"host": host, "portal": PORTAL}
            return {"stripe": stripe, "parent": parent, "standby": standby}

        answer = {"image": "i", "size": 1024, "generation": 3}
        self.answers({**answer, "stripes": [feed(1, "b"), feed(0, None)]})
        source = Parent("source", Portal(**PORTAL))
        self.assertEqual(
            Placement("i", 1024, 3, (Feed(source), Feed(Parent("b", Portal(**PORTAL)), source))),
            self.volt.placement("i"),
        )

    def test_an_image_is_what_volt_says(self):
        self.answers(
            {"name": "i", "size": 512, "stripes": 2, "fanout": 3, "source": PORTAL, "hosts": 0}
        )
        self.assertEqual(ImageInfo("i", 512, 2, 3), self.volt.image("i"))

    def test_each_verb_is_one_request(self):
        self.answers({"image": "i", "size": 512, "generation": 1, "stripes": []})
        portal = Portal(**PORTAL)
        self.volt.join("i", portal)
        self.volt.ready("i", 4)
        self.volt.leave("i")
        self.volt.remove("i")
        self.volt.register(ImageInfo("i", 512, 2, 2), portal)
        self.volt.forget("i")
        own = "/v1/images/i/hosts/a"
        registered = {"name": "i", "size": 512, "stripes": 2, "fanout": 2, "source": PORTAL}
        self.assertEqual(
            [
                ("PUT", own, {"portal": PORTAL}),
                ("PATCH", own, {"state": "ready", "generation": 4}),
                ("PATCH", own, {"state": "leaving"}),
                ("DELETE", own, None),
                ("POST", "/v1/images", registered),
                ("DELETE", "/v1/images/i", None),
            ],
            self.wire.asked,
        )

    def test_a_heartbeat_brings_news(self):
        self.answers({"interval": 2, "placements": [], "unknown": ["gone"]})
        news = self.volt.heartbeat({"i": 4})
        self.assertEqual((2.0, (), ("gone",)), (news.interval, news.placements, news.unknown))
        self.assertEqual([("PUT", "/v1/hosts/a/heartbeat", {"images": {"i": 4}})], self.wire.asked)
