"""Who may do what when Keystone says who asks; its middleware is the real one."""

from contextlib import ExitStack
from datetime import timedelta

from werkzeug.test import Client

from tests.functional.volt.base import TestCase
from tests.functional.volt.keystone import Keystone, StandIn
from volt import conf
from volt.api import app
from volt.auth import policies
from volt.background.worker import Worker

HEARTBEAT = {"images": {}}


class KeystoneCase(TestCase):
    """A Volt that asks a stand-in for Keystone."""

    def setUp(self):
        super().setUp()
        cleanups = ExitStack()
        self.addCleanup(cleanups.close)
        self.site = StandIn(cleanups)
        self.keystone = Keystone(self.site, "", {"volt": ["service"]}, "p")
        self.keystone.users = {
            "of-node1": ("virtman-node1", ["host"]),
            "of-admin": ("admin", ["Admin", "member"]),
            "of-reader": ("monitoring", ["reader"], "system"),
            "of-member": ("virtman-node1", ["member", "reader"]),
        }

    def app(self, auth="keystone", **more):
        path = self.ground.folder / "keystone.conf"
        options = (self.keystone.options() | more).items()
        path.write_text(
            f"[api]\nauth = {auth}\n[database]\nconnection = {self.ground.url}\n"
            + "[keystone_authtoken]\n"
            + "".join(f"{name} = {value}\n" for name, value in options)
        )
        options = conf.load([str(path)])
        worker = Worker(options)
        self.addCleanup(worker.engine.dispose)
        return app.from_conf(options, worker, policies.load(options))


class TestKeystone(KeystoneCase):
    def setUp(self):
        super().setUp()
        self.client = self.serve()

    def serve(self, *words, **more):
        return Client(self.app(*words, **more))

    def ask(self, token, method="GET", path="/v1/images", body=None):
        headers = {"X-Auth-Token": token}
        return self.client.open(path, method=method, json=body, headers=headers)

    def status(self, *words):
        return self.ask(*words).status_code

    def test_roles_of_keystone_are_roles_of_volt(self):
        assert self.status("of-admin") == 200
        assert self.status("of-reader") == 200
        assert self.status("of-member") == 403
        assert self.status("of-reader", "POST", "/v1/images", {}) == 403
        assert self.status("of-admin", "POST", "/v1/images", {}) == 400

    def test_a_host_is_known_by_its_users_name(self):
        assert self.status("of-node1", "PUT", "/v1/hosts/node1/heartbeat", HEARTBEAT) == 200
        assert self.status("of-node1", "PUT", "/v1/hosts/node2/heartbeat", HEARTBEAT) == 403
        assert self.status("of-member", "PUT", "/v1/hosts/node1/heartbeat", HEARTBEAT) == 403

    def test_a_bearer_is_a_token_of_keystone_too(self):
        headers = {"Authorization": "Bearer of-admin"}
        assert self.client.get("/v1/images", headers=headers).status_code == 200

    def test_what_keystone_does_not_know_is_unauthenticated(self):
        answer = self.ask("of-nobody")
        assert answer.status_code == 401
        assert answer.json["error"]["code"] == "volt.access.unauthenticated"
        assert self.client.get("/v1/images").status_code == 401

    def test_headers_that_the_middleware_would_set_prove_nothing(self):
        headers = {"X-Identity-Status": "Confirmed", "X-Roles": "admin", "X-User-Name": "admin"}
        assert self.client.get("/v1/images", headers=headers).status_code == 401
        headers["X-Auth-Token"] = "of-nobody"
        assert self.client.get("/v1/images", headers=headers).status_code == 401

    def test_keystone_is_asked_once_for_many_heartbeats(self):
        for _ in range(5):
            self.ask("of-node1", "PUT", "/v1/hosts/node1/heartbeat", HEARTBEAT)
        assert self.keystone.asked == 1

    def test_how_long_an_answer_counts_is_keystones_own_option(self):
        self.client = self.serve(token_cache_time=-1)
        assert self.status("of-admin") == 200
        del self.keystone.users["of-admin"]
        assert self.status("of-admin") == 401

    def test_memcached_is_not_needed_where_other_services_have_it(self):
        self.client = self.serve(memcached_servers="127.0.0.1:1")
        assert self.status("of-admin") == 200

    def test_an_answer_counts_no_longer_than_the_token(self):
        self.keystone.lifetime = timedelta(seconds=-1)
        assert self.status("of-admin") == 401

    def test_volts_own_tokens_count_beside_those_of_keystone_if_both_do(self):
        own = self.ground.token("host", "node1")
        heartbeat = ("PUT", "/v1/hosts/node1/heartbeat", HEARTBEAT)
        assert self.status(own, *heartbeat) == 401
        self.client = self.serve("both")
        asked = self.keystone.asked
        assert self.status(own, *heartbeat) == 200
        assert self.status("vt_guessed", *heartbeat) == 401
        assert self.keystone.asked == asked
        assert self.status("of-admin") == 200
        assert self.status("of-member") == 403
        self.site.server.shutdown()
        self.site.server.server_close()
        assert self.status(own, *heartbeat) == 200

    def test_without_keystone_nobody_is_let_in_and_all_are_told(self):
        self.site.server.shutdown()
        self.site.server.server_close()
        answer = self.ask("of-admin")
        assert answer.status_code == 503, answer.data
        assert answer.json["error"]["code"] == "volt.access.keystone"
        assert self.client.get("/healthz").status_code == 200
