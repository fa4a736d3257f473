"""Whether this Volt serves requests."""

from werkzeug import Request

from volt.api.handlers import Answer, Service
from volt.errors import DatabaseUnreachable


def show(service: Service, request: Request) -> Answer:
    """Say whether the database answered of late; asking it now could hang.

    Raises DatabaseUnreachable.
    """
    if service.watch.is_blind:
        raise DatabaseUnreachable("the database does not answer: see the log of volt-api")
    return {"status": "ok"}
