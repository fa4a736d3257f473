"""What the application does that a gabbit cannot show."""

import json
import re
from contextlib import ExitStack

from tests.functional.volt import crowd
from tests.functional.volt.base import TestCase
from volt.auth.ratelimit import Rates
from volt.background.waiters import LARGEST_CROWD, LARGEST_OF_HOST
from volt.model.caps import CapKind
from volt.model.hosts import Wiring

LIMIT = 1024 * 1024
PORTAL = {"ip": "192.0.2.1", "port": 3260, "iqn": "iqn.2003-01.org.example:a", "lun": 0}


class TestBodySize(TestCase):
    def put(self, body, **environ):
        client = self.ground.client()
        return client.put("/v1/hosts/a/heartbeat", data=body, environ_overrides=environ)

    def test_a_body_of_the_limit_is_read(self):
        body = json.dumps({"images": {}}).ljust(LIMIT)
        assert self.put(body).status_code == 200

    def test_a_larger_body_is_refused_even_if_it_does_not_tell_its_length(self):
        body = json.dumps({"images": {}}).ljust(LIMIT + 5)
        chunked = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
        for environ in ({}, chunked):
            answer = self.put(body, **environ)
            assert answer.status_code == 413
            assert answer.json["error"]["code"] == "volt.request.too_large"


class TestLongPoll(TestCase):
    def ask(self, query):
        return self.ground.client().get(f"/v1/hosts/a/placements{query}")

    def test_when_too_many_wait_those_who_do_not_are_answered(self):
        with ExitStack() as crowd:
            for number in range(LARGEST_CROWD):
                crowd.enter_context(self.ground.watch.waiting(f"b{number}"))
            refused = self.ask("?wait=1")
            assert refused.status_code == 503
            assert refused.json["error"]["code"] == "volt.watch.full"
            for query in ("", "?wait=0"):
                assert self.ask(query).json == {"placements": [], "warmups": []}
        assert self.ask("?wait=1").status_code == 200

    def test_one_host_does_not_take_the_places_of_others(self):
        with ExitStack() as crowd:
            for _ in range(LARGEST_OF_HOST):
                crowd.enter_context(self.ground.watch.waiting("a"))
            refused = self.ask("?wait=1")
            assert refused.json["error"]["code"] == "volt.watch.full"
            assert "host a" in refused.json["error"]["message"]
            assert self.ground.client().get("/v1/hosts/b/placements?wait=1").status_code == 200
        assert self.ask("?wait=1").status_code == 200


class FrequentCase(TestCase):
    """Ordinary requests of a kind go before the framework; who sends one cannot tell."""

    path: str
    body: str

    def both(self, path="", body="", app=None, **environ):
        """Return the answers to a request that is ordinary, and to one that is not."""
        path, body = path or self.path, body or self.body
        client = self.ground.client(app)
        chunked = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
        environ["HTTP_X_REQUEST_ID"] = "one"
        with self.assertLogs("volt.api.accesslog", "DEBUG") as logged:
            answers = [
                client.put(path, data=body, environ_overrides=environ | more)
                for more in ({}, chunked)
            ]
        lines = [re.sub(r"ms=\S+", "", one) for one in logged.output]
        assert len(lines) == 2
        assert lines[0] == lines[1]
        return answers

    def assert_alike(self, status, **how):
        ordinary, other = self.both(**how)
        assert ordinary.status_code == other.status_code == status
        assert ordinary.data == other.data
        assert sorted(ordinary.headers) == sorted(other.headers)


class TestHeartbeat(FrequentCase):
    path = "/v1/hosts/a/heartbeat"
    body = '{"images": {}}'

    def test_it_is_answered_alike_either_way(self):
        self.assert_alike(200)

    def test_it_is_refused_alike_either_way(self):
        self.assert_alike(400, body="{")
        self.assert_alike(400, body='{"images": {"A/b": {"generation": 1}}}')
        self.assert_alike(400, path="/v1/hosts/A/heartbeat")
        self.assert_alike(400, path="/v1/hosts/a/heartbeat?more=1")
        self.assert_alike(401, HTTP_AUTHORIZATION="Bearer nobody's")

    def test_hosts_that_have_shares_report_more_often(self):
        self.ground.caps.put(CapKind.RACK, "r", 1000)
        crowd.create_image(self.ground)
        for number, rack in ((1, "r"), (2, "s")):
            self.ground.placements.join(
                crowd.IMAGE, f"h{number}", crowd.portal(number), Wiring(rack)
            )
        for usual, intervals in ((5.0, [2.0, 5.0, 5.0]), (1.0, [1.0, 1.0, 1.0])):
            client = self.ground.client(self.ground.serve(interval=usual))
            found = [
                client.put(
                    f"/v1/hosts/{host}/heartbeat",
                    json={"images": {crowd.IMAGE: {"generation": 1, "ahead": ahead}}},
                ).json["interval"]
                for host, ahead in (("h1", True), ("h1", False), ("h2", True))
            ]
            assert found == intervals

    def test_hosts_that_hold_back_for_vms_report_more_often(self):
        client = self.ground.client(self.ground.serve(interval=5.0))

        def beat(host, **said):
            body = {"images": {"x": {"generation": 1, **said}}}
            answer = client.put(f"/v1/hosts/{host}/heartbeat", json=body).json
            return answer["interval"], answer["read"]

        assert beat("a", ahead=True) == (5.0, [])
        assert beat("b", waits=True) == (5.0, [])
        assert beat("a", ahead=True) == (2.0, ["x"])

    def test_one_that_is_refused_counts_once(self):
        app = self.ground.serve(Rates(rate=0.001, burst=2))
        assert [answer.status_code for answer in self.both(app=app, body="{")] == [400, 400]
        assert [answer.status_code for answer in self.both(app=app)] == [429, 429]


class TestJoin(FrequentCase):
    path = f"/v1/images/{crowd.IMAGE}/hosts/a"
    body = json.dumps({"portal": PORTAL})

    def setUp(self):
        super().setUp()
        crowd.create_image(self.ground)

    def test_it_is_answered_alike_either_way(self):
        new = self.ground.client().put(self.path, data=self.body)
        assert (new.status, new.json["state"]) == ("201 Created", "joining")
        self.assert_alike(200)

    def test_it_is_refused_alike_either_way(self):
        self.assert_alike(400, body="{")
        self.assert_alike(400, path=f"/v1/images/{crowd.IMAGE}/hosts/A")
        self.assert_alike(400, path=f"{self.path}?more=1")
        self.assert_alike(404, path="/v1/images/none/hosts/a")
        self.assert_alike(401, HTTP_AUTHORIZATION="Bearer nobody's")


class TestFaults(TestCase):
    def test_a_fault_of_volt_itself_is_json_too_and_tells_no_internals(self):
        with self.ground.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE placements")
        client, body = self.ground.client(), '{"images": {}}'
        for ask in (
            lambda: client.get("/v1/images"),
            lambda: client.put("/v1/hosts/a/heartbeat", data=body),
        ):
            with self.assertLogs("volt.api.app", "ERROR"):
                answer = ask()
            assert answer.status_code == 500
            assert answer.json["error"]["code"] == "volt.internal"
            assert "placements" not in answer.json["error"]["message"]
