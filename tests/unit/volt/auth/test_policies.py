"""Who may do what, unless a policy file says otherwise."""

import tempfile
from pathlib import Path

import testtools

from volt import conf
from volt.api.routes import ROUTES
from volt.auth import policies
from volt.auth.access import Principal

# What only operators, or the host that it is about, may see: there are CHAP secrets in it.
SECRET = {"placement:show", "host:placements"}
# What any host may do, whichever host it is about: it sees no secrets.
SHARED = {
    *("image:show", "image:hashes", "image:basis", "import:show"),
    *("peer:listener", "profile:read", "profile:store"),
}
OPEN = {"/healthz", "/", "/static/<file>", "/v1/openapi.json"}


def documented():
    """Return method and path of each rule."""
    return {
        rule.name: {(one["method"], one["path"]) for one in rule.operations}
        for rule in policies.list_rules()
        if hasattr(rule, "operations")
    }


class TestPolicies(testtools.TestCase):
    def setUp(self):
        super().setUp()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "volt.conf")
            path.write_text("")
            self.enforcer = policies.load(conf.load([str(path)]))

    def allowed(self, role, host=None, target=""):
        credentials = Principal("who", (role,), host).credentials()
        return {
            rule
            for rule in documented()
            if self.enforcer.enforce(rule, {"host": target}, credentials)
        }

    def test_each_route_has_the_rule_that_is_documented_for_it(self):
        rules = documented()
        for route in ROUTES:
            if route.rule is None:
                assert route.path in OPEN
                continue
            plain = route.path.replace("<", "{").replace(">", "}")
            assert (route.method, plain) in rules[route.rule]

    def test_operators_may_do_everything(self):
        assert self.allowed("operator") == set(documented())
        assert self.allowed("admin") == set(documented())

    def test_readers_see_all_but_secrets_and_change_nothing(self):
        reads = {name for name, ways in documented().items() if all(w[0] == "GET" for w in ways)}
        assert self.allowed("reader") == reads - SECRET

    def test_a_host_speaks_for_itself(self):
        own = self.allowed("host", "a", "a")
        assert {"placement:join", "host:heartbeat", "hold:release"} < own
        assert own > SECRET | SHARED
        assert not own & {
            "image:create",
            "image:delete",
            "image:dehydrate",
            "image:hydrate",
            "image:rehome",
            "image:rotate",
            "image:withdraw",
            "import:tell",
            "import:retry",
            "host:change",
            "profile:remove",
        }

    def test_a_host_speaks_for_no_other_and_sees_what_is_no_secret(self):
        for target in ("b", "", "None", "%(host)s"):
            assert self.allowed("host", "a", target) == SHARED

    def test_a_host_that_is_none_speaks_for_nobody(self):
        for target in ("a", "", "None"):
            assert self.allowed("host", None, target) == SHARED

    def test_who_has_no_role_may_do_nothing(self):
        assert self.allowed("member", "a", "a") == set()
        assert self.allowed("") == set()
