"""How hosts get, change and leave their places, and learn of changes."""

from dataclasses import asdict

from flask import request

from volt import metrics, schemas
from volt.handlers import Answer, Service, page_of
from volt.objects import State


def show(service: Service, image: str, host: str) -> Answer:
    """Show the host's placement."""
    return asdict(service.coordinator.placement(image, host))


def join(service: Service, image: str, host: str) -> Answer:
    """Place the host."""
    portal, rack = schemas.join(request.get_data())
    placement, is_new = service.coordinator.join(image, host, portal, rack)
    if is_new:
        metrics.JOINS.inc()
    return asdict(placement), 201 if is_new else 200


def change(service: Service, image: str, host: str) -> Answer:
    """Note that the host is ready, or take it out of the trees."""
    wanted = schemas.state(request.get_data())
    if wanted.state == State.LEAVING:
        return asdict(service.coordinator.leave(image, host))
    assert wanted.generation is not None  # the schema asks for it here
    return asdict(service.coordinator.ready(image, host, wanted.generation))


def remove(service: Service, image: str, host: str) -> Answer:
    """Forget the host's place."""
    service.coordinator.remove(image, host)
    return "", 204


def index(service: Service) -> Answer:
    """List hosts by name."""
    page = schemas.page(request.args)
    hosts = service.roster.hosts(page.marker, page.limit + 1)
    return page_of("hosts", hosts, page, "host")


def about(service: Service, host: str) -> Answer:
    """Show what is known of the host."""
    return asdict(service.roster.host(host))


def drain(service: Service, host: str) -> Answer:
    """Let the host feed nobody any more, or again."""
    return asdict(service.roster.drain(host, schemas.drain(request.get_data())))


def heartbeat(service: Service, host: str) -> Answer:
    """Tell the host which of its placements it does not know."""
    news = service.roster.heartbeat(host, schemas.heartbeat(request.get_data()))
    return {"interval": service.heartbeat_interval} | asdict(news)
