"""What a large Volt is asked most, answered before the framework: heartbeats, and joins.

What is out of the ordinary goes the way of all requests, and so does what was wrong with such a
request: the framework's error handlers answer it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from volt.api import accesslog, json_format
from volt.api.handlers import Service, hosts, placements
from volt.api.routes import ROUTES, Route
from volt.auth.access import Access
from volt.model.names import PATTERN

RAISED: Final = "volt.raised"
"""Under which a request's environment has what went wrong with it."""

_LENGTH: Final = re.compile(r"[0-9]{1,7}\Z")


class _Frequent(NamedTuple):
    """A route about a host, and what answers it: takes the names in its path, and the body."""

    route: Route
    path: re.Pattern[str]
    answer: Callable[..., tuple[Any, int]]


def _frequent(handler: Callable[..., Any], answer: Callable[..., tuple[Any, int]]) -> _Frequent:
    route = next(route for route in ROUTES if route.handler is handler)
    path = re.sub("<([a-z]+)>", rf"(?P<\1>{PATTERN})", route.path)
    return _Frequent(route, re.compile(path + r"\Z"), answer)


_FREQUENT: Final = (
    _frequent(hosts.heartbeat, hosts.heard),
    _frequent(placements.join, placements.joined),
)


class Frequent:
    """A WSGI application before the one that answers all else."""

    def __init__(self, service: Service, guard: Access, others: WSGIApplication) -> None:
        self._service = service
        self._guard = guard
        self._others = others

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        for one in _FREQUENT:
            path = one.path.match(environ["PATH_INFO"])
            if path and _is_ordinary(environ, one.route):
                return self._answered(environ, start_response, one, path.groupdict())
        return self._others(environ, start_response)

    def _answered(
        self,
        environ: WSGIEnvironment,
        start_response: StartResponse,
        one: _Frequent,
        names: Mapping[str, str],
    ) -> Iterable[bytes]:
        accesslog.begin(environ)
        try:
            assert one.route.rule is not None
            self._guard.admit(one.route.rule, environ, names["host"])
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            found, status = one.answer(self._service, **names, body=body)
            answer = json_format.text(found).encode()
        except Exception as err:  # the framework tells which answer each kind gets
            environ[RAISED] = err
            return self._others(environ, start_response)
        headers = accesslog.end(environ, one.route.path, status, len(answer))
        kind, length = ("Content-Type", "application/json"), ("Content-Length", str(len(answer)))
        start_response(f"{status} {HTTPStatus(status).phrase}", [kind, length, *headers])
        return [answer]


def _is_ordinary(environ: WSGIEnvironment, route: Route) -> bool:
    length = environ.get("CONTENT_LENGTH", "")
    fits = _LENGTH.match(length) is not None and int(length) <= route.largest
    return fits and environ["REQUEST_METHOD"] == route.method and not environ.get("QUERY_STRING")
