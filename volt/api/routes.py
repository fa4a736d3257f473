"""Which handler serves which method and path, and which rule guards it: the API in one table.

A host is the ``path`` kind so that a name with a slash gets the answer that states
the rule for names, instead of "no such route". Without a rule (``volt.auth.policies``) a route
serves everybody.
"""

from collections.abc import Callable
from typing import Final

from volt.api.handlers import Answer, events, health, hosts, images, metrics, openapi, page, peers

_PLACE: Final = "/v1/images/<image>/hosts/<path:host>"

Route = tuple[str, str, Callable[..., Answer], str | None]
"""Method, path, handler, and the rule of ``volt.auth.policies`` for it; None is open to all."""

ROUTES: Final[tuple[Route, ...]] = (
    ("GET", "/", page.show, None),
    ("GET", "/static/<file>", page.file, None),
    ("GET", "/healthz", health.show, None),
    ("GET", "/metrics", metrics.show, "metrics:show"),
    ("GET", "/v1/openapi.json", openapi.show, None),
    ("POST", "/v1/images", images.create, "image:create"),
    ("GET", "/v1/images", images.index, "image:list"),
    ("GET", "/v1/images/<image>", images.show, "image:show"),
    ("GET", "/v1/images/<image>/hashes", images.hashes, "image:hashes"),
    ("DELETE", "/v1/images/<image>", images.delete, "image:delete"),
    ("POST", "/v1/images/<image>/chap", images.rotate, "image:rotate"),
    ("GET", "/v1/images/<image>/trees", images.trees, "image:trees"),
    ("GET", "/v1/images/<image>/parents", images.parents, "image:parents"),
    ("GET", _PLACE, hosts.show, "placement:show"),
    ("PUT", _PLACE, hosts.join, "placement:join"),
    ("PATCH", _PLACE, hosts.change, "placement:change"),
    ("DELETE", _PLACE, hosts.remove, "placement:remove"),
    ("POST", f"{_PLACE}/reports", hosts.report, "placement:report"),
    ("GET", "/v1/hosts", hosts.index, "host:list"),
    ("GET", "/v1/hosts/<path:host>", hosts.about, "host:show"),
    ("PATCH", "/v1/hosts/<path:host>", hosts.drain, "host:change"),
    ("PUT", "/v1/hosts/<path:host>/heartbeat", hosts.heartbeat, "host:heartbeat"),
    ("GET", "/v1/hosts/<path:host>/placements", hosts.placements, "host:placements"),
    ("PUT", "/v1/hosts/<path:host>/certificate", peers.certify, "peer:certify"),
    ("DELETE", "/v1/hosts/<path:host>/certificate", peers.revoke, "peer:revoke"),
    ("GET", "/v1/hosts/<path:host>/listener", peers.listener, "peer:listener"),
    ("GET", "/v1/events", events.index, "event:list"),
)
