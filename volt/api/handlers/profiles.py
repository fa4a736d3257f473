"""How boot profiles of images are stored and handed out."""

from datetime import UTC, datetime

from flask import Response, request
from flask.typing import ResponseReturnValue

from volt.api import parsing
from volt.api.handlers import Service
from volt.auth.access import HOST
from volt.model import profiles


def index(service: Service, image: str) -> ResponseReturnValue:
    """List the newest profile of each workload."""
    return {"profiles": service.profiles.index(image)}


def show(service: Service, image: str, workload: str) -> ResponseReturnValue:
    """Show the bytes of a profile."""
    content, tag = service.profiles.show(image, workload, parsing.revision(request.args))
    response = Response(content, content_type="application/octet-stream")
    response.set_etag(tag)
    return response


def history(service: Service, image: str, workload: str) -> ResponseReturnValue:
    """List the revisions of a profile."""
    return {"revisions": service.profiles.history(image, workload)}


def store(service: Service, image: str, workload: str) -> ResponseReturnValue:
    """Store a profile, if the one that is there is the one that the request names."""
    new = profiles.parse(request.get_data())
    condition = parsing.condition(request.headers)
    now, host = datetime.now(UTC), request.environ.get(HOST)
    stored, is_new = service.profiles.store(image, workload, new, now, condition, host)
    return vars(stored), 201 if is_new else 200, {"ETag": f'"{new.tag}"'}


def remove(service: Service, image: str, workload: str) -> ResponseReturnValue:
    """Forget all revisions of a profile."""
    service.profiles.remove(image, workload)
    return "", 204
