"""A host that Volt knows by Keystone has a token that works; keystoneauth is the real one."""

import threading
from datetime import timedelta

from oslo_config import cfg
from werkzeug.serving import make_server

from tests.functional.virtman.base import PATIENCE
from tests.functional.volt.auth.test_keystone import KeystoneCase
from tests.functional.volt.keystone import PASSWORD
from virtman import conf, daemon
from virtman.coordinator.client import VoltClient
from virtman.coordinator.interface import Report
from virtman.errors import CoordinatorUnreachable, Unauthenticated, VirtmanError


class Disowned(dict):
    """Tokens of which nothing is known once they were given out."""

    def get(self, token):
        return None


class TestHost(KeystoneCase):
    def setUp(self):
        super().setUp()
        self.keystone.accounts["virtman-node1"] = ["host"]
        # what Volt learns of a token it forgets at once
        server = make_server("127.0.0.1", 0, self.app(token_cache_time=-1), threaded=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"

    def volt(self, **more):
        """Return Volt as the agent of node1 sees it, by its file of options."""
        options = {
            "auth_type": "password",
            "auth_url": self.keystone.url,
            "username": "virtman-node1",
            "password": PASSWORD,
            "project_name": "demo",
            "user_domain_name": "Default",
            "project_domain_name": "Default",
        }
        lines = [f"{name} = {value}" for name, value in (options | more).items() if value]
        path = self.ground.folder / "virtman.conf"
        path.write_text("\n".join(["[keystone]", *lines]))
        options = conf.register(cfg.ConfigOpts())
        options(["--config-file", str(path)])
        return VoltClient(self.url, "node1", PATIENCE, daemon._access(options))

    def tokens(self):
        """Return the tokens that the host's account was given and that are good."""
        name = "virtman-node1"
        return [token for token, user in self.keystone.users.items()
                if user[0] == name and token.startswith("token")]  # fmt: skip

    def beat(self, volt):
        assert volt.heartbeat(Report({})).placements == ()

    def test_a_token_is_used_as_long_as_it_lasts(self):
        volt = self.volt()
        for _ in range(3):
            self.beat(volt)
        assert len(self.tokens()) == 1

    def test_one_that_is_about_to_end_is_followed_by_another(self):
        volt = self.volt()
        self.keystone.lifetime = timedelta(seconds=90)
        self.beat(volt)
        self.keystone.lifetime = timedelta(hours=1)
        for _ in range(3):
            self.beat(volt)
        assert len(self.tokens()) == 2

    def test_one_that_was_revoked_is_followed_by_another(self):
        volt = self.volt()
        self.beat(volt)
        (revoked,) = self.tokens()
        del self.keystone.users[revoked]
        self.beat(volt)
        assert len(self.tokens()) == 1

    def test_keystone_is_not_asked_again_and_again_by_who_is_not_wanted(self):
        self.keystone.users = Disowned(self.keystone.users)
        volt = self.volt()
        for _ in range(5):
            self.assertRaises(Unauthenticated, self.beat, volt)
        assert len(self.tokens()) == 2

    def test_while_keystone_is_away_volt_is_too(self):
        volt = self.volt()
        self.site.server.shutdown()
        self.site.server.server_close()
        error = self.assertRaises(CoordinatorUnreachable, self.beat, volt)
        assert "Keystone gives no token" in str(error)

    def test_a_wrong_password_is_said(self):
        error = self.assertRaises(Unauthenticated, self.beat, self.volt(password="wrong"))
        assert "Keystone does not let us in" in str(error)

    def test_options_that_are_not_enough_are_said_at_the_start(self):
        for more in ({"auth_type": "nonsense"}, {"auth_url": ""}):
            error = self.assertRaises(VirtmanError, self.volt, **more)
            assert str(error).startswith("group [keystone]: "), error
