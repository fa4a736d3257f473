"""How a request reaches its handler, and which status each kind of error gets."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from flask import Flask, Response, jsonify, request
from flask.json.provider import DefaultJSONProvider
from oslo_config import cfg
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from volt.errors import Conflict, Invalid, Unavailable, Unknown, VoltError
from volt.handlers import Answer, Service
from volt.names import check_name
from volt.routes import ROUTES
from volt.worker import Worker

LOG = logging.getLogger(__name__)

LARGEST_BODY = 1024 * 1024  # bytes: a heartbeat of 10,000 images fits
STATUS = ((Invalid, 400), (Unknown, 404), (Conflict, 409), (Unavailable, 503))
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


class _VoltApp(Flask):
    json_provider_class = _Json


def from_conf(conf: cfg.ConfigOpts, worker: Worker) -> Flask:
    """Return the application that these options describe, served by that worker."""
    return create_app(
        Service(
            worker.coordinator,
            worker.roster,
            conf.heartbeat.interval,
            worker.watch,
            worker.reports,
        )
    )


def create_app(service: Service) -> Flask:
    """Return the WSGI application over a service."""
    app = _VoltApp(__name__, static_folder=None)
    # One more: werkzeug cuts a chunked body at this length without a word.
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_BODY + 1
    app.url_map.merge_slashes = False  # a redirect would hide an empty name
    for method, path, handler in ROUTES:
        app.add_url_rule(path, f"{method} {path}", _bind(handler, service), methods=[method])
    app.register_error_handler(VoltError, _refuse)
    app.register_error_handler(HTTPException, _refuse_http)
    return app


def _bind(handler: Callable[..., Answer], service: Service) -> Callable[..., Answer]:
    def serve(**names: str) -> Answer:
        for noun, name in names.items():
            check_name(noun, name)
        if len(request.get_data()) > LARGEST_BODY:
            raise RequestEntityTooLarge(f"send at most {LARGEST_BODY} bytes")
        return handler(service, **names)

    return serve


def _refuse(error: VoltError) -> Response:
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    return _error(status, error.code, str(error))


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
