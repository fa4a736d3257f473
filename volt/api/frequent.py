"""Requests that come by the thousand, answered before the framework: heartbeats, and joins.

The former are nearly all that a large Volt is asked, and the latter what a boot of many VMs begins
with. What is out of the ordinary goes the way of all requests, and so does what was wrong with one
of these: the framework's error handlers answer it.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from volt.api import accesslog, json_format
from volt.api.handlers import Service, hosts, placements
from volt.api.routes import ROUTES, Route
from volt.auth.access import Access
from volt.model.names import PATTERN

RAISED: Final = "volt.raised"
"""Under which a request's environment has what went wrong with one of these."""

_LENGTH: Final = re.compile(r"[0-9]{1,7}\Z")


@dataclass(frozen=True)
class _Frequent:
    """A route whose requests are frequent.

    :ivar answer: takes the service, a request's body and what the path names; returns the answer
        and its status
    """

    route: Route
    answer: Callable[..., tuple[Any, int]]
    path: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        path = re.sub("<([a-z]+)>", rf"(?P<\1>{PATTERN})", self.route.path)
        object.__setattr__(self, "path", re.compile(path + r"\Z"))


def _frequent(handler: Callable[..., Any], answer: Callable[..., tuple[Any, int]]) -> _Frequent:
    return _Frequent(next(route for route in ROUTES if route.handler is handler), answer)


_ALL: Final = (
    _frequent(hosts.heartbeat, hosts.news),
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
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        for one in _ALL:
            match = one.path.match(path)
            if match and method == one.route.method and _is_ordinary(environ, one.route):
                return self._answer(one, match.groupdict(), environ, start_response)
        return self._others(environ, start_response)

    def _answer(
        self,
        one: _Frequent,
        names: dict[str, str],
        environ: WSGIEnvironment,
        start_response: StartResponse,
    ) -> Iterable[bytes]:
        assert one.route.rule is not None
        accesslog.begin(environ)
        try:
            self._guard.admit(one.route.rule, environ, names["host"])
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            content, status = one.answer(self._service, body, **names)
            answer = json_format.text(content).encode()
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
    return fits and not environ.get("QUERY_STRING")
