"""A stub of the Networking API: no networks, no ports, no extensions. A program of its own.

It is what nova asks about servers without a network, and what Horizon asks for quotas.
"""

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

QUOTAS = (
    *("network", "subnet", "port", "router", "floatingip"),
    *("security_group", "security_group_rule"),
)


def answer(path: str, me: str) -> Any:
    """Return what a path holds; None if it holds nothing."""
    path = path.partition("?")[0].rstrip("/").removesuffix(".json")
    if not path:
        links = [{"rel": "self", "href": f"{me}/v2.0/"}]
        return {"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]}
    if path == "/v2.0":
        return {"resources": []}
    if match := re.fullmatch(r"/v2\.0/quotas/[^/]+(/default|/details)?", path):
        detailed = match[1] == "/details"
        limit: Any = {"limit": -1, "used": 0, "reserved": 0} if detailed else -1
        return {"quota": dict.fromkeys(QUOTAS, limit)}
    if match := re.fullmatch(r"/v2\.0/([a-z_-]+)", path):
        return {match[1].replace("-", "_"): []}
    return None


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Show what there is."""
        host, port = self.server.server_address[:2]
        found = answer(self.path, f"http://{host!s}:{port}")
        self._reply(404 if found is None else 200, found or _error("NotFound"))

    def do_POST(self) -> None:
        """Refuse: there is nothing to be made here."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._reply(403, _error("PolicyNotAuthorized"))

    do_PUT = do_POST

    def do_DELETE(self) -> None:
        """Say that it is not there."""
        self._reply(404, _error("NotFound"))

    def _reply(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _error(kind: str) -> Any:
    return {"NeutronError": {"type": kind, "message": "this is a stub", "detail": ""}}


if __name__ == "__main__":
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
