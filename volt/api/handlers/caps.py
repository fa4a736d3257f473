"""How operators cap what hosts fetch ahead of VMs."""

from flask import request
from flask.typing import ResponseReturnValue

from volt.api import parsing
from volt.api.handlers import Service
from volt.model.caps import CapKind


def index(service: Service) -> ResponseReturnValue:
    """List all caps."""
    return {"caps": service.caps.index()}


def put_image(service: Service, image: str) -> ResponseReturnValue:
    """Cap what all hosts fetch ahead in the image."""
    return _put(service, CapKind.IMAGE, image)


def clear_image(service: Service, image: str) -> ResponseReturnValue:
    """Remove the image's cap."""
    service.caps.clear(CapKind.IMAGE, image)
    return "", 204


def put_rack(service: Service, rack: str) -> ResponseReturnValue:
    """Cap what the hosts of the rack fetch ahead in all images."""
    return _put(service, CapKind.RACK, rack)


def clear_rack(service: Service, rack: str) -> ResponseReturnValue:
    """Remove the rack's cap."""
    service.caps.clear(CapKind.RACK, rack)
    return "", 204


def put_host(service: Service, host: str) -> ResponseReturnValue:
    """Cap what the host fetches ahead in all images."""
    return _put(service, CapKind.HOST, host)


def clear_host(service: Service, host: str) -> ResponseReturnValue:
    """Remove the host's cap."""
    service.caps.clear(CapKind.HOST, host)
    return "", 204


def _put(service: Service, kind: CapKind, name: str) -> ResponseReturnValue:
    cap, is_new = service.caps.put(kind, name, parsing.cap(request.get_data()))
    return vars(cap), 201 if is_new else 200
