"""Who is let in, for how long and how often, and what of it is written down."""

import logging
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.functional.volt.base import TestCase
from volt import conf, errors
from volt.auth import policies
from volt.auth.access import StoredTokens
from volt.auth.ratelimit import Rates
from volt.db.tokens import digest
from volt.model.images import NewImage
from volt.placement.rules import Shape
from volt.transport import Portal, Proof

HEARTBEAT = {"images": {}}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


class TestTokens(TestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.worker = StoredTokens(self.ground.tokens, fresh=5, clock=lambda: self.now)

    def test_only_a_hash_is_kept(self):
        token = self.ground.token("host", "node1")
        self.ground.engine.dispose()
        kept = Path(self.ground.url.removeprefix("sqlite:///")).read_bytes()
        assert digest(token).encode() in kept
        assert token.encode() not in kept
        assert token.startswith("vt_")
        assert len(token) == 3 + 43

    def test_a_new_token_is_found_at_once_and_known_at_the_next_look(self):
        assert self.worker.known("anything") is None
        token = self.ground.token("host", "node1")
        assert self.worker.known(token) is None
        assert self.worker.ask(token).host == "node1"
        self.now += 5
        assert self.worker.known(token).roles == ("host",)

    def test_a_revoked_token_is_forgotten_at_the_next_look(self):
        ((known, token),) = self.ground.tokens.create("reader", [None], datetime.now(UTC), None)
        assert self.worker.known(token).name == f"reader/{known.name}"
        self.ground.tokens.revoke(known.name)
        self.now += 4
        assert self.worker.known(token)
        self.now += 1
        assert self.worker.known(token) is None
        assert self.worker.ask(token) is None

    def test_a_token_ends_by_itself(self):
        soon = datetime.now(UTC) + timedelta(seconds=1)
        token = self.ground.token("operator", expires_at=soon)
        client = self.ground.client()
        assert client.get("/v1/images", headers=bearer(token)).status_code == 200
        while time.time() < soon.timestamp():
            time.sleep(0.05)
        assert client.get("/v1/images", headers=bearer(token)).status_code == 401


class TestRates(TestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        rates = Rates(rate=0.5, burst=3, clock=lambda: self.now)
        self.client = self.ground.client(self.ground.serve(rates))

    def statuses(self, token, count):
        return [
            self.client.get("/v1/images", headers=bearer(token)).status_code for _ in range(count)
        ]

    def test_who_asks_too_often_is_told_when_to_come_back(self):
        assert self.statuses(self.ground.operator, 4) == [200, 200, 200, 429]
        refused = self.client.get("/v1/images")
        assert refused.json["error"]["code"] == "volt.access.too_fast"
        assert refused.headers["Retry-After"] == "2"
        self.now += 2
        assert self.statuses(self.ground.operator, 2) == [200, 429]

    def test_others_are_served_meanwhile(self):
        self.statuses(self.ground.operator, 4)
        assert self.statuses(self.ground.token("reader"), 3) == [200, 200, 200]

    def test_guesses_are_counted_by_address_and_do_not_shut_others_out(self):
        assert self.statuses(self.ground.operator, 1) == [200]
        assert self.statuses("vt_guess", 5) == [401, 401, 401, 429, 429]
        assert self.statuses(self.ground.operator, 1) == [200]

    def test_refused_requests_wear_the_same_shape(self):
        answers = [self.client.put("/v1/hosts/a/heartbeat", json=HEARTBEAT) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert set(answers[-1].json["error"]) == {"code", "message"}


class TestPolicyFile(TestCase):
    def status(self, app, role, path="/v1/images"):
        token = self.ground.token(role, "a" if role == "host" else None)
        return self.ground.client(app).get(path, headers=bearer(token)).status_code

    def test_it_changes_who_may(self):
        app = self.ground.serve(policy='"image:list": "role:host"')
        assert self.status(app, "host") == 200
        assert self.status(app, "operator") == 403
        assert self.status(app, "operator", "/v1/images/x") == 404

    def test_one_that_cannot_be_used_is_told(self):
        path = self.ground.folder / "app.conf"
        for text in ("{", '"image:list": "rule:nobody"', "- list", '"image:list": 5'):
            (self.ground.folder / "policy.yaml").write_text(text)
            self.assertRaises(errors.PolicyInvalid, policies.load, conf.load([str(path)]))


class TestAccessLog(TestCase):
    @contextmanager
    def lines(self, level):
        found = []
        with self.assertLogs("volt.api.accesslog", level) as logged:
            logging.getLogger("volt.api.accesslog").log(logging.getLevelName(level), "begin")
            yield found
        found += [record.getMessage() for record in logged.records[1:]]

    def test_a_request_is_one_line(self):
        client = self.ground.client()
        with self.lines("INFO") as lines:
            answer = client.get("/v1/images?marker=x", headers={"X-Request-Id": "req-1"})
        (line,) = lines
        fields = dict(field.split("=", 1) for field in line.split(" "))
        assert fields.pop("who").startswith("operator/")
        assert 0 < float(fields.pop("ms")) < 10_000
        size = str(len(answer.data))
        assert fields == {
            "id": "req-1", "method": "GET", "path": "/v1/images", "status": "200", "bytes": size,
        }  # fmt: skip

    def test_who_is_refused_is_named(self):
        token = self.ground.token("reader")
        with self.lines("INFO") as lines:
            self.ground.client().delete("/v1/images/x", headers=bearer(token))
        assert " who=reader/" in lines[0]
        assert " status=403 " in lines[0]

    def test_a_path_cannot_forge_a_line(self):
        with self.lines("INFO") as lines:
            self.ground.client().get("/v1/images/a%0Aid=req-2%20who=operator")
        assert len(lines) == 1
        assert "path=/v1/images/a%0Aid%3Dreq-2%20who%3Doperator" in lines[0]

    def test_heartbeats_are_for_debugging_unless_they_are_refused(self):
        client = self.ground.client()
        with self.lines("INFO") as lines:
            client.put("/v1/hosts/a/heartbeat", json=HEARTBEAT)
            client.get("/healthz")
            client.put("/v1/hosts/a/heartbeat", json=HEARTBEAT, headers=bearer("vt_no"))
        assert [line.split("status=")[1][:3] for line in lines] == ["401"]
        with self.lines("DEBUG") as lines:
            client.put("/v1/hosts/a/heartbeat", json=HEARTBEAT)
        assert "path=/v1/hosts/a/heartbeat" in lines[0]

    def test_a_fault_is_logged_with_the_id_of_its_request(self):
        with self.ground.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE placements")
        with self.assertLogs("volt.api.app", "ERROR") as logged:
            answer = self.ground.client().get("/v1/images")
        assert answer.headers["X-Request-Id"] in logged.output[0]


class TestSecrets(TestCase):
    """Tokens and CHAP secrets are seen by whom they are for, and nowhere else."""

    SOURCE_SECRET = "source-secret-of-image"

    def setUp(self):
        super().setUp()
        source = Portal("127.0.0.1", self.ground.source_port, "iqn.2003-01.org.example:s", 0)
        chap = Proof("source", self.SOURCE_SECRET)
        new = NewImage("x", 512, Shape.FOREST, 2, 2, source, chap)
        self.ground.images.create(new, datetime.now(UTC))
        self.host = self.ground.token("host", "a")
        self.client = self.ground.client()

    def join(self):
        portal = {"ip": "192.0.2.1", "port": 3260, "iqn": "iqn.2003-01.org.example:h", "lun": 0}
        path = "/v1/images/x/hosts/a"
        return self.client.put(path, json={"portal": portal}, headers=bearer(self.host))

    def test_a_host_gets_the_secrets_and_a_rotation_renews_its_own(self):
        first = self.join().json
        assert first["stripes"][0]["parent"]["chap"]["secret"] == self.SOURCE_SECRET
        assert self.client.post("/v1/images/x/chap").status_code == 204
        second = self.client.get("/v1/images/x/hosts/a", headers=bearer(self.host)).json
        assert second["chap"]["secret"] != first["chap"]["secret"]
        assert second["generation"] > first["generation"]
        told = {"images": {"x": {"generation": first["generation"]}}}
        news = self.client.put("/v1/hosts/a/heartbeat", json=told).json["placements"]
        assert [one["chap"] for one in news] == [second["chap"]]

    def test_nothing_that_is_logged_or_refused_holds_one(self):
        logging.getLogger("volt").setLevel(logging.DEBUG)
        self.addCleanup(logging.getLogger("volt").setLevel, logging.NOTSET)
        with self.assertLogs(None, "DEBUG") as logged:
            peers = self.join().json["chap"]["secret"]
            refused = [
                self.client.get("/v1/images", headers=bearer(self.host)),
                self.client.get("/v1/images", headers=bearer(f"{self.ground.operator}x")),
                self.client.post("/v1/images", json={"source_chap": self.SOURCE_SECRET}),
                self.client.post("/v1/images", json=self.image({"secret": self.SOURCE_SECRET})),
                self.client.post(
                    "/v1/images", json=self.image({"user": "é", "secret": f"é{self.SOURCE_SECRET}"})
                ),
                self.client.post("/v1/images", data=f'{{"secret": "{self.SOURCE_SECRET}"'),
            ]
            self.client.post("/v1/images/x/chap")
            with self.ground.engine.begin() as connection:
                connection.exec_driver_sql("ALTER TABLE images DROP COLUMN source_user")
            body = self.image({"user": "u", "secret": self.SOURCE_SECRET})
            refused.append(self.client.post("/v1/images", json=body))
            refused.append(self.client.post("/v1/images/x/chap"))
        statuses = [answer.status_code for answer in refused]
        assert statuses == [403, 401, 400, 400, 400, 400, 500, 500]
        texts = [*logged.output, *(answer.text for answer in refused)]
        for secret in (self.SOURCE_SECRET, peers, self.host, self.ground.operator):
            assert not [text for text in texts if secret in text]

    def image(self, chap):
        portal = {"ip": "127.0.0.1", "port": 1, "iqn": "iqn.2003-01.org.example:s", "lun": 0}
        port = {"port": self.ground.source_port}
        return {"name": "y", "size": 512, "source": portal | port, "source_chap": chap}
