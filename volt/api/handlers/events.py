"""What happened lately."""

from werkzeug import Request

from volt.api import schemas
from volt.api.handlers import Answer, Service


def index(service: Service, request: Request) -> Answer:
    """List the last events, newest first."""
    after, limit = schemas.events(request.args)
    return {"events": service.roster.events(after, limit)}
