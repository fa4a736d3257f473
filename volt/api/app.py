"""How a request reaches its handler, and which status each kind of error gets."""

import logging
import math
from datetime import timedelta
from functools import cache, partial

from flask import Flask, Response, jsonify, request
from oslo_config import cfg
from oslo_policy import policy
from werkzeug.exceptions import HTTPException, InternalServerError
from werkzeug.routing import Map, PathConverter, Rule

from volt.api import accesslog, json_format, openapi
from volt.api.checks import Checks
from volt.api.frequent import Frequent
from volt.api.handlers import Service
from volt.api.handlers.openapi import DOCUMENT
from volt.api.routes import ENDPOINTS
from volt.auth.access import Access, BothTokens, Identities, StoredTokens
from volt.auth.keystone import KeystoneTokens
from volt.auth.ratelimit import Rates
from volt.background.worker import Worker
from volt.db.peers import PeerRows
from volt.db.tokens import Tokens
from volt.errors import (
    ConditionFailed,
    Conflict,
    Forbidden,
    Invalid,
    TooFast,
    Unauthenticated,
    Unavailable,
    Unknown,
    VoltError,
)
from volt.registry.peers import Peers

LOG = logging.getLogger(__name__)

STATUS = {
    Invalid: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    Unknown: 404,
    Conflict: 409,
    ConditionFailed: 412,
    TooFast: 429,
    Unavailable: 503,
    VoltError: 500,
}
HTTP_CODES = {
    404: "volt.route.unknown",
    405: "volt.method.unsupported",
    413: "volt.request.too_large",
    500: "volt.internal",
}


def from_conf(conf: cfg.ConfigOpts, worker: Worker, rules: policy.Enforcer) -> Flask:
    """Return the application that these options and rules describe, served by that worker."""
    rates = Rates(conf.api.rate, conf.api.burst)
    guard = Access(_identities(conf, worker), rules, rates)
    service = Service(
        worker.images,
        worker.placements,
        worker.hosts,
        conf.heartbeat.interval,
        worker.watch,
        worker.reports,
        Peers(PeerRows(worker.engine), timedelta(hours=conf.peers.lifetime)),
        worker.profiles,
        worker.warmups,
        worker.caps,
        worker.holds,
        worker.imports,
        worker.copies,
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


def create_app(service: Service, guard: Access) -> Flask:
    """Return the application over a service, for whom the guard admits."""
    app = Flask(__name__, static_folder=None)
    app.response_class = _Answer
    app.json = json_format.Provider(app)
    app.extensions[DOCUMENT] = openapi.document(ENDPOINTS.values())
    app.url_map = _url_map()
    for name, route in ENDPOINTS.items():
        app.view_functions[name] = partial(route.handler, service)
    checks = Checks(ENDPOINTS, guard)
    for before in (_begin, checks.admit, checks.read):
        app.before_request(before)
    for after in (_end, _tag):  # the last one is called first
        app.after_request(after)
    for kind, status in STATUS.items():
        app.register_error_handler(kind, partial(_refuse, status))
    app.register_error_handler(HTTPException, _refuse_http)
    app.register_error_handler(Exception, _fail)
    app.wsgi_app = Frequent(service, guard, app.wsgi_app)  # type: ignore[method-assign]
    return app


class _Host(PathConverter):
    """A host's name, with slashes if it is a wrong one.

    What other routes have behind a host's name is no part of it: a method that they do not
    serve is refused as such.
    """

    regex = PathConverter.regex + "(?<!/heartbeat)(?<!/placements)(?<!/reports)"
    regex += "(?<!/certificate)(?<!/listener)"


class _Answer(Response):
    default_mimetype = "application/json"


@cache
def _url_map() -> Map:
    """Compile the paths: once in a process, as it takes longer than all else of an application."""
    return Map(
        [Rule(one.path, methods=[one.method], endpoint=name) for name, one in ENDPOINTS.items()],
        converters={"path": _Host},
        merge_slashes=False,  # a redirect would hide an empty name
    )


def _begin() -> None:
    accesslog.begin(request.environ)


def _end(response: Response) -> Response:
    route = request.url_rule.rule if request.url_rule else "none"
    # These two have no body, whatever the framework says of its length.
    length = None if response.status_code in {204, 304} else response.content_length
    response.headers.extend(accesslog.end(request.environ, route, response.status_code, length))
    return response


def _tag(response: Response) -> Response:
    """Leave out what who asks has already, as its ETag says."""
    if request.method in {"GET", "HEAD"} and response.status_code == 200:
        response.add_etag()
        response.make_conditional(request)
    return response


def _refuse(status: int, error: VoltError) -> Response:
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


def _fail(error: Exception) -> Response:
    LOG.error("Request %s failed", request.environ[accesslog.REQUEST_ID], exc_info=error)
    return _refuse_http(InternalServerError())


def _error(status: int, code: str, message: str) -> Response:
    response = jsonify({"error": {"code": code, "message": message}})
    response.status_code = status
    return response
