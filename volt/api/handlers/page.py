"""The status page, which is files of this package: all data it shows comes by the REST API."""

from pathlib import Path

from werkzeug import Request, Response
from werkzeug.utils import send_from_directory

from volt.api.handlers import Answer, Service

FOLDER = Path(__file__).resolve().parents[2] / "static"
HEADERS = {
    # Nothing but this page's own files is ever loaded, run or spoken to.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def show(service: Service, request: Request) -> Answer:
    """Show the status page."""
    return _send(request, "index.html")


def file(service: Service, request: Request, file: str) -> Answer:
    """Return a file of the status page."""
    return _send(request, file)


def _send(request: Request, name: str) -> Response:
    response = send_from_directory(FOLDER, name, request.environ)
    response.headers.update(HEADERS)
    return response
