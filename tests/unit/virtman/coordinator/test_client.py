"""How Volt's answers become placements and errors."""

import itertools
import json
from base64 import b64decode
from functools import partial
from io import BytesIO
from pathlib import Path

import fixtures
import requests
import testtools
from requests.adapters import BaseAdapter

from tests.unit.virtman.model.test_suspended import RECORD
from virtman import errors
from virtman.coordinator.auth import Access
from virtman.coordinator.client import VoltClient
from virtman.coordinator.interface import (
    ImageInfo,
    ImageReport,
    Layer,
    PlacementUnknown,
    Report,
    Shape,
    Warming,
    Warmup,
    Wish,
)
from virtman.model.address import Portal, Proof
from virtman.model.hashtree import HashTree
from virtman.model.placement import Feed, Parent, Placement

BORN = "2026-01-02T03:04:05+00:00"
CHAP = {"user": "i", "secret": "secret-of-peers"}
PORTAL = {"ip": "10.0.0.1", "port": 3260, "iqn": "iqn.2026-11.org.x:s:i", "lun": 0, "offset": 0}


class Wire(BaseAdapter):
    """Answers every request in the same way and keeps what was asked.

    :ivar errors: raised first, one a request
    :ivar first: answers that come before that
    """

    def __init__(self):
        super().__init__()
        self.status, self.body, self.asked, self.errors = 200, b"{}", [], []
        self.first, self.answered, self.headers, self.settings = [], {}, {}, {}

    def send(self, request, **settings):
        if self.errors:
            raise self.errors.pop()
        self.asked.append((request.method, request.path_url, json.loads(request.body or "null")))
        self.headers, self.settings = dict(request.headers), settings
        status, headers = self.first.pop() if self.first else (self.status, self.answered)
        answer = requests.Response()
        answer.status_code, answer._content, answer.reason = status, self.body, "Reason"
        answer.request, answer.url, answer.connection = request, request.url, self
        answer.raw = BytesIO()
        answer.headers.update(headers)
        return answer

    def close(self):
        pass


class CoordinatorCase(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.wire = Wire()
        self.pauses = []
        self.volt = self.reached(VoltClient("http://volt:8778/", "a", 5, pause=self.pauses.append))

    def reached(self, volt):
        volt.session.mount("http://volt", self.wire)
        return volt

    def answers(self, body, status=200):
        self.wire.status = status
        self.wire.body = body if isinstance(body, bytes) else json.dumps(body).encode()

    def refuses(self, code, status):
        self.answers({"error": {"code": code, "message": "the reason"}}, status)


class CoordinatorTest(CoordinatorCase):
    def test_errors_of_volt_become_our_own(self):
        for code, status, kind in (
            ("volt.image.unknown", 404, errors.ImageUnknown),
            ("volt.placement.stale", 409, errors.PlacementStale),
            ("volt.host.unknown", 404, PlacementUnknown),
            ("volt.request.invalid", 400, errors.InvalidRequest),
            ("volt.image.source_unreachable", 400, errors.InvalidRequest),
            ("volt.profile.foreign", 409, errors.ProfileForeign),
            ("volt.profile.invalid", 400, errors.ProfileInvalid),
            ("volt.profile.stale", 412, errors.ProfileStale),
            ("volt.profile.unbound", 409, errors.ProfileUnbound),
            ("volt.profile.unknown", 404, errors.ProfileUnknown),
            ("volt.profile.too_many", 409, errors.CoordinatorRefused),
            ("volt.image.in_use", 409, errors.ImageInUse),
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
            self.wire.errors = 2 * [kind("with many details")]
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
            standby = {"host": None, "portal": PORTAL, "chap": None} if host else None
            parent = {"host": host, "portal": PORTAL, "chap": CHAP if host else None}
            return {"stripe": stripe, "parent": parent, "standby": standby}

        answer = {"image": "i", "size": 1024, "generation": 3, "chap": CHAP}
        self.answers({**answer, "stripes": [feed(1, "b"), feed(0, None)]})
        source = Parent("source", Portal(**PORTAL))
        other = Parent("b", Portal(**PORTAL), Proof(**CHAP))
        self.assertEqual(
            Placement("i", 1024, 3, Proof(**CHAP), (Feed(source), Feed(other, source))),
            self.volt.placement("i"),
        )

    def test_a_placement_tells_which_parents_are_not_ready(self):
        def feed(stripe, **words):
            parent = {"host": "b", "portal": PORTAL, "chap": CHAP}
            return {"stripe": stripe, "parent": parent, "standby": None, **words}

        answer = {"image": "i", "size": 512, "generation": 1, "chap": CHAP}
        feeds = [feed(0, ready=False), feed(1, ready=True), feed(2)]  # the last of an older Volt
        self.answers({**answer, "stripes": feeds})
        told = [one.ready for one in self.volt.placement("i").feeds]
        self.assertEqual([False, True, True], told)

    def test_a_placement_has_the_revisions_of_profiles_where_volt_knows_any(self):
        answer = {"image": "i", "size": 512, "generation": 1, "chap": CHAP, "stripes": []}
        self.answers(answer)
        self.assertEqual({}, self.volt.placement("i").profiles)
        named = [{"workload": "boot", "revision": 3}, {"workload": "db", "revision": 1}]
        self.answers({**answer, "profiles": named})
        self.assertEqual({"boot": 3, "db": 1}, self.volt.placement("i").profiles)
        self.assertEqual(1, len({self.volt.placement("i"), self.volt.placement("i")}))

    def test_a_profile_without_a_tag_is_not_volts(self):
        self.answers(b"VMBP")
        self.assertRaises(errors.CoordinatorRefused, self.volt.profile, "i", "boot")

    def test_a_secret_does_not_show_where_a_placement_is_logged(self):
        self.answers({"image": "i", "size": 512, "generation": 1, "chap": CHAP, "stripes": []})
        self.assertNotIn(CHAP["secret"], repr(self.volt.placement("i")))

    def test_an_image_is_what_volt_says(self):
        answer = {"name": "i", "size": 512, "stripes": 2, "fanout": 3, "source": PORTAL,
                  "hosts": 0, "created_at": BORN, "root_hash": None, "salt": None}  # fmt: skip
        self.answers(answer)
        self.assertEqual(ImageInfo("i", 512, 2, 3, BORN), self.volt.image("i"))
        self.answers(answer | {"root_hash": "aa", "salt": "bb"})
        self.assertEqual(HashTree("aa", "bb"), self.volt.image("i").tree)

    def test_a_hash_tree_is_registered_with_its_upper_levels(self):
        hashes = HashTree("aa", "bb"), b"levels"
        self.volt.register("i", 512, Shape(), Portal(**PORTAL), None, hashes)
        ((_, _, body),) = self.wire.asked
        self.assertEqual(("aa", "bb"), (body["root_hash"], body["salt"]))
        self.assertEqual(b"levels", b64decode(body["upper_hashes"]))
        self.answers(b"levels")
        self.assertEqual(b"levels", self.volt.upper_hashes("i"))

    def test_a_layer_is_known_by_its_parent_and_its_keeper(self):
        layer, hashes = Layer("i", 1024, maker="a"), (HashTree("aa", "bb"), b"levels")
        self.volt.keep_layer("l", 512, layer, Portal(**PORTAL), Proof(**CHAP), hashes)
        self.volt.drop_layer("l")
        self.volt.drop_layer("l", elsewhere=True)
        (verb, path, body), dropped, left = self.wire.asked
        self.assertEqual("/v1/images/l/makers/a?elsewhere=true", left[1])
        self.assertEqual(("PUT", "/v1/images/l/makers/a"), (verb, path))
        self.assertEqual({"parent": "i", "disk_size": 1024}, body["layer"])
        self.assertEqual(("l", 512, "aa"), (body["name"], body["size"], body["root_hash"]))
        self.assertEqual(("DELETE", "/v1/images/l/makers/a", None), dropped)
        self.answers({"name": "l", "size": 512, "stripes": 2, "fanout": 3, "created_at": BORN,
                      "root_hash": None, "salt": None,
                      "layer": {"parent": "i", "disk_size": 1024, "maker": "a"}})  # fmt: skip
        found = self.volt.image("l")
        self.assertEqual((layer, 1024), (found.layer, found.disk_size))

    def test_a_suspended_image_has_its_record_with_the_layer(self):
        layer, hashes = Layer("i", 1024, RECORD, "a"), (HashTree("aa", "bb"), b"levels")
        self.volt.keep_layer("l", 512, layer, Portal(**PORTAL), Proof(**CHAP), hashes)
        ((_, _, body),) = self.wire.asked
        self.answers({"name": "l", "size": 512, "stripes": 2, "fanout": 3, "created_at": BORN,
                      "root_hash": None, "salt": None,
                      "layer": body["layer"] | {"maker": "a"}})  # fmt: skip
        self.assertEqual(layer, self.volt.image("l").layer)

    def test_each_verb_is_one_request(self):
        self.answers({"image": "i", "size": 512, "generation": 1, "chap": CHAP, "stripes": [],
                      "verdict": "dead", "home": "b"})  # fmt: skip
        portal = Portal(**PORTAL)
        self.volt.join("i", portal)
        self.volt.ready("i", 4)
        self.volt.ready("i", 4, {2, 0})
        self.volt.leave("i")
        self.volt.remove("i")
        self.volt.register("i", 512, Shape("tree", fanout=3), portal, Proof(**CHAP))
        self.volt.forget("i")
        self.assertEqual((True, "b"), self.volt.withdraw("i", forced=True))
        self.assertEqual("dead", self.volt.report("i", "b"))
        own = "/v1/images/i/hosts/a"
        registered = {"name": "i", "size": 512, "shape": "tree", "fanout": 3, "source": PORTAL,
                      "source_chap": CHAP}  # fmt: skip
        self.assertEqual(
            [
                ("PUT", own, {"portal": PORTAL, "rack": None, "speed": None}),
                ("PATCH", own, {"state": "ready", "generation": 4}),
                ("PATCH", own, {"state": "ready", "generation": 4, "stripes": [0, 2]}),
                ("PATCH", own, {"state": "leaving"}),
                ("DELETE", own, None),
                ("POST", "/v1/images", registered),
                ("DELETE", "/v1/images/i", None),
                ("DELETE", "/v1/images/i/source?force=true", None),
                ("POST", f"{own}/reports", {"parent": "b", "reason": "silent"}),
            ],
            self.wire.asked,
        )

    def test_a_heartbeat_brings_news(self):
        self.answers({"interval": 2, "placements": [], "unknown": ["gone"]})
        report = Report({"i": ImageReport(4, 1 << 20, 8, 2)}, 1000, 2000, True, {"i": 3})
        news = self.volt.heartbeat(report)
        self.assertEqual((2.0, (), ("gone",)), (news.interval, news.placements, news.unknown))
        self.assertEqual({}, news.shares)
        image = {"generation": 4, "sent": 1 << 20, "hits": 8, "misses": 2}
        body = {"images": {"i": image}, "received_rate": 1000, "sent_rate": 2000,
                "overloaded": True, "disks": {"i": 3}}  # fmt: skip
        self.assertEqual([("PUT", "/v1/hosts/a/heartbeat", body)], self.wire.asked)

    def test_who_fetches_ahead_says_so_and_hears_of_its_shares(self):
        self.answers({"interval": 2, "placements": [], "unknown": [], "shares": {"i": 4096}})
        images = {"i": ImageReport(4, ahead=True), "j": ImageReport(4)}
        self.assertEqual({"i": 4096}, self.volt.heartbeat(Report(images)).shares)
        told = {name: one.get("ahead") for name, one in self.wire.asked[-1][2]["images"].items()}
        self.assertEqual({"i": True, "j": None}, told)

    def test_a_host_whose_vms_wait_says_so_and_hears_of_others(self):
        self.answers({"interval": 2, "placements": [], "unknown": [], "read": ["i"]})
        images = {"i": ImageReport(4, ahead=True), "j": ImageReport(4, waits=True)}
        self.assertEqual(("i",), self.volt.heartbeat(Report(images)).read)
        told = {name: one.get("waits") for name, one in self.wire.asked[-1][2]["images"].items()}
        self.assertEqual({"i": None, "j": True}, told)
        self.answers({"interval": 2, "placements": [], "unknown": []})
        self.assertEqual((), self.volt.heartbeat(Report({})).read)

    def test_a_host_says_how_far_copies_are_and_what_has_room(self):
        self.answers({"interval": 2, "placements": [], "unknown": []})
        images = {
            "i": ImageReport(4, copied=9, complete=(1,)),
            "j": ImageReport(4, whole=True),
            "k": ImageReport(4, declines=True),
        }
        self.volt.heartbeat(Report(images, room=512))
        told = self.wire.asked[-1][2]
        self.assertEqual(512, told["room"])
        self.assertEqual(
            [{"copied": 9, "complete": [1]}, {"whole": True}, {"declines": True}],
            [
                {name: one[name] for name in one.keys() - {"generation", "sent", "hits", "misses"}}
                for one in told["images"].values()
            ],
        )

    def test_places_come_with_a_tag_that_is_sent_the_next_time(self):
        place = {"image": "i", "size": 512, "generation": 7, "chap": CHAP, "stripes": []}
        self.wire.answered = {"ETag": '"x"'}
        self.answers({"placements": [place]})
        found = self.volt.placements("", 30)
        self.assertNotIn("If-None-Match", self.wire.headers)
        self.assertEqual(('"x"', 7), (found.tag, found.placements[0].generation))
        self.answers(b"", 304)
        self.assertIsNone(self.volt.placements(found.tag, 30))
        self.assertEqual('"x"', self.wire.headers["If-None-Match"])
        self.assertEqual("/v1/hosts/a/placements?wait=30", self.wire.asked[-1][1])
        self.assertGreater(self.wire.settings["timeout"], 30)

    def test_what_volt_wishes_warm_comes_with_the_places(self):
        wish = {"image": "i", "workload": "boot", "generation": 7}
        self.wire.answered = {"ETag": '"x"'}
        self.answers({"placements": [], "warmups": [wish]})
        self.assertEqual((Wish("i", "boot", 7),), self.volt.placements("", 30).wishes)
        self.volt.tell_warmup(Wish("i", "boot", 7), Warmup(Warming.FAILED, 3, 2, "x" * 300))
        method, path, body = self.wire.asked[-1]
        self.assertEqual(("PUT", "/v1/images/i/warmups/a"), (method, path))
        self.assertEqual(
            (7, "failed", 3, 2), (body["generation"], body["state"], body["wanted"], body["there"])
        )
        self.assertEqual(255, len(body["detail"]))

    def test_a_host_says_in_which_rack_it_is_and_how_fast_its_link_is(self):
        for speed, told in (125_000_000, 125_000_000), (0, None):
            self.answers({"image": "i", "size": 512, "generation": 1, "chap": CHAP, "stripes": []})
            volt = VoltClient("http://volt", "a", 5, rack="r1", speed=partial(int, speed))
            self.reached(volt).join("i", Portal(**PORTAL))
            body = self.wire.asked[-1][2]
            self.assertEqual(("r1", told), (body["rack"], body["speed"]))

    def test_a_connection_that_volt_had_ended_is_made_anew(self):
        self.wire.errors = [requests.ConnectionError("closed")]
        self.volt.remove("i")
        self.assertEqual(1, len(self.wire.asked))

    def test_a_denial_says_which_option_to_set(self):
        for status, kind, option in (
            (401, errors.Unauthenticated, "[volt] token_file"),
            (403, errors.Forbidden, "[agent] host"),
        ):
            self.refuses("volt.access.any", status)
            error = self.assertRaises(kind, self.volt.placement, "i")
            self.assertIn("the reason (volt.access.any)", str(error))
            self.assertIn(option, str(error))

    def test_too_many_requests_are_waited_for_as_long_as_volt_says(self):
        self.wire.first = [(429, {"Retry-After": "3"}), (429, {"Retry-After": "0.5"})]
        self.volt.remove("i")
        self.assertEqual([0.5, 3.0], self.pauses)

    def test_too_many_requests_for_longer_than_we_wait_are_an_error(self):
        self.refuses("volt.access.too_fast", 429)
        date = "Thu, 01 Jan 2026 00:00:00 GMT"
        for said, pauses in (("6", []), ("2", [2.0, 2.0]), (date, 5 * [1.0])):
            self.wire.answered, self.pauses[:] = {"Retry-After": said}, []
            self.assertRaises(errors.TooFast, self.volt.remove, "i")
            self.assertEqual(pauses, self.pauses)


class AccessTest(CoordinatorCase):
    def setUp(self):
        super().setUp()
        self.file = Path(self.useFixture(fixtures.TempDir()).join("token"))
        self.log = self.useFixture(fixtures.FakeLogger())
        access = Access(str(self.file), "/etc/volt-ca.pem")
        self.volt = self.reached(VoltClient("http://volt:8778", "a", 5, access))

    def give(self, text, mode=0o600):
        self.file.write_text(text)
        self.file.chmod(mode)

    def sent(self):
        self.volt.remove("i")
        return self.wire.headers["Authorization"]

    def test_a_new_token_is_used_at_once(self):
        self.give("first\n")
        self.assertEqual("Bearer first", self.sent())
        self.give("second")
        self.assertEqual("Bearer second", self.sent())
        self.assertEqual("", self.log.output)

    def test_a_token_that_ended_on_its_way_is_followed_by_that_of_the_file(self):
        shown = []

        class Ending(Wire):
            def send(wire, request, **settings):
                shown.append(request.headers["Authorization"])
                wire.status = 200 if shown[-1] == "Bearer second" else 401
                self.give("second")
                return super().send(request, **settings)

        self.volt.session.mount("http://volt", Ending())
        self.give("first")
        self.volt.remove("i")
        self.assertEqual(["Bearer first", "Bearer second"], shown)

    def test_a_token_that_is_refused_and_still_in_its_file_is_not_shown_twice(self):
        self.give("wrong")
        self.refuses("volt.access.unauthenticated", 401)
        self.assertRaises(errors.Unauthenticated, self.volt.remove, "i")
        self.assertEqual(1, len(self.wire.asked))

    def test_another_token_that_is_refused_too_is_the_last(self):
        tokens = itertools.count()

        class Refusing(Wire):
            def send(wire, request, **settings):
                self.give(f"token{next(tokens)}")
                return super().send(request, **settings)

        wire = Refusing()
        wire.status, wire.body = 401, b"{}"
        self.volt.session.mount("http://volt", wire)
        self.give("first")
        self.assertRaises(errors.Unauthenticated, self.volt.remove, "i")
        self.assertEqual(2, len(wire.asked))

    def test_a_token_that_everybody_can_read_is_warned_of_once(self):
        self.give("one", 0o644)
        self.sent()
        self.sent()
        self.assertEqual(1, self.log.output.count("chmod 0600"))

    def test_no_token_in_its_file_is_a_clear_error(self):
        for text in (None, "", " \n", "two\nlines"):
            if text is not None:
                self.give(text)
            error = self.assertRaises(errors.TokenUnreadable, self.volt.remove, "i")
            self.assertIn(str(self.file), str(error))
            self.assertIn("volt-manage token create", str(error))
        self.assertEqual([], self.wire.asked)

    def test_nobody_is_told_a_password_from_elsewhere(self):
        netrc = self.file.with_name("netrc")
        netrc.write_text("machine volt login me password mine\n")
        self.useFixture(fixtures.EnvironmentVariable("NETRC", str(netrc)))
        self.reached(VoltClient("http://volt:8778", "a", 5)).remove("i")
        self.assertNotIn("Authorization", self.wire.headers)

    def test_certificates_are_the_named_ones_or_the_systems(self):
        self.give("one")
        self.sent()
        self.assertEqual("/etc/volt-ca.pem", self.wire.settings["verify"])
        self.assertNotEqual(requests.certs.where(), Access().trusted)

    def test_a_volt_that_cannot_be_trusted_is_an_error_that_names_the_option(self):
        self.give("one")
        self.wire.errors = [requests.exceptions.SSLError("self-signed certificate")]
        error = self.assertRaises(errors.CoordinatorUnreachable, self.volt.remove, "i")
        self.assertIn("self-signed certificate", str(error))
        self.assertIn("[volt] cafile", str(error))
