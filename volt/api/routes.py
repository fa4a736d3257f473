"""Which handler serves which method and path, and which rule guards it: the API in one table.

The application serves the table and the OpenAPI document describes it. A host is the ``path``
kind so that a name with a slash gets the answer that states the rule for names, instead of "no
such route". Without a rule (``volt.auth.policies``) a route serves everybody.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from flask.typing import ResponseReturnValue

from volt.api import schemas
from volt.api.answers import Schema, all_of, of, page_of, record
from volt.api.handlers import (
    caps,
    events,
    health,
    holds,
    hosts,
    images,
    imports,
    metrics,
    openapi,
    page,
    peers,
    placements,
    profiles,
    warmups,
)
from volt.model.caps import Cap
from volt.model.copies import Copy
from volt.model.figures import Event
from volt.model.hosts import Certificate, Host, Listener, Verdict
from volt.model.images import Hold, Image
from volt.model.imports import Import
from volt.model.placements import Candidate, Placement, Trees
from volt.model.profiles import LARGEST as LARGEST_PROFILE
from volt.model.profiles import Profile, Revision
from volt.model.warmups import Warmup, Wish

LARGEST_BODY: Final = 1024 * 1024  # bytes: a heartbeat of 10,000 images fits
LARGEST_IMAGE: Final = 16 * LARGEST_BODY  # with the upper hashes of an image of 180 GiB

_IMAGE: Final = "/v1/images/<image>"
_PROFILES: Final = f"{_IMAGE}/profiles"
_PROFILE: Final = f"{_PROFILES}/<workload>"
_WARMUPS: Final = f"{_IMAGE}/warmups"
_PLACE: Final = f"{_IMAGE}/hosts/<host>"
_HOST: Final = "/v1/hosts/<host>"
_IMPORT: Final = "/v1/imports/<image>"
_RACK: Final = "/v1/racks/<rack>"
_BYTES: Final = "application/octet-stream"
_NEWS: Final = record(
    interval={"type": "number"},
    placements={"type": "array", "items": of(Placement)},
    unknown={"type": "array", "items": {"type": "string"}},
    shares={"type": "object", "additionalProperties": {"type": "integer"}},
    read={"type": "array", "items": {"type": "string"}},
)

_OF_HOST: Final = record(
    placements={"type": "array", "items": of(Placement)},
    warmups={"type": "array", "items": of(Wish)},
)


@dataclass(frozen=True, eq=False)
class Route:
    """What is served under a method and path, to whom, and what it takes and answers.

    ``rule`` is one of ``volt.auth.policies``; None is open to all. ``answers`` gives the schema of
    the body by status: None is no body, a text its media type; ``body`` is the same of the request.
    ``errors`` are those of this route alone. ``has_etag`` says that answers have an ETag, which a
    GET may name in If-None-Match, and a PUT also in If-Match. ``largest`` is the bytes of a body.
    """

    method: str
    path: str
    handler: Callable[..., ResponseReturnValue]
    rule: str | None
    summary: str
    answers: Mapping[int, Schema | str | None]
    errors: tuple[int, ...] = ()
    body: schemas.Schema | str | None = None
    query: schemas.Schema = schemas.NO_QUERY
    has_etag: bool = False
    largest: int = LARGEST_BODY


NOUNS: Final[Mapping[str, tuple[Route, ...]]] = {
    "page": (
        Route(
            *("GET", "/", page.show, None),
            "The status page.",
            {200: "text/html"},
            has_etag=True,
        ),
        Route(
            *("GET", "/static/<file>", page.file, None),
            "A file of the status page.",
            {200: "*/*"},
            (404,),
            has_etag=True,
        ),
    ),
    "health": (
        Route(
            *("GET", "/healthz", health.show, None),
            "Whether Volt serves.",
            {200: record(status={"const": "ok"})},
            has_etag=True,
        ),
    ),
    "metrics": (
        Route(
            *("GET", "/metrics", metrics.show, "metrics:show"),
            "Numbers for Prometheus.",
            {200: "text/plain"},
            has_etag=True,
        ),
    ),
    "openapi": (
        Route(
            *("GET", "/v1/openapi.json", openapi.show, None),
            "This document.",
            {200: {"type": "object"}},
            has_etag=True,
        ),
    ),
    "images": (
        Route(
            *("POST", "/v1/images", images.create, "image:create"),
            "Make an image known.",
            {200: of(Image), 201: of(Image)},
            (404, 409),
            body=schemas.IMAGE,
            largest=LARGEST_IMAGE,
        ),
        Route(
            *("GET", "/v1/images", images.index, "image:list"),
            "List images by name.",
            {200: page_of("images", Image)},
            query=schemas.PAGE,
            has_etag=True,
        ),
        Route(
            *("GET", _IMAGE, images.show, "image:show"),
            "Show an image.",
            {200: of(Image)},
            (404,),
            has_etag=True,
        ),
        Route(
            *("GET", f"{_IMAGE}/hashes", images.hashes, "image:hashes"),
            "The levels of an image's hash tree above the leaves, the highest first.",
            {200: _BYTES},
            (404,),
            has_etag=True,
        ),
        Route(
            *("GET", f"{_IMAGE}/basis", images.basis, "image:basis"),
            "What an image has in common with those on which it is based.",
            {200: _BYTES},
            (404,),
            has_etag=True,
        ),
        Route(
            *("DELETE", _IMAGE, images.delete, "image:delete"),
            "Forget an image.",
            {204: None},
            (404, 409),
        ),
        Route(
            *("DELETE", f"{_IMAGE}/source", images.withdraw, "image:withdraw"),
            "Have an image's source go.",
            {200: of(Image), 204: None},
            (404, 409),
            query=schemas.FORCED,
        ),
        Route(
            *("PUT", f"{_IMAGE}/makers/<host>", images.keep, "layer:keep"),
            "Make a layer known that a host has made, and serves.",
            {200: of(Image), 201: of(Image)},
            (404, 409),
            body=schemas.IMAGE,
            largest=LARGEST_IMAGE,
        ),
        Route(
            *("DELETE", f"{_IMAGE}/makers/<host>", images.drop, "layer:drop"),
            "Forget a layer that a host has made, or that the host has it.",
            {200: of(Image), 204: None},
            (404, 409),
            query=schemas.ELSEWHERE,
        ),
        Route(
            *("GET", f"{_IMAGE}/trees", images.trees, "image:trees"),
            "Show an image's trees.",
            {200: of(Trees)},
            (404,),
            has_etag=True,
        ),
        Route(
            *("POST", f"{_IMAGE}/chap", images.rotate, "image:rotate"),
            "Give an image's hosts another secret.",
            {204: None},
            (404,),
        ),
        Route(
            *("PUT", f"{_IMAGE}/hydrate", images.hydrate, "image:hydrate"),
            "Have hosts copy all of an image some time after it came to them.",
            {200: of(Image)},
            (404,),
            body=schemas.HYDRATION,
        ),
        Route(
            *("DELETE", f"{_IMAGE}/hydrate", images.dehydrate, "image:dehydrate"),
            "Have no more hosts copy all of an image.",
            {204: None},
            (404,),
        ),
        Route(
            *("GET", f"{_IMAGE}/copies", images.copies, "image:copies"),
            "List which hosts have, make or shall make a copy of all of an image.",
            {200: all_of("copies", Copy)},
            (404,),
            has_etag=True,
        ),
        Route(
            *("PUT", f"{_IMAGE}/home", images.rehome, "image:rehome"),
            "Have a host that has all of an image stand for its source.",
            {200: of(Image)},
            (404, 409),
            body=schemas.HOME,
        ),
        Route(
            *("GET", f"{_IMAGE}/parents", images.parents, "image:parents"),
            "List whom a host could read from, best first.",
            {200: all_of("parents", Candidate)},
            (404,),
            query=schemas.CANDIDATES,
            has_etag=True,
        ),
    ),
    "profiles": (
        Route(
            *("GET", _PROFILES, profiles.index, "profile:read"),
            "List the newest boot profile of each workload.",
            {200: all_of("profiles", Profile)},
            (404,),
            has_etag=True,
        ),
        Route(
            *("GET", _PROFILE, profiles.show, "profile:read"),
            "Fetch a boot profile: the newest, or the one of a revision.",
            {200: _BYTES},
            (404,),
            query=schemas.REVISION,
            has_etag=True,
        ),
        Route(
            *("GET", f"{_PROFILE}/history", profiles.history, "profile:read"),
            "List the revisions of a boot profile that are kept, the newest first.",
            {200: all_of("revisions", Revision)},
            (404,),
            has_etag=True,
        ),
        Route(
            *("PUT", _PROFILE, profiles.store, "profile:store"),
            "Store a boot profile.",
            {200: of(Profile), 201: of(Profile)},
            (404, 409, 412),
            body=_BYTES,
            has_etag=True,
            largest=LARGEST_PROFILE,
        ),
        Route(
            *("DELETE", _PROFILE, profiles.remove, "profile:remove"),
            "Forget a boot profile, with all its revisions.",
            {204: None},
        ),
    ),
    "warmups": (
        Route(
            *("POST", _WARMUPS, warmups.ask, "warmup:ask"),
            "Ask hosts to warm an image.",
            {202: all_of("warmups", Warmup)},
            (404,),
            body=schemas.CHOSEN,
        ),
        Route(
            *("GET", _WARMUPS, warmups.index, "warmup:list"),
            "List which hosts were asked to warm an image, and how far they are.",
            {200: all_of("warmups", Warmup)},
            (404,),
            has_etag=True,
        ),
        Route(
            *("PUT", f"{_WARMUPS}/<host>", warmups.tell, "warmup:tell"),
            "Say how far a host is with warming an image.",
            {204: None},
            (404,),
            body=schemas.PROGRESS,
        ),
    ),
    "placements": (
        Route(
            *("GET", _PLACE, placements.show, "placement:show"),
            "Show a placement.",
            {200: of(Placement)},
            (404,),
            has_etag=True,
        ),
        Route(
            *("PUT", _PLACE, placements.join, "placement:join"),
            "Join an image's trees.",
            {200: of(Placement), 201: of(Placement)},
            (404,),
            body=schemas.JOIN,
        ),
        Route(
            *("PATCH", _PLACE, placements.change, "placement:change"),
            "Say that a host is ready or leaves.",
            {200: of(Placement)},
            (404, 409),
            body=schemas.STATE,
        ),
        Route(
            *("DELETE", _PLACE, placements.remove, "placement:remove"),
            "Forget a placement.",
            {204: None},
        ),
        Route(
            *("POST", f"{_PLACE}/reports", placements.report, "placement:report"),
            "Say that a parent does not answer, or sends wrong bytes.",
            {200: record(verdict={"enum": [verdict.value for verdict in Verdict]})},
            (404, 409),
            body=schemas.REPORT,
        ),
    ),
    "hosts": (
        Route(
            *("GET", "/v1/hosts", hosts.index, "host:list"),
            "List hosts by name.",
            {200: page_of("hosts", Host)},
            query=schemas.PAGE,
            has_etag=True,
        ),
        Route(
            *("GET", _HOST, hosts.show, "host:show"),
            "Show a host.",
            {200: of(Host)},
            (404,),
            has_etag=True,
        ),
        Route(
            *("PATCH", _HOST, hosts.drain, "host:change"),
            "Drain a host, or end that.",
            {200: of(Host)},
            (404,),
            body=schemas.DRAIN,
        ),
        Route(
            *("PUT", f"{_HOST}/heartbeat", hosts.heartbeat, "host:heartbeat"),
            "Report a host's state and learn what changed.",
            {200: _NEWS},
            body=schemas.HEARTBEAT,
        ),
        Route(
            *("GET", f"{_HOST}/placements", hosts.placements, "host:placements"),
            "Show a host's placements and the images that it shall warm, once they are others than "
            "If-None-Match says.",
            {200: _OF_HOST},
            query=schemas.WAIT,
            has_etag=True,
        ),
    ),
    "caps": (
        Route(
            *("GET", "/v1/caps", caps.index, "cap:list"),
            "List the caps of what is fetched ahead of VMs.",
            {200: all_of("caps", Cap)},
            has_etag=True,
        ),
        Route(
            *("PUT", f"{_IMAGE}/cap", caps.put_image, "cap:set"),
            "Cap what all hosts fetch ahead in an image.",
            {200: of(Cap), 201: of(Cap)},
            (404,),
            body=schemas.CAP,
        ),
        Route(
            *("DELETE", f"{_IMAGE}/cap", caps.clear_image, "cap:clear"),
            "Remove an image's cap.",
            {204: None},
        ),
        Route(
            *("PUT", f"{_RACK}/cap", caps.put_rack, "cap:set"),
            "Cap what the hosts of a rack fetch ahead in all images.",
            {200: of(Cap), 201: of(Cap)},
            body=schemas.CAP,
        ),
        Route(
            *("DELETE", f"{_RACK}/cap", caps.clear_rack, "cap:clear"),
            "Remove a rack's cap.",
            {204: None},
        ),
        Route(
            *("PUT", f"{_HOST}/cap", caps.put_host, "cap:set"),
            "Cap what a host fetches ahead in all images.",
            {200: of(Cap), 201: of(Cap)},
            body=schemas.CAP,
        ),
        Route(
            *("DELETE", f"{_HOST}/cap", caps.clear_host, "cap:clear"),
            "Remove a host's cap.",
            {204: None},
        ),
    ),
    "holds": (
        Route(
            *("GET", "/v1/holds", holds.index, "hold:list"),
            "List which hosts need which images for their disks.",
            {200: all_of("holds", Hold)},
            query=schemas.HELD,
            has_etag=True,
        ),
        Route(
            *("GET", f"{_HOST}/holds", holds.of_host, "host:holds"),
            "List which images a host needs for its disks.",
            {200: all_of("holds", Hold)},
            has_etag=True,
        ),
        Route(
            *("DELETE", f"{_IMAGE}/holds/<host>", holds.release, "hold:release"),
            "Let go of what a host needed that says so itself, or has expired.",
            {204: None},
            (409,),
        ),
    ),
    "imports": (
        Route(
            *("GET", "/v1/imports", imports.index, "import:list"),
            "List images that hosts wait for, and how far they are.",
            {200: all_of("imports", Import)},
            has_etag=True,
        ),
        Route(
            *("GET", _IMPORT, imports.show, "import:show"),
            "Show how far an image is that hosts wait for.",
            {200: of(Import)},
            (404,),
            has_etag=True,
        ),
        Route(
            *("PUT", _IMPORT, imports.tell, "import:tell"),
            "Say how far an image is that an importer makes.",
            {200: of(Import)},
            (409,),
            body=schemas.TOLD,
        ),
        Route(
            *("POST", f"{_IMPORT}/retry", imports.retry, "import:retry"),
            "Have an image tried anew.",
            {204: None},
        ),
    ),
    "peers": (
        Route(
            *("PUT", f"{_HOST}/certificate", peers.certify, "peer:certify"),
            "Sign a certificate by which a host's agent is known to others.",
            {200: of(Certificate)},
            body=schemas.CERTIFICATE,
        ),
        Route(
            *("DELETE", f"{_HOST}/certificate", peers.revoke, "peer:revoke"),
            "Have no agent trust a host's any more.",
            {204: None},
        ),
        Route(
            *("GET", f"{_HOST}/listener", peers.listener, "peer:listener"),
            "Show where a host's agent takes calls of others.",
            {200: of(Listener)},
            (404,),
            has_etag=True,
        ),
    ),
    "events": (
        Route(
            *("GET", "/v1/events", events.index, "event:list"),
            "List the last events, newest first.",
            {200: all_of("events", Event)},
            query=schemas.EVENTS,
            has_etag=True,
        ),
    ),
}
ENDPOINTS: Final = {
    f"{noun}.{route.handler.__name__}": route for noun, routes in NOUNS.items() for route in routes
}
ROUTES: Final = tuple(ENDPOINTS.values())
