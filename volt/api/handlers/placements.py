"""How hosts get, change and leave their places in the trees of images."""

from typing import Any

from flask import request
from flask.typing import ResponseReturnValue

from volt import metrics
from volt.api import parsing
from volt.api.handlers import Service
from volt.model.placements import State


def show(service: Service, image: str, host: str) -> ResponseReturnValue:
    """Show the host's placement."""
    return vars(service.placements.show(image, host))


def join(service: Service, image: str, host: str) -> ResponseReturnValue:
    """Place the host."""
    return joined(service, image, host, request.get_data())


def joined(service: Service, image: str, host: str, body: bytes) -> tuple[dict[str, Any], int]:
    """Return the answer to a host that joins, and its status."""
    portal, wiring = parsing.join(body)
    placement, is_new = service.placements.join(image, host, portal, wiring)
    if is_new:
        metrics.JOINS.inc()
    return vars(placement), 201 if is_new else 200


def change(service: Service, image: str, host: str) -> ResponseReturnValue:
    """Note that the host is ready, or take it out of the trees."""
    wanted = parsing.state(request.get_data())
    if wanted.state == State.LEAVING:
        return vars(service.placements.leave(image, host))
    assert wanted.generation is not None  # the schema asks for it here
    ready = service.placements.ready(image, host, wanted.generation, wanted.stripes)
    return vars(ready)


def remove(service: Service, image: str, host: str) -> ResponseReturnValue:
    """Forget the host's place."""
    service.placements.remove(image, host)
    return "", 204


def report(service: Service, image: str, host: str) -> ResponseReturnValue:
    """Check the host's word about its parent."""
    parent, reason = parsing.report(request.get_data())
    return {"verdict": service.reports.judge(image, host, parent, reason)}
