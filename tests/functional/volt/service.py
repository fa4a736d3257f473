"""What tests of a real volt-api stand on."""

import json
from pathlib import Path
from typing import Any

import requests

from lab.volt import Volt
from tests.functional.volt.base import TestCase

IQN = "iqn.2003-01.org.example:h"


class Api:
    """The REST API under a URL, for an operator."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self._token = token

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> requests.Response:
        """Send a request."""
        data = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self._token}"} | more.pop("headers", {})
        url = self.url + path
        return requests.request(method, url, data=data, timeout=90, headers=headers, **more)

    def add_image(self, name: str, source_port: int) -> None:
        """Make an image known, with a source that answers on that port."""
        source = {"ip": "127.0.0.1", "port": source_port, "iqn": IQN, "lun": 0}
        body = {"name": name, "size": 1024**2, "source": source}
        answer = self.call("POST", "/v1/images", body)
        assert answer.ok, answer.text

    def join(self, image: str, host: str, port: int = 3260) -> dict[str, Any]:
        """Place a host that serves on that port of loopback."""
        answer = self.ask_to_join(image, host, port)
        assert answer.ok, answer.text
        return dict(answer.json())

    def ask_to_join(self, image: str, host: str, port: int = 3260) -> requests.Response:
        """Ask for a host's place."""
        portal = {"ip": "127.0.0.1", "port": port, "iqn": IQN, "lun": 0}
        return self.call("PUT", f"/v1/images/{image}/hosts/{host}", {"portal": portal})

    def beat(self, host: str, **generations: int) -> dict[str, Any]:
        """Send a heartbeat of a host that serves these images."""
        images = {name: {"generation": number} for name, number in generations.items()}
        answer = self.call("PUT", f"/v1/hosts/{host}/heartbeat", {"images": images})
        assert answer.ok, answer.text
        return dict(answer.json())

    def report(self, image: str, host: str, parent: str) -> requests.Response:
        """Say for a host that its parent is dead."""
        return self.call("POST", f"/v1/images/{image}/hosts/{host}/reports", {"parent": parent})

    def poll(self, host: str, wait: int, tag: str | None = None) -> requests.Response:
        """Ask for a host's placements, and wait for others than those of the tag."""
        headers = {"If-None-Match": tag} if tag else {}
        return self.call("GET", f"/v1/hosts/{host}/placements?wait={wait}", headers=headers)


class ServiceCase(TestCase):
    """A real volt-api on a database of its own, with an image x."""

    options: dict[str, dict[str, object]] | None = None
    workers = 1

    def setUp(self):
        super().setUp()
        self.volt = self.serve()
        self.api = self.api_of(self.volt)
        self.api.add_image("x", self.ground.source_port)

    def serve(self) -> Volt:
        """Start one more volt-api over the database."""
        folder = Path(self.ground.folder, f"volt{len(list(self.ground.folder.iterdir()))}")
        folder.mkdir()
        return self.cleanups.enter_context(
            Volt(folder, self.ground.url, self.workers, self.options)
        )

    def api_of(self, volt: Volt) -> Api:
        """Return the API that it serves."""
        return Api(f"http://{volt.address}:{volt.port}", self.ground.operator)
