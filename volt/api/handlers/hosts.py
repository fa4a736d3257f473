"""How hosts get, change and leave their places, and learn of changes."""

import time
from collections.abc import Collection
from hashlib import sha256

from werkzeug import Request

from volt import metrics
from volt.api import schemas
from volt.api.handlers import Answer, Service, page_of
from volt.model.objects import Placement, State


def show(service: Service, request: Request, image: str, host: str) -> Answer:
    """Show the host's placement."""
    return vars(service.coordinator.placement(image, host))


def join(service: Service, request: Request, image: str, host: str) -> Answer:
    """Place the host."""
    portal, rack = schemas.join(request.get_data())
    placement, is_new = service.coordinator.join(image, host, portal, rack)
    if is_new:
        metrics.JOINS.inc()
    return vars(placement), 201 if is_new else 200


def change(service: Service, request: Request, image: str, host: str) -> Answer:
    """Note that the host is ready, or take it out of the trees."""
    wanted = schemas.state(request.get_data())
    if wanted.state == State.LEAVING:
        return vars(service.coordinator.leave(image, host))
    assert wanted.generation is not None  # the schema asks for it here
    return vars(service.coordinator.ready(image, host, wanted.generation))


def remove(service: Service, request: Request, image: str, host: str) -> Answer:
    """Forget the host's place."""
    service.coordinator.remove(image, host)
    return None, 204


def index(service: Service, request: Request) -> Answer:
    """List hosts by name."""
    page = schemas.page(request.args)
    hosts = service.roster.hosts(page.marker, page.limit + 1)
    return page_of("hosts", hosts, page, "host")


def about(service: Service, request: Request, host: str) -> Answer:
    """Show what is known of the host."""
    return vars(service.roster.host(host))


def drain(service: Service, request: Request, host: str) -> Answer:
    """Let the host feed nobody any more, or again."""
    return vars(service.roster.drain(host, schemas.drain(request.get_data())))


def heartbeat(service: Service, request: Request, host: str) -> Answer:
    """Tell the host which of its placements it does not know."""
    news = service.roster.heartbeat(host, schemas.heartbeat(request.get_data()))
    return {"interval": service.heartbeat_interval} | vars(news)


def report(service: Service, request: Request, image: str, host: str) -> Answer:
    """Check the host's word about its parent."""
    parent, reason = schemas.report(request.get_data())
    return {"verdict": service.reports.judge(image, host, parent, reason)}


def placements(service: Service, request: Request, host: str) -> Answer:
    """Show all placements of the host, once they are not those that it names by its ETag."""
    end = time.monotonic() + schemas.wait(request.args)
    with metrics.LONG_POLLS.track_inprogress(), service.watch.waiting(host) as waiter:
        while True:
            found = service.coordinator.placements(host)
            tag = _tag(found)
            if not request.if_none_match.contains(tag):
                return {"placements": found}, 200, {"ETag": f'"{tag}"'}
            if not waiter.wait(end - time.monotonic()):
                return None, 304, {"ETag": f'"{tag}"'}


def _tag(placements: Collection[Placement]) -> str:
    """Return what stands for these generations and no others."""
    text = " ".join(f"{one.image}:{one.generation}" for one in placements)
    return sha256(text.encode()).hexdigest()[:32]
