"""Heartbeats, answered before the framework: they are nearly all that a large Volt is asked.

What is out of the ordinary goes the way of all requests, and so does what was wrong with a
heartbeat: the framework's error handlers answer it.
"""

import re
from collections.abc import Iterable
from typing import Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from volt.api import accesslog, json_format
from volt.api.handlers import Service, hosts
from volt.api.routes import ROUTES
from volt.auth.access import Access
from volt.model.names import PATTERN

RAISED: Final = "volt.raised"
"""Under which a request's environment has what went wrong with a heartbeat."""

_ROUTE: Final = next(route for route in ROUTES if route.handler is hosts.heartbeat)
_PATH: Final = re.compile(_ROUTE.path.replace("<host>", f"({PATTERN})") + r"\Z")
_LENGTH: Final = re.compile(r"[0-9]{1,7}\Z")


class Heartbeats:
    """A WSGI application before the one that answers all else."""

    def __init__(self, service: Service, guard: Access, others: WSGIApplication) -> None:
        self._service = service
        self._guard = guard
        self._others = others

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        path = _PATH.match(environ["PATH_INFO"])
        if path is None or environ["REQUEST_METHOD"] != _ROUTE.method or not _is_ordinary(environ):
            return self._others(environ, start_response)
        accesslog.begin(environ)
        try:
            answer = self._answer(environ, path[1])
        except Exception as err:  # the framework tells which answer each kind gets
            environ[RAISED] = err
            return self._others(environ, start_response)
        headers = accesslog.end(environ, _ROUTE.path, 200, len(answer))
        kind, length = ("Content-Type", "application/json"), ("Content-Length", str(len(answer)))
        start_response("200 OK", [kind, length, *headers])
        return [answer]

    def _answer(self, environ: WSGIEnvironment, host: str) -> bytes:
        assert _ROUTE.rule is not None
        self._guard.admit(_ROUTE.rule, environ, host)
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        return json_format.text(hosts.news(self._service, host, body)).encode()


def _is_ordinary(environ: WSGIEnvironment) -> bool:
    length = environ.get("CONTENT_LENGTH", "")
    fits = _LENGTH.match(length) is not None and int(length) <= _ROUTE.largest
    return fits and not environ.get("QUERY_STRING")
