"""The status page, which is files of this package: all data it shows comes by the REST API."""

from pathlib import Path

from flask import Response, send_from_directory
from flask.typing import ResponseReturnValue

from volt.api.handlers import Service

FOLDER = Path(__file__).resolve().parents[2] / "static"
HEADERS = {
    # Nothing but this page's own files is ever loaded, run or spoken to.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def show(service: Service) -> ResponseReturnValue:
    """Show the status page."""
    return _send("index.html")


def file(service: Service, file: str) -> ResponseReturnValue:
    """Return a file of the status page."""
    return _send(file)


def _send(name: str) -> Response:
    response = send_from_directory(FOLDER, name)
    response.headers.update(HEADERS)
    return response
