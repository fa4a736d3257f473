"""The two routes of Glance that VirtMan needs, over HTTP, with the faults that Glance can have."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import fixtures
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token

from virtman.openstack.glance import Glance

TOKEN = "s3cret"
PATIENCE = 30.0


def glance_at(url):
    """What a service has that logged in."""
    return Glance(Adapter(Session(auth=Token(url, TOKEN)), service_type="image"))


class FakeGlance(fixtures.Fixture):
    """Glance's API.

    :param address: where it listens
    :ivar images: what Glance says of each image; tests change it at will
    :ivar data: the bytes of each
    :ivar downloads: how many were begun
    :ivar status: the answer to all requests, if there is one
    :ivar breaks_at: bytes after which a download's connection ends
    :ivar waits_at: bytes after which a download pauses, until ``go``; ``waiting`` is set then
    """

    def __init__(self, address="127.0.0.1"):
        super().__init__()
        self.address = address

    def _setUp(self):
        self.numbers = count(1)
        self.images, self.data = {}, {}
        self.downloads = 0
        self.status = self.breaks_at = self.waits_at = None
        self.go, self.waiting = threading.Event(), threading.Event()
        self.server = ThreadingHTTPServer((self.address, 0), _Handler)
        self.server.glance = self
        self.url = f"http://{self.address}:{self.server.server_port}/v2"
        thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        thread.start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.go.set)

    def upload(self, data, disk_format="raw", **properties):
        """Have an image; return its id."""
        image = f"0c0ffee0-1111-2222-3333-{next(self.numbers):012}"
        self.data[image] = data
        self.images[image] = {
            "id": image,
            "status": "active",
            "disk_format": disk_format,
            "container_format": "bare",
            "size": len(data),
            "os_hash_algo": "sha512",
            "os_hash_value": hashlib.sha512(data).hexdigest(),
            "checksum": hashlib.md5(data).hexdigest(),
            **properties,
        }
        return image


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        glance = self.server.glance
        image, *file = self.path.removeprefix("/v2/images/").split("/")
        if self.headers["X-Auth-Token"] != TOKEN:
            self.send_error(401)
        elif glance.status:
            self.send_error(glance.status)
        elif image not in glance.images:
            self.send_error(404)
        elif not file:
            self.answer(json.dumps(glance.images[image]).encode(), "application/json")
        elif glance.data[image] is None:
            self.send_response(204)
            self.end_headers()
        else:
            glance.downloads += 1
            self.answer(glance.data[image], "application/octet-stream")

    def answer(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        glance, done = self.server.glance, 0
        if kind == "application/octet-stream" and glance.breaks_at is not None:
            body = body[: glance.breaks_at]
        elif kind == "application/octet-stream" and glance.waits_at is not None:
            done = glance.waits_at
            self.wfile.write(body[:done])
            glance.waiting.set()
            glance.go.wait(PATIENCE)
        try:
            self.wfile.write(body[done:])
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *args):
        pass
