"""What happened lately."""

from flask import request
from flask.typing import ResponseReturnValue

from volt.api import parsing
from volt.api.handlers import Service


def index(service: Service) -> ResponseReturnValue:
    """List the last events, newest first."""
    after, limit = parsing.events(request.args)
    return {"events": service.hosts.events(after, limit)}
