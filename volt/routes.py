"""Which handler serves which method and path: the whole API in one table.

A host is the ``path`` kind so that a name with a slash gets the answer that states
the rule for names, instead of "no such route".
"""

from collections.abc import Callable
from typing import Final

from volt.handlers import Answer, events, health, hosts, images, metrics, openapi, page

_PLACE: Final = "/v1/images/<image>/hosts/<path:host>"

ROUTES: Final[tuple[tuple[str, str, Callable[..., Answer]], ...]] = (
    ("GET", "/", page.show),
    ("GET", "/static/<file>", page.file),
    ("GET", "/healthz", health.show),
    ("GET", "/metrics", metrics.show),
    ("GET", "/v1/openapi.json", openapi.show),
    ("POST", "/v1/images", images.create),
    ("GET", "/v1/images", images.index),
    ("GET", "/v1/images/<image>", images.show),
    ("DELETE", "/v1/images/<image>", images.delete),
    ("GET", "/v1/images/<image>/trees", images.trees),
    ("GET", _PLACE, hosts.show),
    ("PUT", _PLACE, hosts.join),
    ("PATCH", _PLACE, hosts.change),
    ("DELETE", _PLACE, hosts.remove),
    ("GET", "/v1/hosts", hosts.index),
    ("GET", "/v1/hosts/<path:host>", hosts.about),
    ("PATCH", "/v1/hosts/<path:host>", hosts.drain),
    ("PUT", "/v1/hosts/<path:host>/heartbeat", hosts.heartbeat),
    ("GET", "/v1/events", events.index),
)
