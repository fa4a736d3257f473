"""How a request reaches its handler, and which status each kind of error gets."""

import logging
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

from flask import Flask, Response, jsonify, make_response, request
from flask.json.provider import DefaultJSONProvider
from oslo_config import cfg
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge
from werkzeug.routing import PathConverter

from volt import openapi, policies, schemas
from volt.access import Access, StoredTokens
from volt.accesslog import REQUEST_ID, ROUTE, AccessLog
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
from volt.handlers import Answer, Service, images
from volt.keystone import KeystoneTokens
from volt.names import check_name
from volt.peers import Peers
from volt.rates import Rates
from volt.routes import ROUTES, Route
from volt.worker import Worker

LOG = logging.getLogger(__name__)

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


class _Json(DefaultJSONProvider):
    """JSON with times in ISO 8601 and fields in the order of the documentation."""

    sort_keys = False

    @staticmethod
    def default(value: Any) -> Any:
        """Render what JSON itself lacks."""
        if isinstance(value, datetime):
            return value.isoformat()
        return DefaultJSONProvider.default(value)


class _Host(PathConverter):
    """A host's name, with slashes if it is a wrong one.

    What other routes have behind a host's name is no part of it: a method that they do not
    serve is refused as such.
    """

    regex = PathConverter.regex + "(?<!/heartbeat)(?<!/placements)(?<!/reports)"
    regex += "(?<!/certificate)(?<!/listener)"


class _VoltApp(Flask):
    json_provider_class = _Json

    def log_exception(
        self, exc_info: tuple[type, BaseException, TracebackType] | tuple[None, None, None]
    ) -> None:
        """Name the request whose handler failed."""
        LOG.error("Request %s failed", request.environ.get(REQUEST_ID), exc_info=exc_info)


def from_conf(conf: cfg.ConfigOpts, worker: Worker) -> Flask:
    """Return the application that these options describe, served by that worker."""
    by_keystone = conf.api.auth == "keystone"
    identities = KeystoneTokens(conf) if by_keystone else StoredTokens(Tokens(worker.engine))
    guard = Access(identities, policies.load(conf), Rates(conf.api.rate, conf.api.burst))
    service = Service(
        worker.coordinator,
        worker.roster,
        conf.heartbeat.interval,
        worker.watch,
        worker.reports,
        Peers(PeerRows(worker.engine), timedelta(hours=conf.peers.lifetime)),
    )
    return create_app(service, guard)


def create_app(service: Service, guard: Access) -> Flask:
    """Return the WSGI application over a service, for whom the guard admits."""
    app = _VoltApp(__name__, static_folder=None)
    app.url_map.converters["path"] = _Host
    app.url_map.merge_slashes = False  # a redirect would hide an empty name
    for route in ROUTES:
        method, path, _, _ = route
        serve = _bind(route, service, guard)
        app.add_url_rule(path, f"{method} {path}", serve, methods=[method])
    app.register_error_handler(VoltError, _refuse)
    app.register_error_handler(HTTPException, _refuse_http)
    app.wsgi_app = AccessLog(app.wsgi_app)  # type: ignore[method-assign]
    return app


def _bind(route: Route, service: Service, guard: Access) -> Callable[..., Answer]:
    method, path, handler, rule = route
    query = openapi.query_of(method, path)
    largest = LARGEST_IMAGE if handler is images.create else LARGEST_BODY

    def serve(**names: str) -> Answer:
        request.environ[ROUTE] = path
        # One more: werkzeug cuts a chunked body at this length without a word.
        request.max_content_length = largest + 1
        if rule is not None:
            guard.admit(rule, request.environ, names.get("host") or request.args.get("host"))
        for noun, name in names.items():
            check_name(noun, name)
        if len(request.get_data()) > largest:
            raise RequestEntityTooLarge(f"send at most {largest} bytes")
        schemas.parameters(request.args, query)
        response = make_response(handler(service, **names))
        if request.method in {"GET", "HEAD"} and response.status_code == 200:
            response.add_etag()
            response.make_conditional(request)
        return response

    return serve


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
    response = jsonify({"error": {"code": code, "message": message}})
    response.status_code = status
    return response
