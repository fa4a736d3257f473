"""What is logged and counted of each request: one line, and never a secret.

A line has fields ``id who method path status ms bytes``. Only the path is there, not the
query, and no header.
"""

import logging
import re
import time
from collections.abc import Iterable
from functools import cache
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import Histogram

from volt import metrics
from volt.auth.access import WHO

LOG = logging.getLogger(__name__)

REQUEST_ID: Final = "volt.request_id"
ROUTE: Final = "volt.route"
HEADERS: Final = ("X-Request-Id", "X-Openstack-Request-Id")

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# What anybody may make up must not become a label: each would be kept for ever.
_METHODS = {"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}
_ROUTINE = ("/heartbeat", "/healthz")


class AccessLog:
    """A WSGI application that names each request and logs how it went.

    Heartbeats, health checks and waits without news are there at level debug only: there
    are thousands a second.
    """

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        began = time.perf_counter()
        request_id = environ[REQUEST_ID] = _request_id(environ)
        answer: dict[str, Any] = {}

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            answer["status"] = int(status[:3])
            answer["bytes"] = next((n for name, n in headers if name == "Content-Length"), "-")
            headers = [*headers, *((name, request_id) for name in HEADERS)]
            return start_response(status, headers, *more)

        body = self._application(environ, start)
        seconds = time.perf_counter() - began
        route, method = environ.get(ROUTE, "none"), environ["REQUEST_METHOD"]
        _timer(method if method in _METHODS else "other", route, answer["status"]).observe(seconds)
        _log(environ, answer, seconds)
        return body


@cache
def _timer(method: str, route: str, status: int) -> Histogram:
    """Return what measures such requests; to find it takes longer than to use it."""
    return metrics.REQUESTS.labels(method, route, status)


def _request_id(environ: WSGIEnvironment) -> str:
    given = environ.get("HTTP_X_REQUEST_ID") or environ.get("HTTP_X_OPENSTACK_REQUEST_ID") or ""
    return given if _ID.fullmatch(given) else f"req-{uuid4()}"


def _log(environ: WSGIEnvironment, answer: dict[str, Any], seconds: float) -> None:
    path, status = environ.get("PATH_INFO", ""), answer.get("status", 0)
    routine = status == 304 or (status < 400 and path.endswith(_ROUTINE))
    level = logging.DEBUG if routine else logging.INFO
    if LOG.isEnabledFor(level):
        # PATH_INFO may hold whatever a client made up, line ends too: hence quoted.
        LOG.log(
            level,
            "id=%s who=%s method=%s path=%s status=%d ms=%.1f bytes=%s",
            environ[REQUEST_ID],
            quote(environ.get(WHO, "-"), safe="/@:"),
            environ["REQUEST_METHOD"],
            quote(path.encode("latin-1", "replace")),
            status,
            seconds * 1000,
            answer.get("bytes", "-"),
        )
