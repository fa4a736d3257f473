"""A stand-in for Keystone on loopback: it says whose token it is, and nothing else."""

import json
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from threading import Thread

from werkzeug import Request, Response
from werkzeug.routing import Map, Rule
from werkzeug.serving import make_server

PASSWORD = "service-password-in-the-clear"


class StandIn:
    """Answers as Keystone's API v3 does.

    ``users`` are names, roles and, where it is not a project, "system" for their scope, by token.
    """

    def __init__(self, cleanups: ExitStack) -> None:
        self.users = {}
        self.asked = 0
        self.lifetime = timedelta(hours=1)
        self.map = Map(
            [
                Rule("/v3", endpoint=self.version),
                Rule("/v3/auth/tokens", endpoint=self.log_in, methods=["POST"]),
                Rule("/v3/auth/tokens", endpoint=self.validate, methods=["GET"]),
            ]
        )
        self.server = make_server("127.0.0.1", 0, Request.application(self.serve), threaded=True)
        self.url = f"http://127.0.0.1:{self.server.port}/v3"
        thread = Thread(target=self.server.serve_forever)
        thread.start()
        cleanups.callback(thread.join)
        cleanups.callback(self.server.server_close)
        cleanups.callback(self.server.shutdown)

    def options(self):
        """Return what Volt's configuration says of it."""
        return (
            "[keystone_authtoken]\nauth_type = password\nusername = volt\nproject_name = service\n"
            "user_domain_name = Default\nproject_domain_name = Default\n"
            f"password = {PASSWORD}\nauth_url = {self.url}\nwww_authenticate_uri = {self.url}\n"
        )

    def serve(self, request):
        answer, _ = self.map.bind_to_environ(request.environ).match()
        content, status, headers = answer(request)
        return Response(json.dumps(content), status, headers, content_type="application/json")

    def version(self, request):
        links = [{"rel": "self", "href": self.url}]
        return {"version": {"id": "v3.14", "status": "stable", "links": links}}, 200, {}

    def log_in(self, request):
        user = request.json["auth"]["identity"]["password"]["user"]
        if user["password"] != PASSWORD:
            return {"error": {"code": 401, "message": "no", "title": "Unauthorized"}}, 401, {}
        return self.token("volt", ["service"]), 201, {"X-Subject-Token": "service-token"}

    def validate(self, request):
        self.asked += 1
        assert request.headers["X-Auth-Token"] == "service-token"
        found = self.users.get(request.headers["X-Subject-Token"])
        if found is None:
            return {"error": {"code": 404, "message": "no", "title": "Not Found"}}, 404, {}
        return self.token(*found), 200, {}

    def token(self, user, roles, scope="project"):
        domain = {"id": "default", "name": "Default"}
        endpoint = {"id": "e", "interface": "internal", "region": "r", "region_id": "r"}
        now = datetime.now(UTC)
        scopes = {
            "project": {"project": {"id": "p", "name": "service", "domain": domain}},
            "system": {"system": {"all": True}},
        }
        return {
            "token": scopes[scope]
            | {
                "methods": ["password"],
                "user": {"id": f"id-of-{user}", "name": user, "domain": domain},
                "roles": [{"id": role, "name": role} for role in roles],
                "catalog": [
                    {
                        "id": "i",
                        "type": "identity",
                        "name": "keystone",
                        "endpoints": [endpoint | {"url": self.url}],
                    }
                ],
                "issued_at": f"{now:%Y-%m-%dT%H:%M:%S.000000Z}",
                "expires_at": f"{now + self.lifetime:%Y-%m-%dT%H:%M:%S.000000Z}",
            }
        }
