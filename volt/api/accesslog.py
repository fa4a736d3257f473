"""What is logged and counted of each request: one line, and never a secret.

A line has fields ``id who method path status ms bytes``. Only the path is there, not the
query, and no header.
"""

import logging
import re
import time
from functools import cache
from typing import Final
from urllib.parse import quote
from uuid import uuid4
from wsgiref.types import WSGIEnvironment

from prometheus_client import Histogram

from volt import metrics
from volt.auth.access import WHO

LOG = logging.getLogger(__name__)

REQUEST_ID: Final = "volt.request_id"
HEADERS: Final = ("X-Request-Id", "X-Openstack-Request-Id")

_BEGAN = "volt.began"
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# What anybody may make up must not become a label: each would be kept for ever.
_METHODS = {"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}
_ROUTINE = ("/heartbeat", "/healthz")


def begin(environ: WSGIEnvironment) -> None:
    """Name a request, unless it was already."""
    if REQUEST_ID not in environ:
        environ[_BEGAN] = time.perf_counter()
        environ[REQUEST_ID] = _request_id(environ)


def end(
    environ: WSGIEnvironment, route: str, status: int, length: int | None
) -> list[tuple[str, str]]:
    """Count and log a request with its answer; return the headers that name it.

    Heartbeats, health checks and waits without news are logged at level debug only: there
    are thousands a second.
    """
    seconds = time.perf_counter() - environ[_BEGAN]
    method = environ["REQUEST_METHOD"]
    _timer(method if method in _METHODS else "other", route, status).observe(seconds)
    _log(environ, status, length, seconds)
    return [(name, environ[REQUEST_ID]) for name in HEADERS]


@cache
def _timer(method: str, route: str, status: int) -> Histogram:
    """Return what measures such requests; to find it takes longer than to use it."""
    return metrics.REQUESTS.labels(method, route, status)


def _request_id(environ: WSGIEnvironment) -> str:
    given = environ.get("HTTP_X_REQUEST_ID") or environ.get("HTTP_X_OPENSTACK_REQUEST_ID") or ""
    return given if _ID.fullmatch(given) else f"req-{uuid4()}"


def _log(environ: WSGIEnvironment, status: int, length: int | None, seconds: float) -> None:
    path = environ.get("PATH_INFO", "")
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
            "-" if length is None else length,
        )
