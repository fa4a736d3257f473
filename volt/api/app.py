"""How a request reaches its handler, and which status each kind of error gets."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from jsonschema import Draft202012Validator
from oslo_config import cfg
from werkzeug import Request, Response
from werkzeug.exceptions import HTTPException, InternalServerError, RequestEntityTooLarge
from werkzeug.routing import Map, PathConverter, Rule

from volt.api import openapi, schemas
from volt.api.accesslog import REQUEST_ID, ROUTE, AccessLog
from volt.api.handlers import Answer, Service, images, json_response
from volt.api.routes import ROUTES, Route
from volt.auth import policies
from volt.auth.access import Access, BothTokens, Identities, StoredTokens
from volt.auth.keystone import KeystoneTokens
from volt.auth.ratelimit import Rates
from volt.background.worker import Worker
from volt.db.peers import PeerRows
from volt.db.tokens import Tokens
from volt.errors import (
    Conflict,
    Forbidden,
    Invalid,
    TooFast,
    Unauthenticated,
    Unavailable,
    Unknown,
    VoltError,
)
from volt.model.names import check_name
from volt.registry.peers import Peers

LOG = logging.getLogger(__name__)

KNOWN_PATHS = 16384  # of a worker: hosts ask for the same again and again
LARGEST_BODY = 1024 * 1024  # bytes: a heartbeat of 10,000 images fits
LARGEST_IMAGE = 16 * LARGEST_BODY  # with the upper hashes of an image of 180 GiB
STATUS = (
    (Invalid, 400),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (Unknown, 404),
    (Conflict, 409),
    (TooFast, 429),
    (Unavailable, 503),
)
HTTP_CODES = {
    404: "volt.route.unknown",
    405: "volt.method.unsupported",
    413: "volt.request.too_large",
    500: "volt.internal",
}


class _Host(PathConverter):
    """A host's name, with slashes if it is a wrong one.

    What other routes have behind a host's name is no part of it: a method that they do not
    serve is refused as such.
    """

    regex = PathConverter.regex + "(?<!/heartbeat)(?<!/placements)(?<!/reports)"
    regex += "(?<!/certificate)(?<!/listener)"


def from_conf(conf: cfg.ConfigOpts, worker: Worker) -> WSGIApplication:
    """Return the application that these options describe, served by that worker."""
    rates = Rates(conf.api.rate, conf.api.burst)
    guard = Access(_identities(conf, worker), policies.load(conf), rates)
    service = Service(
        worker.coordinator,
        worker.roster,
        conf.heartbeat.interval,
        worker.watch,
        worker.reports,
        Peers(PeerRows(worker.engine), timedelta(hours=conf.peers.lifetime)),
    )
    return create_app(service, guard)


def _identities(conf: cfg.ConfigOpts, worker: Worker) -> Identities:
    own = StoredTokens(Tokens(worker.engine))
    match conf.api.auth:
        case "token":
            return own
        case "keystone":
            return KeystoneTokens(conf)
    return BothTokens(own, KeystoneTokens(conf))


def create_app(service: Service, guard: Access) -> WSGIApplication:
    """Return the WSGI application over a service, for whom the guard admits."""
    return AccessLog(_App(service, guard))


@dataclass(frozen=True, eq=False)
class _Endpoint:
    """A route, with what is checked before its handler sees a request."""

    path: str
    handler: Callable[..., Answer]
    rule: str | None
    query: Draft202012Validator
    largest: int


class _App:
    """Finds a request's route, checks the request, and makes a response of what comes of it."""

    def __init__(self, service: Service, guard: Access) -> None:
        self._service = service
        self._guard = guard
        routes = Map(
            [Rule(route[1], methods=[route[0]], endpoint=_endpoint(route)) for route in ROUTES],
            converters={"path": _Host},
            merge_slashes=False,  # a redirect would hide an empty name
        ).bind("")

        @lru_cache(KNOWN_PATHS)
        def match(path: str, method: str) -> tuple[_Endpoint, Mapping[str, Any]]:
            return routes.match(path, method)

        self._match = match

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer one request; the one place where errors become HTTP."""
        request = Request(environ)
        try:
            response = self._serve(request)
        except VoltError as err:
            response = _refuse(err)
        except HTTPException as err:
            response = _refuse_http(err)
        except Exception:
            LOG.exception("Request %s failed", environ.get(REQUEST_ID))
            response = _refuse_http(InternalServerError())
        return response(environ, start)

    def _serve(self, request: Request) -> Response:
        endpoint, names = self._match(request.path, request.method)
        request.environ[ROUTE] = endpoint.path
        # One more: werkzeug cuts a chunked body at this length without a word.
        request.max_content_length = endpoint.largest + 1
        if endpoint.rule is not None:
            host = names.get("host") or request.args.get("host")
            self._guard.admit(endpoint.rule, request.environ, host)
        for noun, name in names.items():
            check_name(noun, name)
        if len(request.get_data()) > endpoint.largest:
            raise RequestEntityTooLarge(f"send at most {endpoint.largest} bytes")
        schemas.parameters(request.args, endpoint.query)
        response = _response(endpoint.handler(self._service, request, **names))
        if request.method in {"GET", "HEAD"} and response.status_code == 200:
            response.add_etag()
            response.make_conditional(request)
        return response


def _endpoint(route: Route) -> _Endpoint:
    method, path, handler, rule = route
    largest = LARGEST_IMAGE if handler is images.create else LARGEST_BODY
    return _Endpoint(path, handler, rule, openapi.query_of(method, path), largest)


def _response(answer: Answer) -> Response:
    match answer:
        case Response():
            return answer
        case dict():
            return json_response(answer)
    return json_response(*answer)


def _refuse(error: VoltError) -> Response:
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    response = _error(status, error.code, str(error))
    if isinstance(error, Unauthenticated):
        response.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooFast):
        response.headers["Retry-After"] = str(math.ceil(error.wait))
    return response


def _refuse_http(error: HTTPException) -> Response:
    status = error.code or 500
    message = (
        (error.description or error.name)
        if status != 404
        else ("no such route: see the REST API reference for those there are")
    )
    response = _error(status, HTTP_CODES.get(status, "volt.request.invalid"), message)
    for name, value in error.get_headers():
        if name == "Allow":
            response.headers[name] = value
    return response


def _error(status: int, code: str, message: str) -> Response:
    return json_response({"error": {"code": code, "message": message}}, status)
