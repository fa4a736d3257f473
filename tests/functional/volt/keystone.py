"""A stand-in for Keystone on loopback: it lets users in, and says whose token it is."""

import itertools
import json
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from threading import Thread

from werkzeug import Request, Response
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.serving import make_server

PASSWORD = "password-in-the-clear"
DOMAIN = {"id": "default", "name": "Default"}


class StandIn:
    """A server on loopback, whose answers are contents, statuses and headers.

    :ivar strange: requests for what is not here
    """

    def __init__(self, cleanups: ExitStack) -> None:
        self.strange = []
        self.map = Map(merge_slashes=False, strict_slashes=False)
        self.server = make_server("127.0.0.1", 0, Request.application(self.serve), threaded=True)
        self.url = f"http://127.0.0.1:{self.server.port}"
        thread = Thread(target=self.server.serve_forever)
        thread.start()
        cleanups.callback(thread.join)
        cleanups.callback(self.server.server_close)
        cleanups.callback(self.server.shutdown)

    def route(self, method, path, answer):
        self.map.add(Rule(path, endpoint=answer, methods=[method]))

    def serve(self, request):
        try:
            answer, names = self.map.bind_to_environ(request.environ).match()
        except HTTPException as err:
            self.strange.append(f"{request.method} {request.path}")
            return Response("{}", err.code or 404, content_type="application/json")
        content, status, headers = answer(request, **names)
        return Response(json.dumps(content), status, headers, content_type="application/json")


class Keystone:
    """Keystone's API v3 below a path of a stand-in, with one project.

    :ivar accounts: roles of those who log in with PASSWORD, by name
    :ivar users: names, roles and, where it is not the project, "system" for their scope, by token
    :ivar services: URLs of the catalog, by type
    :ivar asked: how often it was asked whose token something is
    """

    def __init__(self, site, path, accounts, project):
        self.url = f"{site.url}{path}/v3"
        self.accounts = accounts
        self.project = {"id": project, "name": "demo", "domain_id": DOMAIN["id"], "enabled": True}
        self.users = {}
        self.services = {"identity": self.url}
        self.asked = 0
        self.lifetime = timedelta(hours=1)
        self._numbers = itertools.count(1)
        for method, below, answer in (
            ("GET", "/", self.versions),
            ("GET", "/v3", self.version),
            ("POST", "/v3/auth/tokens", self.log_in),
            ("GET", "/v3/auth/tokens", self.validate),
            ("GET", "/v3/auth/projects", self.projects),
            ("GET", "/v3/users/<user>/projects", self.projects),
            ("GET", "/v3/projects/<project>", self.show_project),
        ):
            site.route(method, path + below, answer)

    def options(self):
        """Return what Volt's group ``keystone_authtoken`` says of it."""
        return {
            "www_authenticate_uri": self.url,
            "auth_url": self.url,
            "auth_type": "password",
            "username": "volt",
            "password": PASSWORD,
            "project_name": "demo",
            "user_domain_name": "Default",
            "project_domain_name": "Default",
        }

    def versions(self, request):
        return {"versions": {"values": [self._version()]}}, 300, {}

    def version(self, request):
        return {"version": self._version()}, 200, {}

    def _version(self):
        return {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": self.url}]}

    def log_in(self, request):
        identity = request.json["auth"]["identity"]
        if "token" in identity["methods"]:
            token = identity["token"]["id"]
        else:
            token = self._let_in(**identity["password"]["user"])
        if token not in self.users:
            return _refuse(401, "Unauthorized")
        return self._describe(*self.users[token]), 201, {"X-Subject-Token": token}

    def _let_in(self, name, password, **domain):
        if password != PASSWORD or name not in self.accounts:
            return None
        token = f"token{next(self._numbers)}"
        self.users[token] = (name, self.accounts[name])
        return token

    def validate(self, request):
        self.asked += 1
        asking = self.users[request.headers["X-Auth-Token"]]
        assert "service" in asking[1]
        found = self.users.get(request.headers["X-Subject-Token"])
        return (self._describe(*found), 200, {}) if found else _refuse(404, "Not Found")

    def projects(self, request, **user):
        return {"projects": [self.project], "links": {"next": None}}, 200, {}

    def show_project(self, request, **project):
        return {"project": self.project}, 200, {}

    def _describe(self, user, roles, scope="project"):
        now = datetime.now(UTC)
        ended = now + self.lifetime
        scopes = {
            "project": {"project": self.project | {"domain": DOMAIN}},
            "system": {"system": {"all": True}},
        }
        return {
            "token": scopes[scope]
            | {
                "methods": ["password"],
                "user": {"id": f"id-of-{user}", "name": user, "domain": DOMAIN},
                "roles": [{"id": role, "name": role} for role in roles],
                "catalog": [_service(kind, url) for kind, url in self.services.items()],
                "issued_at": f"{now:%Y-%m-%dT%H:%M:%S.000000Z}",
                "expires_at": f"{ended:%Y-%m-%dT%H:%M:%S.000000Z}",
            }
        }


def _service(kind, url):
    region = {"region": "RegionOne", "region_id": "RegionOne"}
    ends = [
        region | {"id": f"{kind}-{interface}", "interface": interface, "url": url}
        for interface in ("public", "internal", "admin")
    ]
    return {"id": kind, "type": kind, "name": kind, "endpoints": ends}


def _refuse(code, title):
    return {"error": {"code": code, "message": "no", "title": title}}, code, {}
