"""Whether this Volt serves requests."""

from flask.typing import ResponseReturnValue

from volt.api.handlers import Service
from volt.errors import DatabaseUnreachable


def show(service: Service) -> ResponseReturnValue:
    """Say whether the database answered of late; asking it now could hang.

    Raises DatabaseUnreachable.
    """
    if service.watch.is_blind:
        raise DatabaseUnreachable("the database does not answer: see the log of volt-api")
    return {"status": "ok"}
