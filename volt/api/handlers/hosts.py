"""How hosts tell of themselves, and learn of changes of their places."""

import time
from collections.abc import Collection
from hashlib import sha256
from typing import Any, Final

from flask import request
from flask.typing import ResponseReturnValue

from volt import metrics
from volt.api import parsing
from volt.api.handlers import Service, page_of
from volt.model.placements import Placement
from volt.model.warmups import Wish

SHARED: Final = 2.0
"""Seconds between two heartbeats, at most, of a host that has shares of caps, as they move then, or
that fetches ahead while VMs wait."""


def index(service: Service) -> ResponseReturnValue:
    """List hosts by name."""
    page = parsing.page(request.args)
    hosts = service.hosts.index(page.marker, page.limit + 1)
    return page_of("hosts", hosts, page, "host")


def show(service: Service, host: str) -> ResponseReturnValue:
    """Show what is known of the host."""
    return vars(service.hosts.show(host))


def drain(service: Service, host: str) -> ResponseReturnValue:
    """Let the host feed nobody any more, or again."""
    return vars(service.hosts.drain(host, parsing.drain(request.get_data())))


def heartbeat(service: Service, host: str) -> ResponseReturnValue:
    """Tell the host which of its placements it does not know."""
    return heard(service, host, request.get_data())


def heard(service: Service, host: str, body: bytes) -> tuple[dict[str, Any], int]:
    """Return the answer to a heartbeat, and its status."""
    found = service.hosts.heartbeat(host, parsing.heartbeat(body))
    usual = service.heartbeat_interval
    is_shared = found.shares or found.read
    return {"interval": min(usual, SHARED) if is_shared else usual} | vars(found), 200


def placements(service: Service, host: str) -> ResponseReturnValue:
    """Show the host's placements and warm-ups, once they are not those that its ETag names."""
    seconds = parsing.wait(request.args)
    if not seconds:  # it needs no place among those who wait, of which there may be none left
        return _present(service, host)
    end = time.monotonic() + seconds
    with metrics.LONG_POLLS.track_inprogress(), service.watch.waiting(host) as waiter:
        answer = _present(service, host)
        while answer[1] == 304 and waiter.wait(end - time.monotonic()):
            answer = _present(service, host)
        return answer


def _present(service: Service, host: str) -> tuple[Any, int, dict[str, str]]:
    """Return the answer of this moment: 304 if the request names these placements."""
    found, asked = service.placements.of_host(host), service.warmups.of_host(host)
    tag = _tag(found, asked)
    headers = {"ETag": f'"{tag}"'}
    if request.if_none_match.contains(tag):
        return "", 304, headers
    return {"placements": found, "warmups": asked}, 200, headers


def _tag(placements: Collection[Placement], asked: Collection[Wish]) -> str:
    """Return what stands for these generations, profiles, caps and warm-ups, and no others."""
    places = (
        ":".join(
            [
                one.image,
                str(one.generation),
                *(["capped"] if one.capped else []),
                *(f"{each.workload}={each.revision}" for each in one.profiles),
            ]
        )
        for one in placements
    )
    warmups = (f"{one.image}@{one.generation}" for one in asked)
    text = " ".join([*places, *warmups])
    return sha256(text.encode()).hexdigest()[:32]
