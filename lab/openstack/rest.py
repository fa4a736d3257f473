"""The services' REST APIs, asked directly: for what is looked at again and again."""

import threading
from typing import Any

import requests

from lab.cluster import Bed
from lab.openstack.settings import KEYSTONE, PASSWORD, REGION

MICROVERSION = "compute 2.67, volume 3.59"


class Rest:
    """One user in one project."""

    def __init__(self, bed: Bed, user: str, project: str) -> None:
        self.bed = bed
        self.user = user
        self.project = project
        self._guard = threading.Lock()
        self._token = ""
        self._catalog: dict[str, str] = {}

    def token(self) -> str:
        """Log in, once, and return the token."""
        with self._guard:
            if not self._token:
                self._log_in()
            return self._token

    def ask(self, method: str, kind: str, path: str, body: object = None) -> requests.Response:
        """Ask the service of a kind, such as "compute"; the path is below its endpoint."""
        headers = {"X-Auth-Token": self.token(), "OpenStack-API-Version": MICROVERSION}
        url = self._catalog[kind] + path
        with self.bed.inside():
            return requests.request(method, url, json=body, headers=headers, timeout=60)

    def get(self, kind: str, path: str) -> Any:
        """Return what a path holds; raise requests.HTTPError for an error."""
        answer = self.ask("GET", kind, path)
        answer.raise_for_status()
        return answer.json()

    def _log_in(self) -> None:
        domain = {"id": "default"}
        user = {"name": self.user, "domain": domain, "password": PASSWORD}
        body = {
            "auth": {
                "identity": {"methods": ["password"], "password": {"user": user}},
                "scope": {"project": {"name": self.project, "domain": domain}},
            }
        }
        with self.bed.inside():
            answer = requests.post(f"{KEYSTONE}/v3/auth/tokens", json=body, timeout=30)
        answer.raise_for_status()
        self._catalog = {
            service["type"]: endpoint["url"]
            for service in answer.json()["token"]["catalog"]
            for endpoint in service["endpoints"]
            if endpoint["interface"] == "public" and endpoint["region_id"] == REGION
        }
        self._token = answer.headers["X-Subject-Token"]
