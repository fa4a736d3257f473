"""How operators see which images disks need, and let go of those of hosts that are lost."""

from flask import request
from flask.typing import ResponseReturnValue

from volt.api import parsing
from volt.api.handlers import Service
from volt.auth.access import HOST
from volt.model.names import check_name


def index(service: Service) -> ResponseReturnValue:
    """List holds."""
    return {"holds": service.holds.index(*parsing.held(request.args))}


def of_host(service: Service, host: str) -> ResponseReturnValue:
    """List the holds of one host, which may see its own."""
    return {"holds": service.holds.index(host=check_name("host", host))}


def release(service: Service, image: str, host: str) -> ResponseReturnValue:
    """Let go of what a host needed: it says so itself, or it has expired."""
    service.holds.release(image, host, by_itself=request.environ.get(HOST) == host)
    return "", 204
